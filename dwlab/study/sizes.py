"""Problems of other sizes: with less memory, and with few enough outputs to be interpreted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dwlab import problems
from dwlab.problems import DepthwiseConv1d, Problem
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.study.result import StudyError

COUNTED_OUTPUTS = 4096  # outputs of the problem that the interpreter counts, at most
COUNTED_PRODUCTS = 1 << 18  # multiplications of counted layers, about
COUNTED_TAPS = 4096  # taps of it, at most


class OutOfMemory(StudyError):
    """The GPU's memory is too small for the problem; the message says how much is needed and what would fit."""


def memory_needed(problem: Problem, path: str, sets: int = 1) -> int:
    """Bytes of GPU memory that timing takes: the arrays, once for each set of buffers."""
    return sets * problem.compulsory_bytes(path)


def check_memory(problem: Problem, path: str, sets: int, free: int) -> None:
    """Raises OutOfMemory if the arrays do not fit into 95 % of the free bytes."""
    if memory_needed(problem, path, sets) > 0.95 * free:
        raise OutOfMemory(memory_message(problem, path, sets, free))


def memory_message(problem: Problem, path: str, sets: int, free: int) -> str:
    """How much is needed, how much is free, and a smaller shape that fits."""
    names = ", ".join(problem.arrays(path))
    need = f"{problem} needs {memory_needed(problem, path, sets) / 1e6:,.1f} MB of GPU memory for {names}"
    fits = smaller(problem, path, free)
    if fits is None:
        return f"{need}; {free / 1e6:,.1f} MB are free, too little for any shape: close what else uses the GPU"
    return (
        f"{need}; {free / 1e6:,.1f} MB are free. "
        f'This fits: --problem "{fits}" ({memory_needed(fits, path) / 1e6:,.1f} MB)'
    )


def smaller(problem: Problem, path: str, free: int) -> Problem | None:
    """The problem with B, then H, then L halved until it takes at most half of the free bytes; None if none does.

    Of layers N, then height and width, then channels are halved.
    """
    for size in ("B", "H", "L") if isinstance(problem, DepthwiseConv1d) else SIZES:
        while memory_needed(problem, path) > 0.5 * free and (less := halved(problem, size)) is not None:
            problem = less
    return problem if memory_needed(problem, path) <= 0.5 * free else None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of numba.cuda or PyTorch says that the GPU's memory is used up."""
    return "OUT_OF_MEMORY" in str(error).upper() or "OUTOFMEMORY" in type(error).__name__.upper()


SIZES = ("N", "map", "C", "between", "out")
"""The sizes of a layer that ``halved`` halves: images, x's height and width, channels of x, between and of y."""


def halved(problem: Problem, size: str) -> Problem | None:
    """The problem with one of its sizes, of layers SIZES, halved; None where it is 1, belongs to another, or leaves no
    output.
    """
    if isinstance(problem, DepthwiseConv1d):
        now = getattr(problem, size)
        return replace(problem, **{size: now // 2}) if now > 1 else None
    first, last = (problem.first, problem.second) if isinstance(problem, Fused) else (problem, problem)
    if size == "map":
        if max(first.H, first.W) == 1:
            return None
        less = {"H": (first.H + 1) // 2, "W": (first.W + 1) // 2}
    else:
        now = {"N": first.N, "C": first.C, "between": first.channels_out, "out": last.channels_out}[size]
        # A depthwise layer's channels have one name; of one layer nothing is between.
        single = not isinstance(problem, Fused)
        same = isinstance(last if single or size == "out" else first, DepthwiseConv2d)
        other = size == "between" and (single or same or isinstance(last, DepthwiseConv2d))
        if now == 1 or other or (size == "out" and single and same):
            return None
        less = {size: now // 2}
    try:
        return resized(problem, **less)
    except problems.ProblemError:  # maps smaller than the filter
        return None


def resized(problem: Problem, **sizes: int) -> Problem:
    """The layer or layers with other sizes: N, H, W and C of x, channels between two layers, channels out.

    What they do is the same. Raises ProblemError for sizes that no layer can have.
    """
    if not isinstance(problem, Fused):
        out = sizes.pop("out", None)
        sizes.pop("between", None)
        if out is not None:
            sizes["F" if isinstance(problem, Pointwise) else "C"] = out
        return replace(problem, **sizes)
    out = sizes.pop("out", None)
    between = sizes.pop("between", None)
    if isinstance(problem.second, DepthwiseConv2d) and out is not None:
        between = out
    first = resized(problem.first, **sizes, **({} if between is None else {"out": between}))
    follows = {"N": first.N, "H": first.P, "W": first.Q, "C": first.channels_out}
    if isinstance(problem.second, Pointwise) and out is not None:
        follows["out"] = out
    return Fused(first, resized(problem.second, **follows))


def counted_problem(
    problem: Problem, outputs: int = COUNTED_OUTPUTS, supports: Callable[[Problem], bool] = lambda problem: True
) -> Problem:
    """The problem with few enough rows to be interpreted: same L, K and padding where a row fits into ``outputs``.

    Of layers fewer images, then smaller maps and fewer channels in turn, as long as ``supports`` says yes to them.
    """
    if not isinstance(problem, DepthwiseConv1d):
        return _counted_layers(problem, outputs, supports)
    L = min(problem.L, outputs)
    H = min(problem.H, 16, max(1, outputs // L))
    B = min(problem.B, 4, max(1, outputs // (H * L)))
    K = min(problem.K, COUNTED_TAPS)
    padding = problem.padding if isinstance(problem.padding, str) else min(problem.padding, K - 1)
    return replace(problem, B=B, H=H, L=L, K=K, padding=padding)


def _counted_layers(problem: Problem, outputs: int, supports: Callable[[Problem], bool]) -> Problem:
    def few(one: Problem) -> bool:
        both = (one.first, one.second) if isinstance(one, Fused) else (one,)
        made = [layer.N * layer.P * layer.Q * layer.channels_out for layer in both]
        products = sum(
            n * (layer.C if isinstance(layer, Pointwise) else layer.K**2) for n, layer in zip(made, both, strict=True)
        )
        return max(made) <= outputs and products <= COUNTED_PRODUCTS

    halves = ["N"]
    while halves and not few(problem):
        for size in tuple(halves):
            less = halved(problem, size)
            if less is None or not supports(less):
                halves.remove(size)
                # Images are all alike: only one of them is left before anything else gets smaller.
                halves += SIZES[1:] if size == "N" else ()
            elif not few(problem):
                problem = less
    return problem
