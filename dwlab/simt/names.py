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
CACHE_HINTS = ("ldca", "ldcg", "ldcs", "ldlu", "ldcv", "stcg", "stcs", "stwb", "stwt")
"""Loads and stores that say how long a cache should keep what they move."""

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

NAMES: dict[str, DeviceName] = {name: DeviceName(name) for name in ("laneid", "warpsize", "nanosleep", *CACHE_HINTS)}
"""The names under `cuda.` in a kernel; what runs a function of these (intrinsics, libdevice) adds its name."""
NAMES |= {name: DeviceName(name, _AXES) for name in ("threadIdx", "blockIdx", "blockDim", "gridDim")}
_vectors = {f"{element}x{count}": DeviceName(f"{element}x{count}") for element, count in VECTORS.values()}
NAMES |= {name: _vectors[f"{element}x{count}"] for name, (element, count) in VECTORS.items()}  # an alias is that type

_OWN_NAMES = {
    "grid", "gridsize", "syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or", "cg", "fp16",
    *CACHE_HINTS,
}  # fmt: skip


def may_be_global(path: str) -> bool:
    """Whether Numba-CUDA knows what `cuda.<path>` is under a global name of its own."""
    votes = path.endswith("_sync") and not path.startswith("match")
    return path in _OWN_NAMES or path in VECTORS or votes or path.startswith(("cg.", "fp16.", "libdevice"))
