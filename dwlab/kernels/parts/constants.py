"""What a kernel reads of a tile, a layer or a layout by its own name: `tile.block_m`, `layout.x_pitch`, `product.add`.

Numba takes no objects of ours in a kernel, but named tuples; a field is as good as a constant written there. Sizes of
arrays, and operands that an instruction takes as constants, must be names of their own.
"""

from collections import namedtuple


def of(*objects, **more):
    """A named tuple of the objects' whole numbers, truth values and device functions, properties too, and of more."""
    every = {name: getattr(one, name) for one in objects for name in dir(one) if not name.startswith("_")} | more
    found = {name: value for name, value in every.items() if isinstance(value, int) or hasattr(value, "py_func")}
    return namedtuple("Constants", found)(**found)
