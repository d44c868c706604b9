"""A kernel's time from its numbers: the roofline and the time model."""
