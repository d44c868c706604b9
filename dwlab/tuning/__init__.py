"""Autotuning: the fastest candidate of a space, found by a model's order and a race, kept in a journal, replayed."""
