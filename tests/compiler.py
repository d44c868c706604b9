"""Whether kernels can be compiled here: with a GPU or without, it takes numba-cuda and the compiler of its extras."""

import pytest

from dwlab.compiler import inspect
from dwlab.kernels.registry import stages

needs_compiler = pytest.mark.skipif(
    inspect.missing() != "", reason=f"none of the {len(stages())} stages is compiled here: {inspect.missing()}"
)
