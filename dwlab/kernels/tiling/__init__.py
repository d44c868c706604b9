"""Tiles: which a stage may have, and which it gets for a problem and a GPU."""
