"""The laptop GPU behind numba.cuda's names: in simulated mode `from dwlab import cuda` is this module."""

from numba.core.types import void

from dwlab.simt import hostapi as _hostapi
from dwlab.simt.hostapi import *  # noqa: F403
from dwlab.simt.launch import jit
from dwlab.simt.names import NAMES as _NAMES

globals().update(_NAMES)
is_simulated = True

__all__ = [*_hostapi.__all__, *_NAMES, "is_simulated", "jit", "void"]
