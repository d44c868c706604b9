"""What kernels are made of: instructions, vectors, unrolled calls, epilogues."""
