"""Kernels compiled without being run: registers, spills, SASS, and compiling many ahead of time."""
