"""What the numbers of a kernel say of its time: the roofline and the time model."""
