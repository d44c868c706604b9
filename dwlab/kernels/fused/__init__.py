"""Two layers in one kernel: one file per stage."""
