"""Random lines of float32 arrays and literals, for which the compiler was asked whether float64 is left in them."""

import random

LITERALS = tuple("0 1 2 3 0.0 1.0 0.5 2.0 0.1 2.1 1e-3 float32(0.1) float32(2) int32(3)".split())
FUNCTIONS = ("abs", "math.sqrt", "math.exp", "math.floor", "math.fabs", "float32", "float", "int", "float64")


def expression(rng: random.Random, depth: int) -> str:
    """An expression of x[i], x[i + 1], the int64 n, the float32 f and literals."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(("x[i]", "x[i]", "x[i + 1]", "f", rng.choice(LITERALS), rng.choice(LITERALS)))
    kind = rng.random()
    if kind < 0.55:
        return f"({expression(rng, depth - 1)} {rng.choice('+-*/')} {expression(rng, depth - 1)})"
    if kind < 0.65:
        return f"{rng.choice(('min', 'max'))}({expression(rng, depth - 1)}, {expression(rng, depth - 1)})"
    if kind < 0.75:
        test = f"{expression(rng, depth - 1)} {rng.choice(('<', '>', '=='))} {expression(rng, depth - 1)}"
        return f"({expression(rng, depth - 1)} if {test} else {expression(rng, depth - 1)})"
    if kind < 0.85:
        return f"{rng.choice(FUNCTIONS)}({expression(rng, depth - 1)})"
    if kind < 0.92:
        return f"(-{expression(rng, depth - 1)})"
    return f"({expression(rng, depth - 1)} ** {rng.choice(('2', '3', '2.0', '-1'))})"


def statements(rng: random.Random) -> str:
    """One to three lines that end in a store; \\n between them."""
    kind = rng.random()
    one, two = expression(rng, 2), expression(rng, 1)
    if kind < 0.5:
        return f"out[i] = {one}"
    if kind < 0.6:
        return f"out[i] += {two}"
    if kind < 0.7:
        return f"t = {two}\\nout[i] = t * {expression(rng, 0)}"
    if kind < 0.8:
        return f"t = {expression(rng, 0)}\\nif x[i] > {expression(rng, 0)}:\\n    t = {two}\\nout[i] = t"
    if kind < 0.9:
        return f"t = {expression(rng, 0)}\\nfor j in range(n):\\n    t += {two}\\nout[i] = t"
    return f"if {two} > {expression(rng, 0)}:\\n    out[i] = {expression(rng, 0)}"


def family(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return list(dict.fromkeys(statements(rng) for _ in range(count)))
