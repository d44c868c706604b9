# ruff: noqa: F401 (what follows is the face)
"""What an X-ray shows: pictures of accesses, pages, differences, advice; and what other drawings are made of.

    from dwlab.simt.views import counts, describe, picture

Nothing below imports it: the interpreter runs and counts without. matplotlib is loaded where a figure is drawn only.
"""

from dwlab.simt.views.advice import Advice, advice
from dwlab.simt.views.diff import Change, Difference, diff
from dwlab.simt.views.drawing import (
    BLUE,
    INKS,
    ORANGE,
    WARPS,
    WIDE,
    Drawing,
    Table,
    arrow,
    box,
    dims,
    label,
    line,
    write,
)
from dwlab.simt.views.page import html_of, save, svg
from dwlab.simt.views.picture import (
    BANKS,
    COLOURS,
    HATCHES,
    ITEMSIZES,
    LANES,
    LINES,
    SECTOR,
    WORD,
    AccessPattern,
    Counts,
    as_img,
    as_png,
    bank_words,
    beside,
    counts,
    describe,
    encode,
    headline,
    picture,
    with_alt,
)
