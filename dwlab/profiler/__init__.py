"""Profiles: where the time of a program with kernels goes, by events and the host's clock; a time line and a table."""
