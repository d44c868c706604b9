"""cuda.reduce: a reduction by any binary function, in a kernel of blocks of four warps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numba.np.numpy_support import from_dtype

from dwlab.simt.hostapi import device_array
from dwlab.simt.launch import jit
from dwlab.simt.names import NAMES

cuda = ModuleType("dwlab.simt.cuda")
"""For the kernel below: the module of this name imports this file, so it is not there yet."""
vars(cuda).update(NAMES)

_WARP, _WARPS = 32, 4


class Reduce:
    """A reduction by any binary function: ``total = cuda.reduce(lambda a, b: a + b)``, then ``total(array)``.

    Elements are combined in the sequence of Numba-CUDA's reduction (blocks of four warps, a tree within a warp), so
    that floating-point sums are rounded as they are on a GPU.
    """

    def __init__(self, functor: Callable[[Any, Any], Any]) -> None:
        self._functor = functor

    def __call__(self, arr: Any, size: int | None = None, res: Any = None, init: Any = 0, stream: Any = 0) -> Any:
        """Reduce a 1-D host or device array.

        ``size``: only the first so many elements. ``init``: one more value to combine, converted to the array's dtype;
        what an empty array gives. ``res``: a device array that gets the result in its first element; then None is
        returned.
        """
        if not hasattr(arr, "ndim") or arr.ndim != 1:
            raise TypeError(f"only support 1D array, got {getattr(arr, 'ndim', type(arr).__name__)}")
        if size is not None:
            arr = arr[:size]
        init = arr.dtype.type(init)
        if arr.size < 1:
            return init
        kernel = _reduction_kernel(self._functor, np.dtype(arr.dtype))
        block = _WARP * _WARPS
        full = arr.size // block * block
        blocks = min(full // block, 2 * _WARP)
        partials = device_array(blocks + (full < arr.size), arr.dtype)
        if full:
            kernel[blocks, block, stream](arr[:full], partials[:blocks], init, True)
        if full < arr.size:
            kernel[1, arr.size - full, stream](arr[full:], partials[blocks:], init, not blocks)
        if partials.size > 1:
            kernel[1, partials.size, stream](partials, partials, init, False)
        if res is None:
            return partials[0]
        res[:1].copy_to_device(partials[:1], stream=stream)
        return None


reduce = Reduce


@functools.cache
def _reduction_kernel(functor: Callable[[Any, Any], Any], dtype: np.dtype) -> Any:
    """Kernel (values, partials, init, use_init): one partial result a block, of 128 threads or fewer."""
    combine = jit(device=True)(functor)
    element = from_dtype(dtype)
    warp, warps = _WARP, _WARPS

    @jit
    def reduce_block(values, partials, init, use_init):
        scratch = cuda.shared.array((4, 33), element)
        thread = cuda.threadIdx.x
        lane = thread % warp
        row = thread // warp
        count = values.size
        first = thread + cuda.blockIdx.x * cuda.blockDim.x
        value = values[first]
        for i in range(first + cuda.gridsize(1), count, cuda.gridsize(1)):
            value = combine(value, values[i])
        scratch[row, lane] = value
        cuda.syncthreads()
        # A warp whose end is the block's end is folded in sequence, unless the block has all four warps.
        if cuda.blockDim.x == warp * warps or (row + 1) * warp < count:
            width = warp // 2
            while width > 0:
                if lane < width:
                    value = combine(scratch[row, lane], scratch[row, lane + width])
                cuda.syncwarp()
                if lane < width:
                    scratch[row, lane] = value
                cuda.syncwarp()
                width //= 2
        elif lane == 0:
            for i in range(1, count - row * warp):
                scratch[row, 0] = combine(scratch[row, 0], scratch[row, i])
        cuda.syncthreads()
        if thread == 0:
            if cuda.blockDim.x == warp * warps:
                value = combine(combine(scratch[0, 0], scratch[2, 0]), combine(scratch[1, 0], scratch[3, 0]))
            else:
                value = scratch[0, 0]
                for i in range(1, (cuda.blockDim.x + warp - 1) // warp):
                    value = combine(value, scratch[i, 0])
            if use_init and cuda.blockIdx.x == 0:
                value = combine(value, init)
            partials[cuda.blockIdx.x] = value

    return reduce_block
