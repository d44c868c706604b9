"""The GPU that choices of tiles are made for: an H200, compute capability 9.0.

On another the kernels run too, as far as a block's shared memory is there; their tiles are then another GPU's best.
"""

from dwlab.gpu.occupancy import LIMITS

MULTIPROCESSORS = 132
SHARED = LIMITS[9, 0].shared_per_block_optin
"""Bytes that a block may ask for."""
REGISTERS = LIMITS[9, 0].registers_per_sm
"""Of a multiprocessor."""
