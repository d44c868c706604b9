"""Tables and figures from records: a file a page of docs/results/.

Each table is a plain function of runs, whose columns are `text.tabular.Col`s. ``tables()`` names all of them,
``fill(text)`` renews those between ``<!-- begin:NAME -->`` and ``<!-- end:NAME -->`` in a Markdown file, ``write`` puts
a run's own report beside its record as Markdown and PNG.
"""

from dwlab.report.counters import counters_summary, l2_bytes, layer_counters, requested_bytes, traffic_table
from dwlab.report.epoch import epoch_table
from dwlab.report.fusion import (
    Brought,
    brought_in_networks,
    brought_to_networks,
    brought_to_pairs,
    fusion_networks,
    fusion_pairs,
    headline,
    losses,
)
from dwlab.report.layer import layer_text, layers, layers_of, layers_summary, layers_text
from dwlab.report.machine import (
    ABLATIONS,
    ablations_table,
    ceilings_table,
    comparisons_table,
    copies_table,
    sanitizer_rows,
    sanitizer_table,
)
from dwlab.report.model import compared, compared_networks
from dwlab.report.network import EMPTY, Parts, energy_ablations_table, networks, networks_summary, parts_of_networks
from dwlab.report.pages import fill, tables
from dwlab.report.paper import PUBLISHED, THREE, bandwidth_table, newest, roof_of, totals, totals_table
from dwlab.report.planner import chosen_summary, validated_summary, validations
from dwlab.report.roof import (
    as_large_table,
    best_of_ablations,
    counts_table,
    floors_table,
    floors_us,
    grid_table,
    memory_order,
    over_floors_table,
    small_copies_table,
)
from dwlab.report.shared import VALIDATED
from dwlab.report.sparse import fastest_sparse, sparse_bounds, sparse_summary, sparse_table
from dwlab.report.stages import grid_summary, shapes_table, table
from dwlab.report.written import alt_text, markdown, roofline_figure, write
from dwlab.report.xrays import work_table

__all__ = [
    "ABLATIONS", "EMPTY", "PUBLISHED", "THREE", "VALIDATED", "Brought", "Parts", "ablations_table", "alt_text",
    "as_large_table", "bandwidth_table", "best_of_ablations", "brought_in_networks", "brought_to_networks",
    "brought_to_pairs", "ceilings_table", "chosen_summary", "compared", "compared_networks", "comparisons_table",
    "copies_table", "counters_summary", "counts_table", "energy_ablations_table", "epoch_table", "fastest_sparse",
    "fill", "floors_table", "floors_us", "fusion_networks", "fusion_pairs", "grid_summary", "grid_table",
    "headline", "l2_bytes", "layer_counters", "layer_text", "layers", "layers_of", "layers_summary", "layers_text",
    "losses", "markdown", "memory_order", "networks", "networks_summary", "newest", "over_floors_table",
    "parts_of_networks", "requested_bytes", "roof_of", "roofline_figure", "sanitizer_rows", "sanitizer_table",
    "shapes_table", "small_copies_table", "sparse_bounds", "sparse_summary", "sparse_table", "table", "tables",
    "totals", "totals_table", "traffic_table", "validated_summary", "validations", "work_table", "write",
]  # fmt: skip
