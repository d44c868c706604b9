"""Where the time of a program with kernels goes: a time line and a table, from events and the host's clock."""
