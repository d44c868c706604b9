"""Exercise 42_5: one tile for two GPUs

Two GPUs have each swept one space. A program ships one tile for both. Write `both(one, other)`:
- `one`, `other`: tile -> its time in µs on a GPU; a tile that failed there is absent.

It returns the tile whose *regret* on the worse of the two GPUs is least: how much slower it is than the fastest there,
as a fraction. A tile that failed on a GPU is none. Times of two GPUs do not compare; regrets do.
"""

from dwlab.judge.exercises import run
from dwlab.judge.tools import Wrong, drawn, function


def both(one, other):
    """The tile that loses least on the GPU where it loses more."""
    ### BEGIN SOLUTION
    sweeps = [(times, min(times.values())) for times in (one, other)]
    return min(one.keys() & other.keys(), key=lambda tile: max(times[tile] / least for times, least in sweeps))
    ### END SOLUTION


HINTS = (
    "First each GPU by itself: its fastest time, and every tile's time over that.",
    "The fastest of a GPU may have failed on the other: it sets the scale all the same, and cannot be taken.",
    "min(one.keys() & other.keys(), key=…) of the greater of the two ratios.",
)


def judge(answer):
    """The least greater regret by trying all, in sweeps drawn; where sums, times or one GPU alone mislead."""
    both = function(answer, "both")
    cases = [
        ({"a": 10.0, "b": 11.0, "c": 20.0}, {"a": 4.0, "b": 2.2, "c": 2.0}, "a tile that is the fastest of none"),
        ({"a": 100.0, "b": 101.0}, {"a": 2.0, "b": 1.0}, "a GPU whose times are fifty times the other's"),
        ({"a": 1.0, "b": 2.0, "c": 3.0}, {"b": 3.2, "c": 2.0}, "a fastest tile that failed on the other"),
        ({"b": 2.0}, {"a": 1.0, "b": 7.0}, "one tile that is right on both"),
        ({"a": 10.0, "b": 13.0, "c": 10.0}, {"a": 16.0, "b": 12.0, "c": 20.0, "d": 10.0}, "two sums of regrets alike"),
    ]
    for _ in range(20):
        (tiles,) = drawn(answer, (2, 9))
        given = [{str(k): float(us) for k, us in enumerate(drawn(answer, *[(20, 99)] * tiles))} for _ in range(2)]
        for times, gone in zip(given, drawn(answer, (0, 2 * tiles), (0, 2 * tiles)), strict=True):
            if gone % tiles:  # else none is right on both where there are two
                times.pop(str(gone), None)
        cases.append((*given, "drawn times"))

    def regret(tile, *sweeps):
        return max(times[tile] / min(times.values()) - 1 for times in sweeps)

    for one, other, what in cases:
        right = one.keys() & other.keys()
        got, least = both(dict(one), dict(other)), min(regret(tile, one, other) for tile in right)
        if not isinstance(got, str) or got not in right:
            raise Wrong(f"{what}: it returns {got!r:.80}, which is right on both GPUs for none of the tiles.", HINTS)
        if regret(got, one, other) > least + 1e-12:
            raise Wrong(
                f"{what}: {got} is {regret(got, one, other):.1%} slower than the fastest on one GPU; one tile loses "
                f"{least:.1%} at most. The times are {one} and {other}.", HINTS,
            )  # fmt: skip
    return f"The tile that loses least on the worse of two GPUs, in {len(cases)} cases."


if __name__ == "__main__":
    run(__file__)
