"""A pointwise layer as a matrix product.

A layer is `images` products Y = A B, Y of M rows and N columns, sums of C terms, Y's columns next to each other:

    NHWC: one product; rows are pixels (of all images), columns filters:  A = x (M, C),  B(k, n) = w[n, k]
    NCHW: one a picture; rows are filters, columns pixels:                A = w (M, C),  B = x[image] (C, N)

A always lies with its k next to each other, B does in NHWC. Arrays are float32 words, two 16-bit elements in each.
"""

from __future__ import annotations

from dataclasses import dataclass

from dwlab.problems.layers import Pointwise


@dataclass(frozen=True)
class Product:
    """A layer as matrix products. each: elements of a word. words: of a sum's terms, C / each."""

    images: int
    M: int
    N: int
    C: int
    each: int
    nchw: bool

    @property
    def words(self) -> int:
        """float32 words of C elements."""
        return self.C // self.each


def product(layer: Pointwise, N: int = 0) -> Product:
    """The products of a layer; N: with so many images, if not the layer's own."""
    N, each = N or layer.N, 4 // layer.itemsize
    if layer.layout == "NCHW":
        return Product(N, layer.F, layer.H * layer.W, layer.C, each, True)
    return Product(1, N * layer.H * layer.W, layer.F, layer.C, each, False)
