"""Whether this machine can run the lessons."""
