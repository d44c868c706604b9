"""Which GPU: a real one or the laptop's, the data of each GPU and each compute capability, and how many blocks fit."""
