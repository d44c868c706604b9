"""Mutations: right kernels with one edit, and what the edit does wrong. The edits are those of mutations.txt.

A class says what must be named: a regular expression for what a finding or a contrast says of it.
"""

from dataclasses import dataclass

import edits

CLASSES = {
    # what is read
    "wrong padding": r"padding|K is not|K > 1|border",
    "padding is not the zero point": r"padding is not the zero point|border wrong",
    "missing guard": r"out of bounds|negative index|beyond the edge|next row|wraps around|tail",
    "border repeated": r"border repeated",
    "wraps around": r"wraps? around",
    "sides exchanged": r"sides exchanged|H is not W|W > H|H > W|not square|transposed",
    "shifted": r"shifted",
    "wrong stride": r"stride",
    "wrong image": r"image|N > 1|B > 1|batch entry|b is right",
    "wrong channel": r"channel|H > 1",
    "wrong pixel": r"wrong pixel|map flipped",
    "wrong layout": r"layout|transposed|N(CHW|HWC)",
    "wrong sign": r"wrong way|sign|reversed|forward pass",
    # the filter
    "filter transposed": r"filter transposed",
    "filter flipped": r"filter flipped|weights reversed",
    "wrong filter": r"wrong filter|one filter for all|out of bounds: line \d+: w[12]?:",
    "operands exchanged": r"exchanged",
    # which terms are summed
    "taps missing": r"taps?( is| are)? (missing|left out|wrong)|K > 1|most taps",
    "times missing": r"times? .*(missing|only|lost|left out)|L > |L is not a multiple",
    "entries missing": r"batch entr|B > |B is not a multiple",
    "channels missing": r"(channel|step).*(missing|only|reset)|C > |C is not a multiple",
    "partial sums lost": r"partial sums lost|first of each|L > 1",
    "sum not reset": r"not reset|constant offset|adds to the output|uninitialised",
    "sum reset": r"reset",
    "wrong factor": r"wrong factor|mean in place of sum",
    "constant offset": r"constant offset",
    "inexact": r"inexact",
    # bias, activation, residual
    "bias left out": r"bias left out|has a bias",
    "bias after the activation": r"bias after the activation",
    "wrong bias": r"(wrong|sign of the|twice).*bias|bias (added twice|not scaled)|constant offset",
    "activation left out": r"activation left out|activation is",
    "wrong activation": r"wrong activation( bound)?|activation is (an? )?(relu|gelu)|activation that is none",
    "residual left out": r"residual left out|has a residual",
    "residual before the activation": r"residual before the activation",
    "wrong residual": r"wrong (sign of the )?residual|residual (added|before|left)|has a residual",
    # int8
    "zero_x": r"zero_x",
    "zero_y": r"zero_y",
    "zero_r": r"zero_r",
    "m_r": r"m_r",
    "wrong m": r"wrong m\b",
    "wrong rounding": r"round",
    "wrong limits": r"limit",
    # who computes what
    "not written": r"not written|nothing written|never written|a grid is rounded up",
    "part of a tile": r"tile|multiple",
    "one size only": r" [<>] \d|beyond the first|not a multiple",
    "race": r"^race|two writers|uninitialised|runs differ",
    "two writers": r"two writers",
    "divergent barrier": r"divergent barrier",
    "uninitialised": r"uninitialised",
}


@dataclass(frozen=True)
class Mutation:
    """One edit of a stage, judged in a storage type."""

    stage: str
    dtype: str
    old: str
    new: str
    kind: str
    module: str = ""

    @property
    def op(self):
        """The operator: of depthwise1d and of fused layers with the path."""
        op, path, _ = self.stage.split("/")
        return f"{op}/{path}" if op in ("depthwise1d", "fused") else op

    def __str__(self):
        return f"{self.stage}-{self.dtype}-{self.kind}".replace(" ", "_")


NAMED = {
    "DW": "depthwise2d/forward/naive", "PW": "pointwise/forward/naive", "DWPW": "fused/dwpw/naive",
    "PWDW": "fused/pwdw/map", "PWPW": "fused/pwpw/naive",
}  # fmt: skip
NAMED["LAYERS"] = " ".join(NAMED.values())
SETS = {"FIRST": [], "SECOND": [], "THIRD": [], "FOURTH": [], "FIFTH": []}
for _set, (_stages, _dtypes, _kind, *_module), (_edit,) in edits.rows("mutations.txt"):
    _old, _, _new = _edit.partition(" => ")
    SETS[_set] += [
        Mutation(stage, dtype, _old, _new, _kind, *_module)
        for one in _stages.split()
        for stage in NAMED.get(one, one).split()
        for dtype in _dtypes.split()
    ]
