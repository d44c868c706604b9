"""Whether a kernel is right, and if not, why: the check, its diagnoses, and the graders of exercises."""
