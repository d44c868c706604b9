"""Numba's CUDA simulator, replaced: a project that was written for Numba-CUDA runs unedited on the interpreter."""
