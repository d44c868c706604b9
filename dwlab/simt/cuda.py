"""The laptop GPU behind numba.cuda's names: in simulated mode `from dwlab import cuda` is this module."""

import sys as _sys

from numba.core.types import void

from dwlab.simt import hostapi as _hostapi
from dwlab.simt import random_states as _random_states
from dwlab.simt.hostapi import *  # noqa: F403
from dwlab.simt.launch import jit
from dwlab.simt.names import NAMES as _NAMES
from dwlab.simt.reduce import Reduce, reduce

globals().update(_NAMES)
is_simulated = True
_random_states.use(_sys.modules[__name__])

__all__ = [*_hostapi.__all__, *_NAMES, "is_simulated", "jit", "Reduce", "reduce", "void"]


def __getattr__(name: str) -> object:
    raise AttributeError(f"the laptop GPU has no cuda.{name}")
