"""numba.cuda.random without a GPU: its host functions make their arrays in the simulated GPU's memory.

The module's device functions run as they are; only `create_xoroshiro128p_states` allocates, with `numba.cuda`, by
the module's global name `cuda`. That name is what is changed, when the module is imported, and only where no GPU can be
used. It is not imported here: that would load all of numba.cuda.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from dwlab.gpu import driver

NAME = "numba.cuda.random"


def use(cuda: ModuleType) -> None:
    """Lets numba.cuda.random, imported before or after, make its states with `cuda`; nothing where a GPU is usable."""
    if driver.query().usable:
        return
    loaded = sys.modules.get(NAME)
    if loaded is not None:
        loaded.cuda = cuda
    else:
        sys.meta_path.insert(0, _Finder(cuda))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds numba.cuda.random as the other finders do, once, and changes the name when it has been loaded."""

    def __init__(self, cuda: ModuleType):
        self.cuda = cuda

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            module.cuda = self.cuda

        spec.loader.exec_module = exec_module
        return spec
