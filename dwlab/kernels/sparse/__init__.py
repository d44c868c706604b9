"""Pointwise convolution with sparse filters, N:M and V:N:M: one file per stage"""
