"""The operators: their stages, one file each, and how a stage is registered, started, counted and chosen."""
