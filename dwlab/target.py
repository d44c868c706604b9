"""The ``cuda`` that kernels import (``from dwlab.target import cuda``): numba.cuda on a GPU, else `dwlab.simt.cuda`.

`dwlab.gpu.target` decides which, when ``cuda`` is first used; the choice holds for the life of the process. Its other
names (``mode``, ``reason``, …) are to be had here, too.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dwlab.gpu import target

if TYPE_CHECKING:
    cuda: ModuleType


def cuda_of(mode: target.Mode) -> ModuleType:
    """The module that kernels of a mode import as cuda."""
    return target.numba_cuda() if mode == "gpu" else importlib.import_module("dwlab.simt.cuda")


def __getattr__(name: str) -> Any:
    if name != "cuda":
        return getattr(target, name)
    globals()[name] = value = cuda_of(target.mode)
    return value
