"""Depthwise 1-D convolution: one file per stage, PATH_ORDER_NAME.py, listed by dwlab.kernels.registry."""
