"""Exercise 23_1: what a table of times says

`us[path][name]` is the time of the kernel `name` for a path, in µs, as in the lesson's table. Write
`summary(problem, us)`: a dictionary that has for each kernel a pair of numbers, for all paths of `us` together:
- the effective bandwidth in 1e9 bytes a second: compulsory bytes of all paths over the time of all paths;
- how many times as fast as "naive" it is, as the study's totals have it.

A kernel that was not measured in every path has no total, and no place in the dictionary. Of two kernels the faster one
must have more bandwidth, always. Two places to look for bytes: `problem.compulsory_bytes(path)`, and
`stage(f"depthwise1d/{path}/{name}").traffic(problem).bytes_moved`.
"""

import math

from dwlab import DepthwiseConv1d, stage, stages  # noqa: F401
from dwlab.judge.exercises import run
from dwlab.judge.tools import Wrong, drawn, function, pair, real


def summary(problem, us):
    ### BEGIN SOLUTION
    found = {}
    size = sum(problem.compulsory_bytes(path) for path in us)
    naive = sum(times["naive"] for times in us.values())
    for name in us["forward"]:
        if all(name in times for times in us.values()):
            total = sum(times[name] for times in us.values())
            found[name] = size / total / 1e3, naive / total
    return found
    ### END SOLUTION


HINTS = (
    "Add up a kernel's times over the paths first, then divide. The bytes belong to the problem, whatever the kernel.",
    "A byte in a microsecond is 1e6 bytes in a second, 0.001 GB/s. How many times as fast: naive's time stands on top.",
    "sum(problem.compulsory_bytes(path) for path in us) / total / 1e3, and naive / total. A kernel is everywhere if "
    "`all(name in times for times in us.values())`.",
)
THREE = ("forward", "input_grad", "weight_grad")
FOUR = ("shared", "naive", "coalesced", "warp_tiled")
TABLES = ((THREE, FOUR), (("forward", "backward"), ("fused", "naive")), (THREE, (*FOUR, "wide")))


def judge(answer):
    """Right for drawn times: four problems, three paths and two, kernels that are missing in one of them."""
    summary = function(answer, "summary")
    B, H, L, K = drawn(answer, (1, 300), (1, 70), (1, 300), (1, 40))
    problems = (DepthwiseConv1d(64, 16, 48, 48), DepthwiseConv1d(5, 3, 100, 7, "same"), DepthwiseConv1d(B, H, L, K))
    tables = 0
    for problem in problems:
        for paths, names in TABLES:
            us = {path: {name: float(answer.random.uniform(10, 9000)) for name in names} for path in paths}
            us["forward"].pop("wide", None)
            if "wide" in names:
                us["weight_grad"].pop("shared")
            _compare(summary(problem, {path: dict(times) for path, times in us.items()}), problem, us)
            tables += 1
    return f"Right for {tables} tables of times; a kernel that is not in every path is left out."


def _compare(got, problem, us):
    names = [name for name in us["forward"] if all(name in times for times in us.values())]
    if not isinstance(got, dict):
        raise Wrong(f"`summary` returns {got!s:.80}; it must be a dictionary, name -> (GB/s, times).", HINTS)
    if set(got) != set(names):
        has = ", ".join(map(str, got)) or "nothing"
        raise Wrong(f"The answer has {has}; measured in all of {', '.join(us)} are {', '.join(names)}.", HINTS[2:])
    naive = sum(times["naive"] for times in us.values())
    size = sum(problem.compulsory_bytes(path) for path in us)
    for name in names:
        total = sum(times[name] for times in us.values())
        both = pair(got[name])
        if both is None or not all(real(v) for v in both):
            raise Wrong(f"{name}: {got[name]!r:.80} is no pair of numbers.", HINTS)
        what = f"{name}, {' and '.join(us)} of {problem}"
        if not _same(both[0], size / total / 1e3):
            why = _bandwidth(both[0], size / total / 1e3, problem, us, name, total)
            raise Wrong(f"{what}: {both[0]:,.6g} GB/s; {size / total / 1e3:,.6g} is right. {why}".rstrip(), HINTS)
        if not _same(both[1], naive / total):
            ratios = [times["naive"] / times[name] for times in us.values()]
            why = ""
            if _same(both[1], total / naive):
                why = "It is the other way round."
            elif _same(both[1], sum(ratios) / len(ratios)):
                why = "A mean of the paths' ratios counts a short path as much as a long one."
            raise Wrong(f"{what}: {both[1]:,.6g} times; {naive / total:,.6g} is right. {why}".rstrip(), HINTS)


def _bandwidth(got, want, problem, us, name, total):
    """What such a bandwidth may have counted; "" if nobody knows."""
    alike = [one for path in us for one in stages("depthwise1d", path) if one.name == name]
    requested = sum(one.traffic(problem).bytes_moved for one in alike)
    each = [problem.compulsory_bytes(path) / times[name] / 1e3 for path, times in us.items()]
    if _same(got, requested / total / 1e3):
        return "These are the bytes that the kernel requests: one that requests more would look better."
    if _same(got, len(us) * problem.compulsory_bytes("forward") / total / 1e3):
        return "These are forward's bytes, for each path."
    if _same(got, 3 * 4 * len(us) * problem.B * problem.H * problem.L / total / 1e3):
        return "These are three arrays of the size of x for each path."
    if _same(got, sum(each) / len(each)):
        return "A mean of bandwidths counts a short path as much as a long one."
    if _same(got, sum(times["naive"] for times in us.values()) / total):
        return "That is how many times as fast it is: the bandwidth comes first."
    if any(_same(got, want * 10.0**power) for power in (-9, -6, -3, 3, 6, 9)):
        return "Look at the units: µs, and 1e9 bytes."
    return ""


def _same(a, b):
    return math.isclose(a, b, rel_tol=1e-6)


if __name__ == "__main__":
    run(__file__)
