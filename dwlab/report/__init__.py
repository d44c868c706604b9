"""Tables and figures from records: a file a page of docs/results/.

Each table is a plain function of runs, whose columns are `records.tabular.Col`s. ``tables()`` names all of them,
``fill(text)`` renews those between ``<!-- begin:NAME -->`` and ``<!-- end:NAME -->`` in a Markdown file, ``write`` puts
a run's own report beside its record as Markdown and PNG.
"""

from dwlab.report.counters import asked_bytes, counters_summary, l2_bytes, layer_counters, traffic_table
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
    TRIES,
    ceilings_table,
    comparisons_table,
    copies_table,
    sanitizer_rows,
    sanitizer_table,
    tries_table,
)
from dwlab.report.model import compared, compared_networks
from dwlab.report.network import EMPTY, energy_tries_table, networks, networks_summary
from dwlab.report.pages import fill, tables
from dwlab.report.paper import PUBLISHED, THREE, bandwidth_table, newest, roof_of, totals, totals_table
from dwlab.report.planner import chosen_summary, judged_summary, judgements
from dwlab.report.shared import JUDGED
from dwlab.report.stages import grid_summary, shapes_table, table
from dwlab.report.written import alt_text, markdown, roofline_figure, write

__all__ = [
    "EMPTY", "JUDGED", "PUBLISHED", "THREE", "TRIES", "Brought", "alt_text", "asked_bytes", "bandwidth_table",
    "brought_in_networks", "brought_to_networks", "brought_to_pairs", "ceilings_table", "chosen_summary", "compared",
    "compared_networks", "comparisons_table", "copies_table", "counters_summary",
    "energy_tries_table", "epoch_table", "fill", "fusion_networks", "fusion_pairs", "grid_summary",
    "headline", "judged_summary", "judgements", "l2_bytes", "layer_counters", "layer_text", "layers", "layers_of",
    "layers_summary", "layers_text", "losses", "markdown", "networks", "networks_summary", "newest",
    "roof_of", "roofline_figure", "sanitizer_rows", "sanitizer_table", "shapes_table", "table",
    "tables", "totals", "totals_table", "traffic_table", "tries_table", "write",
]  # fmt: skip
