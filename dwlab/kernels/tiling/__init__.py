"""Tiles: how a kernel's work is divided into blocks, warps and threads, for which GPU, what it costs, the choice"""
