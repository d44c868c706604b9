"""Which GPU: a real one or the laptop's, what each GPU and each compute capability has, and how many blocks fit."""
