"""Exercise 24_4: one more hour

A trained layer is used hour by hour, as a language model's is token by token: there is one new x a channel, and of what
came before a *state*, its last K - 1 values. Write the kernel `step(x, state, w, bias, y)`, one launch for each hour:
y[b, h] = silu(bias[h] + sum over j of w[h, j] · x, j hours ago), with silu(v) = v / (1 + exp(-v)). x (B, H) is now;
state (B, H, K - 1) has the values before it, the newest last, and moves on by one: x comes in at its end.

Blocks have 128 threads, a thread for each (b, h). Each state is loaded once and stored once, K - 1 numbers.
"""

import math

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import (
    agree,
    at_most,
    drawn,
    float32_only,
    kernel,
    launched,
    one_large,
    poisoned,
    typical_first,
    values,
)


@cuda.jit
def step(x, state, w, bias, y):
    ### BEGIN SOLUTION
    b, h = divmod(cuda.grid(1), x.shape[1])
    if b < x.shape[0]:
        last = state.shape[2]
        acc = bias[h] + w[h, 0] * x[b, h]
        for k in range(last):
            before = state[b, h, k]
            acc += w[h, last - k] * before
            if k > 0:
                state[b, h, k - 1] = before
        state[b, h, last - 1] = x[b, h]
        y[b, h] = acc / (float32(1) + math.exp(-acc))
    ### END SOLUTION


HINTS = (
    "A thread's b and h are divmod(cuda.grid(1), x.shape[1]); the last block has threads without an output.",
    "state[b, h, k] is K - 1 - k hours old: its weight is w[h, K - 1 - k], with K - 1 = state.shape[2].",
    "Load a value, multiply it, and store it one place before: state[b, h, k - 1]. The oldest falls out, x comes in at "
    "the end, after the loop.",
)


def silu(v):
    return v / (1 + np.exp(-v))


def judge(answer):
    """Right for several hours in a row, in odd shapes and drawn ones; the state loaded and stored once; float32."""
    step, launches = kernel(answer, "step"), []
    shapes = ((1, 1, 2), (2, 3, 4), (1, 130, 3), (5, 60, 4))
    more = (*one_large(answer, 3), drawn(answer, (1, 9), (1, 200), (2, 9)))
    for B, H, K in (*shapes, *((B, H, max(2, K)) for B, H, K in more)):
        hours = 3 if B * H * K < 2000 else 1
        state, w, bias = values(answer, B, H, K - 1, nan=True), values(answer, H, K), values(answer, H)
        every = state.astype(np.float64)
        for hour in range(hours):
            x, y = values(answer, B, H), poisoned(B, H)
            every = np.concatenate([every, x[..., None]], 2)
            seen, ours = every[..., : -K - 1 : -1], state.copy()  # the newest first
            sums = (seen * w).sum(2)
            want, what = silu(sums + bias), f"B={B} H={H} K={K}, hour {hour + 1}"
            mistakes = {
                "Are the weights in the order of the state? w[h, 0] is that of x.": silu(
                    (seen * w[:, ::-1]).sum(2) + bias
                ),
                "Is the bias added, once, before silu?": silu(sums),
                "Is silu applied?": sums + bias,
                "Is the state read before x comes into it?": silu((np.roll(seen, -1, 2) * w).sum(2) + bias),
            }
            args = step, -(-B * H // 128), 128, x, state, w, bias, y
            report = launched(*args, updates=[state], hints=HINTS, what=what)
            agree(y, want, what, tolerance=1e-5, hints=HINTS[1:], mistakes=lambda m=mistakes: m)
            moved = {
                "Does the state move on?": ours,
                "Which value falls out? The oldest stands first.": np.concatenate([x[..., None], ours[..., :-1]], 2),
            }
            agree(
                state, every[..., 1 - K :], f"{what}, the state behind it", hints=HINTS[2:], mistakes=lambda m=moved: m
            )
        launches.append((report, B * H, K))
    for report, rows, K in typical_first(launches, len(shapes)):
        of_state = [one for one in report.accesses if one.array == "state"]
        for kind in ("load", "store"):
            moves = sum(one.active_lanes for one in of_state if one.kind == kind)
            at_most(moves, rows * (K - 1), f"{kind}s of states", "each number of it once", HINTS[2:], report)
        float32_only(report)
    return f"Right for {len(launches)} shapes, hour after hour; each state is loaded and stored once."


if __name__ == "__main__":
    run(__file__)
