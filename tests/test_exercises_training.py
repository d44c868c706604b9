"""Wrong answers to the exercises of lesson 24: each is told what is wrong."""

import re

import pytest
from copies import needs_solutions
from test_exercises import answered

from dwlab.judge import exercises

pytestmark = needs_solutions

MOMENTUM = """
i = cuda.grid(1)
if i < g.size:
    slope = g[i]
    if slope == slope:
        speed = m * v[i] + slope
        v[i] = speed
        p[i] -= r * speed
"""
SAVE = """
def save(path, state):
    content = io.BytesIO()
    np.savez(content, **state)
    body = content.getvalue()
    part = f"{path}.part"
    with open(part, "wb") as file:
        file.write(hashlib.sha256(body).digest() + body)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
"""
LOAD = """
def load(path):
    with open(path, "rb") as file:
        digest, body = file.read(32), file.read()
    if hashlib.sha256(body).digest() != digest:
        raise ValueError(f"{path} is damaged")
    with np.load(io.BytesIO(body)) as arrays:
        return dict(arrays)
"""
PLAIN_LOAD = """
def load(path):
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except Exception as error:
        raise ValueError(str(error)) from None
"""

WRONG = [
    ("24_1", "the old velocity", MOMENTUM.replace("r * speed", "r * (speed - slope)"), r"p, g of shape \(\d+,\), "),
    (
        "24_1",
        "no momentum",
        MOMENTUM.replace("m * v[i] + slope", "slope"),
        r"v, g of shape \(\d+,\), step 1: element \[0\] is",
    ),
    ("24_1", "NaN goes through", MOMENTUM.replace("slope == slope", "True"), "elements are wrong"),
    ("24_1", "no test for the end", MOMENTUM.replace("i < g.size", "True"), "out of bounds"),
    ("24_1", "the velocity read again", MOMENTUM.replace("r * speed", "r * v[i]"), "24,576 bytes are moved; 20,480"),
    (
        "24_1",
        "float64",
        MOMENTUM.replace("r * speed", "r * 1.0 * speed"),
        r"Line \d+, .*float64 operations",
    ),
    (
        "24_1",
        "every other lane",
        """
        i = cuda.grid(1)
        i = (i % 64) * 2 + (i // 64) % 2 + i // 128 * 128
        if i < g.size and g[i] == g[i]:
            speed = m * v[i] + g[i]
            v[i] = speed
            p[i] -= r * speed
        """,
        "bytes are moved; 20,480 are enough",
    ),
    ("24_2", "one block", "share = 35 / 210\nstep_ms = 98\nlimit = 3\nweight_ms = 6.75", "you predicted 0.166667"),
    ("24_2", "time for speed", "share = 140 / 210\nstep_ms = 28\nlimit = 3\nweight_ms = 6.75", "you predicted 28 ms"),
    ("24_2", "no limit", "share = 2 / 3\nstep_ms = 98\nlimit = 7\nweight_ms = 6.75", "you predicted 7 times as fast"),
    ("24_2", "the whole half", "share = 2 / 3\nstep_ms = 98\nlimit = 3\nweight_ms = 105", "`weight_ms`: you predicted"),
    (
        "24_3",
        "over the file itself",
        "def save(path, state):\n    with open(path, 'wb') as file:\n        np.savez(file, **state)\n" + PLAIN_LOAD,
        "save writes into the old file",
    ),
    (
        "24_3",
        "never on the disk",
        SAVE.replace("os.fsync(file.fileno())", "pass") + LOAD,
        "sure that the content is on",
    ),
    (
        "24_3",
        "deleted before",
        SAVE.replace("os.replace(", "if os.path.exists(path):\n        os.remove(path)\n    os.replace(") + LOAD,
        r"stopped at os.replace, and load then raised FileNotFoundError",
    ),
    (
        "24_3",
        "no checksum",
        SAVE.replace("hashlib.sha256(body).digest() + body", "body") + PLAIN_LOAD,
        "A file with a bit changed: load gave something back",
    ),
    (
        "24_3",
        "an error of its own kind",
        SAVE + LOAD.replace("ValueError", "RuntimeError"),
        "A file cut after 0 bytes: load raised RuntimeError, not ValueError",
    ),
    (
        "24_3",
        "another dtype",
        SAVE + LOAD.replace("dict(arrays)", "{k: arrays[k] * 1.0 for k in arrays}"),
        "not what was",
    ),
    ("24_3", "nothing back", SAVE + LOAD.replace("return dict(arrays)", "dict(arrays)"), "load gave None"),
    ("24_3", "a number", "save = 3\nload = 4", r"`save` is 3 \(int\); it must be a function"),
]


@pytest.mark.parametrize(("exercise", "what", "code", "says"), WRONG, ids=[f"{w[0]}: {w[1]}" for w in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, exercise, what, code, says):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(answered(exercise, code), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == "wrong", found["message"]
    assert re.search(says, found["message"]), found["message"]
    assert found["hints"], "a wrong answer gets a hint"


def test_another_right_answer_passes(tmp_path):
    """With pathlib, a temporary name, and the checksum at the end."""
    code = """
    def save(path, state):
        import tempfile
        content = io.BytesIO()
        np.savez(content, **state)
        handle, name = tempfile.mkstemp(dir=os.path.dirname(path))
        with os.fdopen(handle, "wb") as file:
            file.write(content.getvalue() + hashlib.md5(content.getvalue()).digest())
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)

    def load(path):
        whole = Path(path).read_bytes()
        if hashlib.md5(whole[:-16]).digest() != whole[-16:]:
            raise ValueError("damaged")
        return dict(np.load(io.BytesIO(whole[:-16])))
    """
    path = tmp_path / "24_3_answer.py"
    path.write_text(answered("24_3", code), encoding="utf-8")
    found = exercises._judge(path, exercises.known()["24_3"])
    assert found["status"] == "passed", found["message"]
