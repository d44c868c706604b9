"""The names that mean something inside a kernel (threadIdx, syncthreads, atomic.add …), as objects for `cuda.*`."""

from __future__ import annotations


class DeviceName:
    """A name with a meaning inside a kernel only. `path` is its dotted name after `cuda.`."""

    def __init__(self, path: str, children: tuple[str, ...] = ()):
        self.path = path
        self.__name__ = path.rpartition(".")[2]
        for child in children:
            setattr(self, child, DeviceName(f"{path}.{child}"))

    def __call__(self, *args: object, **kwargs: object) -> None:
        raise RuntimeError(
            f"cuda.{self.path} works inside a kernel only; launch the kernel with kernel[grid, block](...)"
        )

    def __repr__(self) -> str:
        return f"<cuda.{self.path}>"


_AXES = ("x", "y", "z")
_ATOMICS = (
    "add", "sub", "and_", "or_", "xor", "inc", "dec", "exch", "max", "min", "nanmax", "nanmin",
    "compare_and_swap", "cas",
)  # fmt: skip
_HALF = (
    "hadd", "hsub", "hmul", "hdiv", "hfma", "hneg", "habs", "hmin", "hmax", "heq", "hne", "hgt", "hge", "hlt", "hle",
    "hsqrt", "hexp", "hlog", "hsin", "hcos", "hrcp", "hrsqrt", "hfloor", "hceil", "htrunc", "hrint", "hexp2", "hexp10",
    "hlog2", "hlog10",
)  # fmt: skip
CACHE_HINTS = ("ldca", "ldcg", "ldcs", "ldlu", "ldcv", "stcg", "stcs", "stwb", "stwt")
"""Loads and stores that say how long a cache should keep what they move."""
_PLAIN = (
    "grid", "gridsize", "laneid", "warpsize", "syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or",
    "syncwarp", "shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync", "ballot_sync", "any_sync", "all_sync",
    "eq_sync", "match_any_sync", "match_all_sync", "activemask", "lanemask_lt", "threadfence", "threadfence_block",
    "threadfence_system", "selp", "popc", "brev", "clz", "ffs", "fma", "cbrt", "nanosleep", *CACHE_HINTS,
)  # fmt: skip

_VECTOR_ELEMENTS = {
    "int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort", "int32": "int", "uint32": "uint",
    "int64": "longlong", "uint64": "ulonglong", "float32": "float", "float64": "double",
}  # fmt: skip
VECTORS: dict[str, tuple[str, int]] = {
    name: (element, count)
    for element, short in _VECTOR_ELEMENTS.items()
    for count in (1, 2, 3, 4)
    for name in (
        f"{element}x{count}", f"{short}{count}",
        *((f"{short.replace('longlong', 'long')}{count}",) if "long" in short else ()),
    )
}  # fmt: skip
"""The vector types: their names, both spellings -> (the elements' type, how many)."""

NAMES: dict[str, DeviceName] = {name: DeviceName(name) for name in _PLAIN}
NAMES |= {name: DeviceName(name, _AXES) for name in ("threadIdx", "blockIdx", "blockDim", "gridDim")}
NAMES |= {
    "shared": DeviceName("shared", ("array",)),
    "local": DeviceName("local", ("array",)),
    "const": DeviceName("const", ("array_like",)),
    "atomic": DeviceName("atomic", _ATOMICS),
    "cg": DeviceName("cg", ("this_grid",)),
    "fp16": DeviceName("fp16", _HALF),
}
NAMES |= {name: DeviceName(f"{element}x{count}") for name, (element, count) in VECTORS.items()}
_once = {name.path: name for name in NAMES.values()}
NAMES = {name: _once[one.path] for name, one in NAMES.items()}  # an alias of a vector type is that type

_OWN_NAMES = {
    "grid", "gridsize", "syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or", "cg", "fp16",
    *CACHE_HINTS,
}  # fmt: skip


def may_be_global(path: str) -> bool:
    """Whether Numba-CUDA knows what `cuda.<path>` is under a global name of its own."""
    votes = path.endswith("_sync") and not path.startswith("match")
    return path in _OWN_NAMES or path in VECTORS or votes or path.startswith(("cg.", "fp16.", "libdevice"))
