"""Time, counters and energy of what runs on a GPU, and the baselines of libraries beside it."""
