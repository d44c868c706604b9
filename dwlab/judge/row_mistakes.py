"""The tables of what kernels of the one-dimensional convolution do wrong, as dwlab.judge.mistakes has those of layers.

The forward pass and the gradient of x are sums over taps, of a row `x` (or dy) and a filter `w`, which is reversed for
the gradient; the gradient of w is a sum over times and batch entries of `dy` and `x`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dwlab.judge.mistakes import NUMPY, ORDINALS, Mistake, below, carried, rests, rows_of, run, steps
from dwlab.problems import DepthwiseConv1d

TAP_SUMS = """
rows = zeros_beside(x)
y = over_taps(rows, w, shift)
"""
TIME_SUMS = """
rows = zeros_beside(x)
y = over_times(dy, rows, shift)
"""

_INDEX = "the time index: is it that of {right}, and does a staged window begin where it is expected to?"
_ROW = "h = row % H and b = row // H"
_ENDS = "the test of the time index: 0 and L-1 are inside the row, so s >= 0 and s < L"
_RESET = "set the sum to 0 for each output, inside the loop over outputs"
_SIGN = "is a number compared, or its sign dropped, on the way to the output?"
_STORE = "the index of the store"

WINDOWS = (
    ("", "which way does time go as j goes up? The sign of j in the time index", (
        ("weights reversed", "w = w[:, ::-1]",
         "the filter is applied the other way round, w[K-1-j] where w[j] belongs to {right}"),
        ("time runs the wrong way", "w = w[:, ::-1]; shift = other_way",
         "each output uses {wrong} where it should use {right}"))),
    ("backward",
     "in the gradient time runs the other way: y[t] took x[t + shift - j], so dx[s] takes dy[s - shift + j]", (
        ("forward pass computed", "w = w[:, ::-1]; shift = own",
         "the output is the forward pass of dy: dy[s + shift - j] is used where {right} belongs"),)),
    ("", "the factor of j in the time index", (
        ("dilated taps", "w = dilated(w); shift = ahead", "the taps have a dilation of 2: {right} is right"),)),
    ("", "which j goes with which time? Both must start together", (
        ("shifted by one", "w = moved(w, at, 0)", "each product has the tap {n} the one that belongs to its {name}",
         "(('before', 1), ('behind', -1))"),)),
)  # fmt: skip
"""Mistakes about which tap meets which time."""

SHIFTS = (
    ("own", "the sign of shift in the time index", (
        ("wrong sign of shift", "shift = to(-own)",
         "shift enters the time index with the wrong sign; {right} is right"),)),
    ("", _INDEX, (
        ("shifted by one", "shift = to(own + at)", "every {what} lies 1 too far to the {n}",
         "(('right', step), ('left', -step))"),
        ("shifted", "shift = to(own + 2 * at)", "every {what} lies 2 too far to the {n}",
         "(('right', step), ('left', -step))"))),
    ("", "where does shift enter the time index?", (
        ("wrong padding", "shift = to(at)", "the output is that of another padding {n} where it should be {own}",
         "[(f'({name}): shift {n}', n) for n, name in ((0, 'causal'), (K - 1 - (K - 1) // 2, 'same'), "
         "(K - 1 - K // 2, 'same'), (K - 1, 'no zeros left')) if n != own]"),)),
)  # fmt: skip

BESIDE = (
    ("", "test the time index on both sides before it is used: a negative index counts from the end", (
        ("row wraps around", "rows = beside(x, 'wrap', 'wrap')",
         "times outside a row are taken from its other end: {name}[b, h, -1] is the last element"),
        ("row wraps around", "rows = beside(x, 'wrap', '')",
         "negative times are taken from the row's end: {name}[b, h, -1] is the last element"))),
    ("", "outside the row counts as zero: leave the product out, do not clamp the index", (
        ("border repeated", "rows = beside(x, *at)", "times {n} a row are taken from its border element",
         "(('outside', ('edge', 'edge')), ('before', ('edge', '')), ('behind', ('', 'edge')))"),)),
    ("", _ENDS, (
        ("first time missing", "x = where(t >= {n}, x, 0)", "{name} of the first times, {n} of them, is left out",
         "(1, 2)"),
        ("last time missing", "x = where(t < L - {n}, x, 0)", "{name} of the last times, {n} of them, is left out",
         "(1, 2)"),
        ("first and last time missing", "x = where((t > 0) & (t < L - 1), x, 0)",
         "both ends of the rows of {name} are left out"))),
    ("", "test the time index against 0 and L before it is added to the row's start", (
        ("reads the next row", "rows = neighbours(x, {n})",
         "times outside a row are taken from the row before or after it in memory", "('nan', '0.0')"),)),
)  # fmt: skip
"""Mistakes about what stands beside a row."""

TAPS = (
    ("", "the ends and the step of the loop over taps", (
        ("last tap missing", "w = where(j < K - 1, w, 0)", "tap K-1 is left out"),
        ("first tap missing", "w = where(j > 0, w, 0)", "tap 0 is left out"),
        ("most taps missing", "w = where(j % at == 0, w, 0)", "only every {n} tap is summed",
         "[(ORDINALS[n], n) for n in (2, 3, 4) if n <= K]"))),
    ("", "acc += …, not acc = …, and acc = 0 before the loop over taps", (
        ("sum reset at each tap", "y = over_taps(rows, w, shift, last=True)",
         "an output holds its last product alone: each one takes the place of the sum before it"),)),
    ("", "the loop over chunks of taps: who does the rest, does it run to K, and is the sum set to 0 before it?", (
        ("last taps missing", "w = where(j < K - at, w, 0)",
         "the last K % {n} taps are left out, of a loop in steps of {n}",
         "[one for one in rests(K, *chunks) if one[0] < K]"),
        ("first chunk only", "w = where(j < {n}, w, 0)", "only the first {n} of {K} taps are summed",
         "below(K, *chunks)"),
        ("sum reset at each chunk", "w = where(j >= (K - 1) // {n} * {n}, w, 0)",
         "only the last chunk of taps, of chunks of {n}, is in the output", "below(K, *chunks)"))),
    ("H > 1", "the first index of w: h = row % H", (
        ("one filter for all channels", "w = w[0 * h]", "every channel uses the filter of channel 0"),
        ("wrong filter", "w = w[at % H].reshape(B, H, K)", "row b*H + h uses the filter of channel {n}",
         "(('row // H', row // H), ('row // B', row // B), ('row % B', row % B))"))),
    ("", _ROW, (
        ("one channel for all", "x = x[:, 0 * h]", "every channel is computed from channel 0 of {name}",
         "[''] if H > 1 else []"),
        ("batch and channel exchanged", "x = x.reshape(H, B, L).transpose(1, 0, 2)",
         "row h*B + b of {name} is taken where row b*H + h belongs", "[''] if B > 1 and H > 1 else []"),
        ("batch and channel exchanged", "x = x[row % B, row // B].reshape(x.shape)",
         "row b*H + h is computed from {name}[row % B, row // B]", "[''] if B > 1 and H > 1 else []"),
        ("one batch entry for all", "x = x[0 * b]", "every batch entry is computed from {name}[0]",
         "[''] if B > 1 else []"))),
    ("", _SIGN, (
        ("signs lost", "x = abs(x)", "{name} is taken with magnitudes"),
        ("signs lost", "x = maximum(x, 0)", "{name} is taken with negative numbers as 0"),
        ("signs lost", "w = abs(w)", "w is taken with magnitudes"),
        ("signs lost", "w = maximum(w, 0)", "w is taken with negative numbers as 0"))),
)  # fmt: skip
"""Mistakes about which taps are summed, and of whose filter and row."""

TERMS = (
    ("B > 1", "the loop over batch entries: its ends and its step, and the sum set to 0 once, before it", (
        ("one batch entry only", "dy = where(b3 < 1, dy, 0)", "only batch entry 0 is summed"),
        ("sum reset at each batch entry", "dy = where(b3 == B - 1, dy, 0)", "only the last batch entry is in dw"),
        ("last batch entry missing", "dy = where(b3 < B - 1, dy, 0)", "entry B-1 is left out"),
        ("first batch entry missing", "dy = where(b3 > 0, dy, 0)", "batch entry 0 is left out"),
        ("most batch entries missing", "dy = where(b3 % at == 0, dy, 0)", "only every {n} batch entry is summed",
         "[(ORDINALS[n], n) for n in (2, 3, 4)]"),
        ("first batch entries only", "dy = where(b3 < {n}, dy, 0)",
         "only the first {n} of {B} batch entries are summed", "below(B, *entries)"),
        ("last batch entries missing", "dy = where(b3 < B - at, dy, 0)",
         "the last B % {n} batch entries are left out", "rests(B, *entries)"))),
    ("L > 1", "the loop over times: its ends and its step", (
        ("first time missing", "dy = where(t >= {n}, dy, 0)", "dy of the first times, {n} of them, is left out",
         "(1, 2)"),
        ("last time missing", "dy = where(t < L - {n}, dy, 0)", "dy of the last times, {n} of them, is left out",
         "(1, 2)"),
        ("first and last time missing", "dy = where((t > 0) & (t < L - 1), dy, 0)",
         "both ends of the rows of dy are left out"),
        ("most times missing", "dy = where(t % at == 0, dy, 0)", "only every {n} time is summed",
         "[(ORDINALS[n], n) for n in (2, 3, 4) if n < L]"),
        ("last times missing", "dy = where(t < L - at, dy, 0)", "the last L % {n} times are left out",
         "rests(L, *tiles, 64, 24, 12, 8, 6, 5, 4, 3, 2)"),
        ("first tile of times only", "dy = where(t < {n}, dy, 0)", "only the first {n} of {L} times are summed",
         "below(L, *tiles, 64, 24)"),
        ("sum reset at each tile", "dy = where(t >= (L - 1) // {n} * {n}, dy, 0)",
         "only the last tile of times, of tiles of {n}, is in dw", "below(L, *tiles, 64, 24)"))),
    ("L > 1", "the shuffles that add the lanes: is there one for each of 16, 8, 4, 2, 1? {n} is missing", (
        ("partial sums lost", "dy = where(t & {n} == 0, dy, 0)",
         "only lanes without {n} in their number are summed: times t with t & {n} = 0", "below(L, 16, 8, 4, 2, 1)"),)),
    ("L > 1", "the threads' partial sums must be added before one of them stores", (
        ("partial sums lost", "dy = where(t % {n} == 0, dy, 0)",
         "only the first of each {n} times is summed, as if one thread of {n} stored its own sum",
         "dict.fromkeys((*tiles, 64, 24))"),)),
    ("", "sum, not mean", (
        ("mean in place of sum", "dy = dy / at", "dw is divided by {n}, the number of terms",
         "(('B', B), ('B*L', B * L))"),)),
    ("", "the kernel's arguments are dy, x, dw in this order", (
        ("dy and x exchanged", "y = over_times(x, zeros_beside(dy), shift)",
         "the products are x[t] * dy[t + shift - j]"),
        ("wrong operand", "{n}", "one of dy and x is read in place of both", "('x = dy', 'dy = x')"))),
    ("", "acc += …, not acc = …, and acc = 0 once, before the loops", (
        ("sum reset at each product", "y = over_times(dy[at], rows[at], shift, last=True)",
         "an output holds {n} alone: each one takes the place of the sum before it",
         "(('its last product', slice(-1, None)), ('the last product of each batch entry', slice(None)))"),)),
    ("H > 1", "the second index of dy and of x", (
        ("one channel for all", "{n}", "every channel is computed from channel 0",
         "('dy = dy[:, 0 * h]; x = x[:, 0 * h]', 'x = x[:, 0 * h]', 'dy = dy[:, 0 * h]')"),)),
    ("H > 1 and B > 1", _ROW, (
        ("batch and channel exchanged",
         "dy = dy.reshape(H, B, L).transpose(1, 0, 2); x = x.reshape(H, B, L).transpose(1, 0, 2)",
         "row h*B + b is taken where row b*H + h belongs"),)),
    ("", _SIGN, (("signs lost", "{n}", "dy or x is taken with magnitudes, or with negative numbers as 0",
                  "('x = abs(x)', 'dy = abs(dy)', 'x = maximum(x, 0)', 'dy = maximum(dy, 0)')"),)),
)  # fmt: skip
"""Mistakes in the gradient of w: what is summed, which x goes with which dy, whose sum it is."""

DONE = (
    ("", "is each product added once, with its sign, to the sum that is stored?", (
        ("all zero", "y = 0 * y", "every output is 0"),
        ("wrong factor", "y = at * y", "every output is {n} what it should be",
         "(('twice', 2.0), ('the negative of', -1.0), ('half', 0.5))"))),
)  # fmt: skip
"""Mistakes in what is stored, of any problem."""

STORED = (
    ("", _STORE, (
        ("stored shifted", "y = moved(y, at)", "every {stored} {n}", "stored_off"),
        ("stored shifted", "y = roll(y, at, -1)", "every {stored} {n}, round the end", "stored_off"))),
    ("weights", _STORE, (
        ("weights reversed", "y = y[:, ::-1]", "tap j has the sum of tap K-1-j: which tap does a thread own?"),
        ("time runs the wrong way", "y = over_times(dy, zeros_beside(x), shift + K - 1)[:, ::-1]",
         "each product uses x[t + shift + j] where it should use {right}"))),
    ("", _RESET, (
        ("accumulator not reset", "y = kept(y, {n})", "each tile of {n} outputs has the sums before it added",
         "below(L, *dict.fromkeys((*tiles, *range(1, 12)))) if not weights else []"),
        ("accumulator not reset", "y = cumsum(y, at)", "each {n} has the sums of the {n} before it added", "axes"),
        ("accumulator not reset", "y = carried(y, at)",
         "a thread's outputs, at a stride of {n}, have the sums of those before them added", "strides"))),
    ("", _SIGN, (
        ("activation that is none", "y = maximum(y, 0)", "negative outputs are 0, as by a relu"),
        ("activation that is none", "y = minimum(y, 0)", "positive outputs are 0"),
        ("signs lost", "y = abs(y)", "every output is the magnitude of what it should be"))),
)  # fmt: skip
"""And of rows alone."""


def done(want: np.ndarray) -> Iterator[Mistake]:
    """Mistakes in what is stored, of any problem."""
    for row in rows_of(DONE, {}):
        yield Mistake(row.pattern, run("y = y", row.lines, NUMPY | {"y": want}, at=row.at), row.text, row.look)


def mistakes(
    problem: DepthwiseConv1d, path: str, inputs: dict[str, np.ndarray], want: np.ndarray, wrong: np.ndarray,
    tiles: Sequence[int],
) -> Iterator[Mistake]:  # fmt: skip
    """The mistakes that a kernel of a path with one output can have. wrong: mask of the wrong outputs; tiles: sizes of
    tiles that may be meant."""
    B, H, L, K, own = problem.B, problem.H, problem.L, problem.K, problem.shift
    given = {name: np.asarray(array, np.float64) for name, array in inputs.items()}
    backward, weights = path == "input_grad", path == "weight_grad"
    margin = 2 * K + 2  # times beside a row that any of these reads
    time = np.arange(-margin, L + margin)

    def beside(x: np.ndarray, before: str, behind: str) -> np.ndarray:
        at = {"": 0 * time, "wrap": time % L, "edge": np.clip(time, 0, L - 1)}
        inside = np.clip(time, 0, L - 1)
        rows = np.where(time < 0, at[before], np.where(time >= L, at[behind], inside))
        there = ((time >= 0) | (before != "")) & ((time < L) | (behind != ""))
        return np.where(there, x[:, :, rows], 0.0)

    def neighbours(x: np.ndarray, fill: float) -> np.ndarray:
        flat = np.concatenate([np.full(margin, fill), x.ravel(), np.full(margin, fill)])
        return flat[(np.arange(B * H)[:, None] * L + time + margin)].reshape(B, H, -1)

    def over_taps(rows: np.ndarray, w: np.ndarray, shift: int, last: bool = False) -> np.ndarray:
        y, taps = np.zeros((B, H, L)), range(w.shape[-1])
        for j in reversed(taps) if backward else taps:
            product = w[..., j, None] * rows[:, :, margin + shift - j : margin + shift - j + L]
            at = np.arange(L) + shift - j
            y = np.where((at >= 0) & (at < L), product, y) if last else y + product
        return y

    def over_times(dy: np.ndarray, rows: np.ndarray, shift: int, last: bool = False) -> np.ndarray:
        dw = np.zeros((H, K))
        for j in range(K):
            end = min(L, L - shift + j)  # of the times whose x lies in the row
            first = max(0, end - 1) if last else 0
            times = slice(first, max(end, first) if last else L)
            x = rows[:, :, margin + shift - j + times.start : margin + shift - j + times.stop]
            dw[:, j] = np.einsum("bht,bht->h", dy[:, :, times], x)
        return dw

    def moved(array: np.ndarray, off: int, fill: float = np.nan) -> np.ndarray:
        made = np.full_like(array, fill)
        if abs(off) < array.shape[-1]:
            end = array.shape[-1]
            made[..., max(off, 0) : end + min(off, 0)] = array[..., max(-off, 0) : end - max(off, 0)]
        return made

    def dilated(w: np.ndarray) -> np.ndarray:
        made = np.zeros((len(w), 2 * K - 1))
        made[:, ::2] = w
        return made

    def kept(y: np.ndarray, tile: int) -> np.ndarray:
        made = y.copy()
        for t in range(tile, L):
            made[..., t] += made[..., t - tile]
        return made

    shift = K - 1 - own if backward else own
    sides = [(f"{abs(off)} too far to the {'right' if off > 0 else 'left'}", off) for off in (1, -1, 2, -2)]
    names = NUMPY | {
        "B": B, "H": H, "L": L, "K": K, "own": own, "shift": shift, "step": -1 if backward else 1, "y": want,
        "to": lambda other: K - 1 - other if backward else other, "backward": backward, "weights": weights,
        "other_way": shift - (K - 1) if backward else shift + K - 1, "ahead": shift + K - 1 if backward else shift,
        "x": given["dy" if backward else "x"], "dy": given.get("dy"), "w": given.get("w"), "row": np.arange(B * H),
        "b": np.arange(B), "b3": np.arange(B)[:, None, None], "h": np.arange(H), "t": np.arange(L),
        "j": np.arange(K)[::-1] if backward else np.arange(K), "name": "dy" if backward else "x",
        "right": "dy[s - shift + j]" if backward else "x[t + shift - j]",
        "wrong": "dy[s - shift - j]" if backward else "x[t + shift + j]", "what": "x" if weights else "window",
        "stored": "sum is stored, in taps," if weights else "output is stored", "stored_off": sides,
        "axes": (("j", 1), ("h", 0)) if weights else (("b", 0), ("h", 1)), "strides": steps(wrong), "tiles": tiles,
        "chunks": tuple(dict.fromkeys((*tiles, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2))),
        "entries": tuple(dict.fromkeys((*tiles, 64, 256, 512, 1024, 2048, 12, 8, 6, 5, 4, 3, 2))),
        "zeros_beside": lambda x: beside(x, "", ""), "beside": beside, "neighbours": neighbours, "below": below,
        "rests": rests, "over_taps": over_taps, "over_times": over_times, "dilated": dilated, "kept": kept,
        "moved": moved, "carried": carried, "ORDINALS": ORDINALS,
    }  # fmt: skip
    if backward:
        names["w"] = names["w"][:, ::-1]
    tables = (TERMS, SHIFTS, BESIDE) if weights else (WINDOWS, SHIFTS, BESIDE, TAPS)
    for table in (*tables, STORED):
        reference = "y = y" if table is STORED else TIME_SUMS if weights else TAP_SUMS
        for row in rows_of(table, names):
            yield Mistake(row.pattern, run(reference, row.lines, names, at=row.at), row.text, row.look)
