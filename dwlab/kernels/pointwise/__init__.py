"""Pointwise convolution: one file per stage."""
