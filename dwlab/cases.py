"""The problems that kernels are judged on: sizes chosen to break them, the smallest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dwlab.layers import DepthwiseConv2d, Fused, Layer, Pointwise
from dwlab.problems import DepthwiseConv1d, Problem


@dataclass(frozen=True)
class Case:
    """One problem, why it is among the cases, and the seed of its inputs."""

    problem: Problem
    why: str
    seed: int = 0


_FAMILY = (
    (1, 1, 1, 1, "causal", "one product"),
    (1, 1, 8, 3, "causal", "one short row"),
    (1, 1, 7, 3, "same", "one short row, odd"),
    (2, 3, 5, 1, "causal", "one tap"),
    (2, 3, 6, 4, 1, "padding between causal and same"),
    (2, 3, 29, 4, 0, "no padding to the left"),
    (2, 3, 31, 5, "causal", "a warp less one"),
    (2, 3, 32, 5, "same", "a warp"),
    (2, 3, 33, 5, "same", "a warp and one"),
    (2, 3, 5, 9, "causal", "K > L"),
    (1, 2, 20, 70, "same", "K > L, many taps"),
    (3, 2, 48, 48, "causal", "the paper's row"),
    (3, 2, 48, 48, "same", "the paper's row"),
    (1, 2, 63, 7, "same", "two warps less one"),
    (1, 2, 64, 8, "causal", "two warps"),
    (2, 1, 65, 6, "same", "two warps and one"),
    (1, 2, 95, 13, "causal", "three warps less one"),
    (1, 2, 96, 12, "same", "three warps"),
    (1, 2, 97, 11, "same", "three warps and one"),
    (1, 1, 127, 16, "same", "four warps less one"),
    (1, 1, 129, 17, "causal", "four warps and one"),
    (2, 2, 40, 31, "same", "31 taps"),
    (2, 2, 50, 33, "causal", "33 taps"),
    (1, 2, 71, 47, "same", "47 taps"),
    (1, 2, 53, 49, "causal", "49 taps"),
    (1, 1, 66, 63, "same", "63 taps"),
    (1, 1, 70, 65, "same", "65 taps"),
    (1, 1, 101, 97, "causal", "97 taps"),
    (19, 11, 13, 4, "same", "several blocks of b and h"),
    (70, 3, 9, 2, "causal", "many batch entries"),
    (3, 37, 5, 3, "same", "many channels"),
    (1, 2, 300, 37, "same", "several blocks of t"),
)

# For rows of 16 bits, which only stages at the roof take: whole pieces of 8, at most 64.
_FAMILY_16 = (
    (1, 1, 8, 1, "causal", "one piece of 16 bytes, one tap"),
    (1, 1, 8, 3, "same", "one piece"),
    (2, 3, 16, 4, 1, "padding between causal and same"),
    (2, 3, 24, 4, 0, "no padding to the left"),
    (2, 3, 8, 20, "causal", "K > L"),
    (1, 31, 40, 7, "same", "a warp of rows less one"),
    (2, 16, 56, 5, "causal", "a warp of rows"),
    (3, 11, 32, 9, "same", "a warp of rows and one"),
    (3, 2, 48, 48, "causal", "the paper's row"),
    (3, 2, 48, 48, "same", "the paper's row"),
    (2, 5, 64, 64, "same", "the longest row and filter"),
    (5, 13, 24, 33, "same", "33 taps, two warps of rows and one"),
    (70, 3, 8, 2, "causal", "many batch entries"),
)

# So many channels and entries that a block which works through the batch must go round more than once.
_FAMILY_OF = {"weight_grad": ((40, 1100, 2, 3, "same", "more rows than blocks"),)}


# N, C, H, W, K, stride, padding, bias, activation, residual
_DEPTHWISE = (
    (1, 1, 1, 1, 1, 1, -1, False, "none", False, "one product"),
    (1, 1, 1, 1, 3, 1, -1, True, "none", False, "one pixel"),
    (1, 1, 4, 4, 3, 1, -1, False, "none", False, "one small map"),
    (2, 3, 5, 7, 3, 1, -1, True, "relu", False, "odd sizes"),
    (2, 3, 6, 5, 3, 2, -1, False, "none", False, "stride 2, an even and an odd side"),
    (1, 2, 6, 6, 2, 1, -1, False, "none", False, "an even filter"),
    (1, 3, 9, 9, 3, 1, 0, True, "none", False, "no padding"),
    (1, 2, 9, 8, 3, 3, 1, False, "relu", False, "stride 3"),
    (1, 4, 3, 2, 7, 1, -1, False, "none", False, "maps smaller than the filter"),
    (1, 8, 7, 7, 3, 1, -1, True, "relu6", False, "the last maps of the networks"),
    (2, 8, 7, 7, 5, 2, -1, True, "relu6", True, "the same, stride 2, 5 x 5"),
    (1, 16, 7, 7, 7, 1, -1, True, "gelu", True, "the same, 7 x 7"),
    (1, 2, 8, 31, 3, 1, -1, False, "none", False, "a warp less one"),
    (1, 8, 3, 32, 3, 1, -1, False, "none", True, "a warp"),
    (1, 2, 33, 33, 3, 1, -1, True, "relu", False, "a warp and one"),
    (1, 2, 17, 66, 5, 2, -1, False, "none", False, "two warps and two, stride 2"),
    (2, 32, 14, 14, 3, 1, -1, True, "relu6", False, "32 channels of 14 x 14"),
    (1, 40, 15, 13, 3, 2, -1, True, "relu6", False, "40 channels, stride 2"),
    (1, 33, 9, 10, 5, 1, -1, False, "relu", False, "33 channels"),
    (1, 64, 16, 16, 3, 1, -1, True, "relu6", True, "64 channels of 16 x 16"),
    (1, 136, 4, 6, 3, 1, -1, False, "none", False, "136 channels"),
    (3, 24, 28, 28, 3, 2, -1, True, "none", False, "several blocks"),
    (1, 1, 44, 70, 7, 1, -1, False, "none", False, "a large map"),
)

# N, C, F, H, W, bias, activation, residual
_POINTWISE = (
    (1, 1, 1, 1, 1, False, "none", False, "one product"),
    (1, 2, 3, 1, 1, True, "none", False, "one pixel"),
    (1, 3, 5, 2, 3, False, "relu", False, "odd sizes"),
    (2, 7, 9, 5, 7, True, "none", True, "odd sizes, two images"),
    (1, 16, 8, 4, 4, False, "none", False, "16 pixels"),
    (1, 32, 32, 8, 8, True, "relu6", False, "32 of each"),
    (1, 24, 40, 7, 7, True, "relu6", False, "the last maps of the networks"),
    (1, 40, 24, 7, 7, True, "none", True, "the same, with a residual"),
    (1, 33, 31, 9, 7, False, "none", False, "a warp and one, a warp less one"),
    (1, 64, 64, 8, 8, False, "none", False, "64 of each"),
    (2, 64, 128, 8, 12, True, "gelu", False, "several blocks"),
    (1, 65, 63, 5, 13, True, "relu", False, "64 and one, 64 less one"),
    (1, 17, 130, 3, 5, False, "none", False, "more filters than a tile"),
    (1, 128, 72, 3, 7, True, "none", True, "many channels"),
    (1, 8, 16, 17, 31, True, "relu6", False, "many pixels"),
    (3, 48, 24, 14, 14, True, "none", False, "three images of 14 x 14"),
    (1, 200, 16, 2, 2, False, "none", False, "few outputs of long sums"),
)

# N, C, H, W, K, stride, F, activation between, activation after, residual: depthwise then pointwise, or the other way,
# with C channels between in the one and F in the other.
_PAIRS = (
    (1, 1, 1, 1, 1, 1, 1, "none", "none", False, "one product each"),
    (1, 2, 3, 3, 3, 1, 3, "none", "none", False, "one small map"),
    (1, 3, 5, 7, 3, 1, 4, "relu", "none", False, "odd sizes"),
    (2, 4, 9, 8, 3, 2, 6, "relu6", "relu6", False, "stride 2"),
    (1, 8, 7, 7, 3, 1, 16, "relu6", "none", True, "the last maps of the networks"),
    (1, 16, 8, 8, 3, 1, 24, "relu", "relu", False, "a tile of 8 x 8"),
    (1, 16, 17, 15, 5, 1, 8, "none", "gelu", False, "5 x 5, a tile and one, a tile less one"),
    (1, 32, 14, 14, 3, 1, 32, "relu6", "none", True, "32 channels of 14 x 14"),
    (2, 24, 15, 15, 3, 2, 40, "relu6", "relu6", False, "several blocks, stride 2"),
    (1, 33, 9, 7, 3, 1, 31, "relu", "none", False, "a warp and one, a warp less one"),
    (1, 64, 16, 16, 3, 1, 64, "relu6", "relu6", False, "64 channels"),
    (1, 40, 12, 33, 7, 1, 72, "none", "none", False, "7 x 7"),
    (2, 48, 9, 11, 3, 2, 32, "relu6", "none", False, "48 channels, stride 2"),
    (1, 20, 6, 10, 5, 1, 16, "none", "relu6", False, "20 channels, 5 x 5"),
    (2, 72, 28, 28, 3, 2, 24, "relu6", "none", False, "many channels, several tiles"),
)

# N, C, F of the first, F of the second, H, W, activation between, activation after, residual
_PWPW = (
    (1, 1, 1, 1, 1, 1, "none", "none", False, "one product each"),
    (1, 3, 4, 5, 2, 3, "relu", "none", False, "odd sizes"),
    (2, 8, 16, 8, 7, 7, "relu6", "none", True, "the last maps of the networks"),
    (1, 33, 31, 17, 5, 9, "none", "relu", False, "a warp and one, a warp less one"),
    (1, 32, 64, 32, 8, 8, "gelu", "none", True, "a feed-forward block"),
    (1, 64, 32, 96, 9, 14, "relu6", "relu6", False, "several tiles"),
    (1, 16, 48, 20, 5, 7, "relu6", "none", False, "a step of 32 channels and a half"),
    (2, 48, 80, 36, 3, 3, "none", "relu6", False, "as before, in both layers"),
    (1, 32, 144, 16, 4, 5, "relu", "none", False, "more filters between than a tile"),
    (3, 24, 72, 40, 4, 11, "gelu", "none", False, "three images"),
)


def layer_cases(op: str, path: str, dtypes: Sequence[str]) -> tuple[Case, ...]:
    """The layers that a stage of an op and path is judged on, in both layouts and each of these storage types.

    In int8 activations that it has not become a relu, and zero points and a residual's factor are set.
    """
    found = []
    for dtype in dtypes:
        for layout in ("NHWC", "NCHW"):
            for problem, why in _layers(op, path, dtype, layout):
                found.append(Case(problem, why))
    return tuple(sorted(found, key=lambda case: case.problem.compulsory_bytes()))


def _layers(op: str, path: str, dtype: str, layout: str) -> list[tuple[Problem, str]]:
    def last(activation: str, residual: bool, zero_x: int, zero_y: int) -> dict:
        how = {"layout": layout, "dtype": dtype, "activation": activation, "residual": residual}
        if dtype != "int8":
            return how
        less = {"activation": "none" if activation == "none" else "relu"}
        added = {"zero_r": -11, "m_r": 0.37} if residual else {}
        return how | less | added | {"zero_x": zero_x, "zero_y": zero_y}

    def depthwise(*sizes: int, act: str = "none", res: bool = False, bias: bool = True, zeros=(3, -7)) -> Layer:
        return DepthwiseConv2d(*sizes, bias=bias, **last(act, res, *zeros))

    def pointwise(*sizes: int, act: str = "none", res: bool = False, bias: bool = True, zeros=(-7, 5)) -> Layer:
        return Pointwise(*sizes, bias=bias, **last(act, res, *zeros))

    found: list[tuple[Problem, str]] = []
    if op == "depthwise2d":
        for N, C, H, W, K, stride, padding, bias, act, res, why in _DEPTHWISE:
            found.append((depthwise(N, C, H, W, K, stride, padding, bias=bias, act=act, res=res), why))
    elif op == "pointwise":
        for N, C, F, H, W, bias, act, res, why in _POINTWISE:
            found.append((pointwise(N, C, F, H, W, bias=bias, act=act, res=res), why))
    elif path == "dwpw":
        for N, C, H, W, K, stride, F, between, after, res, why in _PAIRS:
            one = depthwise(N, C, H, W, K, stride, act=between)
            found.append((Fused(one, pointwise(N, C, F, one.P, one.Q, act=after, res=res)), why))
    elif path == "pwdw":
        for N, C, H, W, K, stride, F, between, after, res, why in _PAIRS:
            one = pointwise(N, F, C, H, W, act=between, zeros=(-7, 3))
            found.append((Fused(one, depthwise(N, C, H, W, K, stride, act=after, res=res, zeros=(3, 5))), why))
    else:
        for N, C, F1, F2, H, W, between, after, res, why in _PWPW:
            one = pointwise(N, C, F1, H, W, act=between, zeros=(3, -7))
            found.append((Fused(one, pointwise(N, F1, F2, H, W, act=after, res=res)), why))
    return found


def cases(
    problem: Problem | None = None,
    block: tuple[int, ...] = (),
    path: str = "forward",
    dtype: str = "float32",
) -> tuple[Case, ...]:
    """The problems a kernel is judged on, the smallest first.

    Without a problem: sizes 1, odd and prime; around 32, 64, 96 and 128 in time; around 32, 48, 64 and 96 taps; K > L;
    several blocks in each direction; causal, same and other paddings; lengths around the edges of `block`; and for
    weight_grad a batch through which a block must go more than once. With one: its K and padding on one row, on few
    rows, and on these with fresh inputs; rows beyond 2048 are shortened.
    """
    if problem is not None and not isinstance(problem, DepthwiseConv1d):
        return (Case(problem, "the problem"), Case(problem, "fresh inputs", seed=1))
    if problem is not None:
        few = _cut_down(problem)
        one = replace(few, B=1, H=1)
        chosen = [Case(one, "one row"), Case(few, "the problem" if few == problem else f"{problem}, cut down")]
        return tuple([*chosen[few == one :], Case(few, "fresh inputs", seed=1)])
    if dtype != "float32":
        return tuple(Case(DepthwiseConv1d(*sizes, dtype), why) for *sizes, why in _FAMILY_16)
    chosen = (*_FAMILY, *_FAMILY_OF.get(path, ()))
    family = [Case(DepthwiseConv1d(B, H, L, K, padding), why) for B, H, L, K, padding, why in chosen]
    lengths = {case.problem.L for case in family}
    for edge in dict.fromkeys(size for size in block if 1 < size <= 512):
        for length, why in ((edge - 1, "the block's edge less one"), (edge, "the block's edge"), (edge + 1, "and one")):
            if length not in lengths:
                lengths.add(length)
                why = why if why != "and one" else "the block's edge and one"
                family.append(Case(DepthwiseConv1d(1, 2, length, 5, "same"), f"{why}: {length}"))
    return tuple(family)


def _cut_down(problem: DepthwiseConv1d) -> DepthwiseConv1d:
    """Few rows, and a long row cut so that its end still lies where it lay in its warp, block or tile."""
    step = 768  # a multiple of 32, 48, 64, 96, 128 and 256
    length = problem.L if problem.L <= 2048 else step + problem.L % step
    taps = min(problem.K, 1024)
    padding = problem.padding if isinstance(problem.padding, str) else min(problem.padding, taps - 1)
    return replace(problem, B=min(problem.B, 9), H=min(problem.H, 5), L=length, K=taps, padding=padding)
