"""Parts of kernels: instructions, vectors, unrolled calls, epilogues.

These modules, and those of INTERFACES, are what a reader of a stage need not open: docs/parts.md has what each offers,
signature and meaning, and a test counts a stage's text to there.
"""

INTERFACES = (
    "depthwise1d/straight_line", "depthwise1d/strip_products", "depthwise2d/columns", "fused/filters", "fused/outputs",
    "fused/pwdw_depthwise", "fused/pwdw_tiles", "fused/row_loads", "fused/slide_tiles",
    "fused/sliding",
)  # fmt: skip
"""Parts of one operator's kernels that are interfaces as those of this folder are."""
