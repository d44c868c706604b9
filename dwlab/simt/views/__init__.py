# ruff: noqa: F401 (what follows is the face)
"""Views of an X-ray: pictures of accesses, pages, differences, advice.

    from dwlab.simt.views import counts, describe, picture

Nothing below imports it: the interpreter runs and counts without. matplotlib is loaded where a figure is drawn only.
"""

from dwlab.simt.views.advice import Advice, advice
from dwlab.simt.views.diff import Change, Difference, diff
from dwlab.simt.views.page import html_of, save
from dwlab.simt.views.picture import (
    BANKS,
    ITEMSIZES,
    LANES,
    SECTOR,
    WORD,
    AccessPattern,
    Counts,
    bank_words,
    counts,
    describe,
    headline,
    picture,
    side_by_side,
)
from dwlab.text.drawing import COLOURS, LINES, with_alt
