"""Rows of records: joined for lessons and docs, listed by ``python -m dwlab records``, and a run's own report."""

from dwlab.report.evidence import PUBLISHED, THREE
from dwlab.report.lessons import (
    counts_table,
    floors_table,
    floors_us,
    layers_text,
    memory_order,
    over_floors_table,
    work_table,
)
from dwlab.report.rows import (
    VALIDATED,
    Brought,
    Parts,
    brought_to_networks,
    brought_to_pairs,
    fastest_sparse,
    layer_text,
    layers,
    layers_of,
    networks,
    parts_of_networks,
)
from dwlab.report.written import newest, roof_of, roofline_figure, rows_at, write

__all__ = [
    "PUBLISHED", "THREE", "VALIDATED", "Brought", "Parts", "brought_to_networks", "brought_to_pairs", "counts_table",
    "fastest_sparse", "floors_table", "floors_us", "layer_text", "layers", "layers_of", "layers_text", "memory_order",
    "networks", "newest", "over_floors_table", "parts_of_networks", "roof_of", "roofline_figure", "rows_at",
    "work_table", "write",
]  # fmt: skip
