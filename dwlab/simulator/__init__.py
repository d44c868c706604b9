"""The interpreter in the place of Numba's CUDA simulator: a project that was written for Numba-CUDA runs unedited."""
