"""Wrong answers to the exercises of lesson 23: each is told what is wrong, in numbers, and why if that can be known."""

import re

import pytest
from copies import needs_solutions
from test_exercises import answered

from dwlab.judge import exercises

pytestmark = needs_solutions

TOTALS = """
    found = {{}}
    size = {size}
    naive = sum(times["naive"] for times in us.values())
    for name in us["forward"]:
        if {everywhere}:
            total = sum(times[name] for times in us.values() if name in times)
            found[name] = {gbps}, {times}
    return found
"""


def totals(
    size="sum(problem.compulsory_bytes(path) for path in us)",
    everywhere="all(name in times for times in us.values())",
    gbps="size / total / 1e3",
    times="naive / total",
):
    """An answer to 23_1 with one part exchanged."""
    return TOTALS.format(size=size, everywhere=everywhere, gbps=gbps, times=times)


BINDS = """
    clocks = gpu["sms"] * gpu["mhz"]
    us = {{
        "memory": work["memory_bytes"] / gpu["copy_gbps"] / 1e3,
        "wavefronts": work["wavefronts"] / clocks,
        "instructions": work["instructions"] / clocks / {each},
        "fma": {fma} * work["fmas"] / gpu["fma_tflops"] / 1e6,
    }}
    {l2}
    name = {which}(us, key=us.get)
    return name, {time}
"""


def binding(
    each="4",
    fma="2",
    l2='us |= {"l2": 0.032 * work["l2_sectors"] / gpu["l2_gbps"]} if gpu["l2_gbps"] else {}',
    which="max",
    time="us[name]",
):
    """An answer to 23_3 with one part exchanged."""
    return BINDS.format(each=each, fma=fma, l2=l2, which=which, time=time)


PATCHES = {
    "requests": "752",
    "w_sectors": "2816",
    "x_sectors": "3584",
    "y_sectors": "384",
    "memory_read": "6656",
}


def bill(**changed):
    """An answer to 23_2 with some numbers exchanged."""
    return "\n".join(f"{name} = {value}" for name, value in (PATCHES | changed).items())


WRONG = [
    (
        "23_1",
        "the bytes that the kernel asks for",
        totals(
            gbps='sum(stage(f"depthwise1d/{p}/{name}").traffic(problem).bytes_moved for p in us) / total / 1e3',
        ),
        r"GB/s; [\d.]+ is right\. These are the bytes that the kernel asks for",
    ),
    (
        "23_1",
        "forward's bytes for every path",
        totals(size='len(us) * problem.compulsory_bytes("forward")'),
        r"forward's bytes, for each path",
    ),
    (
        "23_1",
        "three arrays, as the study",
        totals(size="len(us) * 3 * 4 * problem.B * problem.H * problem.L"),
        r"three arrays of the size of x",
    ),
    ("23_1", "bytes a microsecond", totals(gbps="size / total"), r"GB/s; .* Look at the units"),
    (
        "23_1",
        "a mean of bandwidths",
        totals(gbps="sum(problem.compulsory_bytes(p) / t[name] / 1e3 for p, t in us.items()) / len(us)"),
        r"A mean of bandwidths counts a short path as much",
    ),
    (
        "23_1",
        "a mean of ratios",
        totals(times='sum(t["naive"] / t[name] for t in us.values()) / len(us)'),
        r"times; [\d.]+ is right\. A mean of the paths' ratios",
    ),
    ("23_1", "slower in place of faster", totals(times="total / naive"), r"It is the other way round"),
    ("23_1", "missing in a path", totals(everywhere="True"), r"has .*shared.*; measured in all of .* are naive, coal"),
    (
        "23_1",
        "naive left out",
        totals(everywhere='name != "naive" and all(name in t for t in us.values())'),
        r"The answer has shared, coalesced, warp_tiled; measured in all of .* are shared, naive",
    ),
    ("23_1", "one number each", totals(gbps="0").replace("0, naive / total", "size / total / 1e3"), r"no pair"),
    ("23_1", "nothing returned", "found = {}", r"`summary` returns None"),
    ("23_2", "all taps in every tile", bill(requests=6 * 8 * 17), r"`requests`: you predicted 816 .*; fewer"),
    ("23_2", "stores forgotten", bill(requests=704), r"`requests`: you predicted 704 requests; more were counted"),
    ("23_2", "one sector of w for a request", bill(w_sectors=352), r"`w_sectors`: you predicted 352 sectors; more"),
    ("23_2", "no second sector", bill(x_sectors=2816), r"`x_sectors`: you predicted 2,816 sectors; more"),
    ("23_2", "hours before the row as well", bill(x_sectors=8 * 8 * 44 * 2), r"`x_sectors`: .* fewer were counted"),
    ("23_2", "as full warps would store", bill(y_sectors=192), r"`y_sectors`: you predicted 192 sectors; more"),
    ("23_2", "what is written, too", bill(memory_read=12800), r"`memory_read`: you predicted 12,800 bytes; fewer"),
    ("23_2", "all that is asked for", bill(memory_read=32 * 6400), r"`memory_read`: .* fewer were counted"),
    ("23_3", "the shortest", binding(which="min"), r"a copy: you say that .* binds, .* and memory 201"),
    ("23_3", "a sum", binding(time="sum(us.values())"), r"A sum would be right if they worked one after the other"),
    ("23_3", "one instruction a clock", binding(each="1"), r"a tile in shared memory: you say that instructions binds"),
    ("23_3", "a multiply-add as one", binding(fma="1"), r"you say that instructions binds, .* and fma 1,000"),
    (
        "23_3",
        "sectors taken for bytes",
        binding(l2='us |= {"l2": 1e-3 * work["l2_sectors"] / gpu["l2_gbps"]} if gpu["l2_gbps"] else {}'),
        r"again from the L2: l2 binds, with 44.4444 µs; 1,422.22 is right. A sector has 32 bytes",
    ),
    (
        "23_3",
        "an unknown bandwidth taken for a slow one",
        binding(l2='us |= {"l2": 0.032 * work["l2_sectors"] / (gpu["l2_gbps"] or 1)}'),
        r"not known: the resource is 'l2'; here there are memory, wavefronts",
    ),
    (
        "23_3",
        "one multiprocessor",
        binding().replace('gpu["sms"] * gpu["mhz"]', 'gpu["mhz"]'),
        r"a copy: wavefronts|a tile in shared memory: wavefronts binds, .* There is more than one multiprocessor",
    ),
    ("23_3", "the time alone", binding().replace("return name, ", "return "), r"must be a pair of a name and µs"),
]


@pytest.mark.parametrize(("exercise", "what", "code", "says"), WRONG, ids=[f"{w[0]}: {w[1]}" for w in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, exercise, what, code, says):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(answered(exercise, code), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == "wrong", found["message"]
    assert re.search(says, found["message"]), found["message"]
    assert found["hints"], "a wrong answer gets a hint"


@pytest.mark.parametrize(("exercise", "code"), [("23_1", totals()), ("23_2", bill()), ("23_3", binding())])
def test_the_answers_from_which_the_wrong_ones_are_made_are_right(tmp_path, exercise, code):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(answered(exercise, code), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == "passed", found["message"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("def binds(", "def what_binds("), r"has no `binds` any more"),
        (("def binds(", "@cuda.jit\ndef binds("), r"`binds` is a kernel; it must be a plain Python function"),
        (("def judge(", "binds = 7\n\n\ndef judge("), r"`binds` is 7 \(int\); it must be a function"),
    ],
)
def test_what_is_no_function_is_named(tmp_path, change, says):
    text = answered("23_3", binding())
    assert change[0] in text
    path = tmp_path / "23_3_answer.py"
    path.write_text("from dwlab import cuda\n" + text.replace(*change), encoding="utf-8")
    found = exercises._judge(path, exercises.known()["23_3"])
    assert found["status"] == "wrong" and re.search(says, found["message"]), found["message"]
