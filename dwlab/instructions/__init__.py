"""Instructions that Numba has no name for: what each does in all lanes of a launch, for the interpreter."""
