"""What a fused kernel may leave out, for tests that a judge sees it."""

from dwlab.problems.layers import DepthwiseConv2d, Pointwise

LEFT_OUT = {
    "first bias": lambda layer: {"bias": isinstance(layer, Pointwise)},
    "second bias": lambda layer: {"bias": isinstance(layer, DepthwiseConv2d)},
    "between": lambda layer: {"activation": "none"} if isinstance(layer, DepthwiseConv2d) else {},
    "after": lambda layer: {"activation": "none"} if isinstance(layer, Pointwise) else {},
    "residual": lambda layer: {"residual": False},
}
"""What is left out, and what a layer then is."""
