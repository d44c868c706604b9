"""Depthwise convolution in two dimensions: one file per stage."""
