"""Every hazard is found every time, at the right line, array and threads; and correct kernels are reported clean."""

import ast
import inspect
import re
import textwrap
import warnings
from pathlib import Path

import edits
import numpy as np
import pytest
from numba import float32, int32

from dwlab import simt
from dwlab.simt import cuda
from dwlab.simt.options import Hazard
from tests.loaded import kernel_of, loaded, program

pytestmark = pytest.mark.quick

N = 64


def hazards(kernel, grid, block, *args, **options):
    return simt.xray(kernel, grid, block, *args, **options).hazards


def line_with(kernel, text):
    """Number of the one source line of a kernel that contains the text."""
    lines, first = inspect.getsourcelines(kernel.py_func)
    head = next(i for i, line in enumerate(lines) if line.lstrip().startswith("def "))
    found = [first + i for i, line in enumerate(lines) if text in line and i >= head]
    assert len(found) == 1, (text, found)
    return found[0]


def found(
    kernel, grid, block, *args, kind, at, array=None, other=None, threads=(), either=(), says=(), alone=False, **options
):
    """Assert that one hazard of this kind is reported at the line that contains ``at``; return it.

    threads, says: what its threads and its message must have; either: one of these its threads; alone: no other is.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    everything = hazards(kernel, grid, block, *args, **options)
    matching = [h for h in everything if h.kind in kinds and h.line == line_with(kernel, at)]
    if array is not None:
        matching = [h for h in matching if h.array == array]
    assert matching, f"no {kind} at {at!r}: {everything}"
    assert not alone or len(everything) == 1, everything
    if other is not None:
        assert line_with(kernel, other) in {h.other_line for h in matching}, matching
    hazard = matching[0]
    assert {h.kind for h in everything} <= set(kinds) | {"race", "two writers"}, everything
    assert all(word in hazard.threads for word in threads), hazard
    assert not either or any(word in hazard.threads for word in either), hazard
    assert hazard.message and hazard.threads and all(word in hazard.message for word in says), hazard
    return hazard


def clean(kernel, grid, block, *args, **options):
    assert hazards(kernel, grid, block, *args, **options) == ()


def ones(n=N, dtype=np.float32):
    return np.ones(n, dtype)


HAZARD_ROWS = edits.sections(Path(__file__).with_name("hazard_rows.txt"))
ROWS = [([part.strip() for part in head.split(" | ")], body) for head, body in HAZARD_ROWS]
BEFORE = {
    "t": "t = cuda.threadIdx.x", "i": "i = cuda.grid(1)", "tile": "tile = cuda.shared.array(64, float32)",
}  # fmt: skip


@pytest.mark.parametrize(("head", "body"), ROWS, ids=[head[1] for head, _ in ROWS])
def test_a_kernel_of_a_few_lines(head, body):
    kind, name, launch, wanted, *_ = [*head, "", ""]
    names = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    parameters = [one for one in ("x", "w", "partial", "count", "y") if one in names]
    before = [
        line for one, line in BEFORE.items() if one in names and not re.search(rf"(?m)^{one} =|for {one} in", body)
    ]
    text = f"def kernel({', '.join(parameters)}):\n" + textwrap.indent("\n".join([*before, body]), "    ")
    kernel = cuda.jit(loaded(text, name, cuda=cuda, float32=float32, int32=int32)["kernel"])
    known = {"np": np, "ones": ones, "N": N, "cuda": cuda}
    arguments = eval(launch, known) if launch else (1, 64, *(ones() for _ in parameters))
    if kind == "nothing":
        clean(kernel, *arguments)
    else:
        array = re.search(r"# found(?:: (\w+))?$", body, re.M)[1]
        other = "# other" if "# other" in body else None
        kinds = tuple(kind.split(", "))
        found(kernel, *arguments, kind=kinds, at="# found", array=array, other=other, **eval(f"dict({wanted})"))


forgotten_barrier = kernel_of(
    "x, y", BEFORE["tile"], BEFORE["t"], "tile[t] = x[cuda.grid(1)]", "y[cuda.grid(1)] = tile[63 - t]"
)


def test_overlapping_slices_of_one_array():
    copy = kernel_of("x, y", "i = cuda.grid(1)", "y[i] = x[i]")
    data = cuda.to_device(ones(100))
    assert "race" in {h.kind for h in hazards(copy, 1, 64, data[:64], data[36:])}
    clean(copy, 1, 32, data[:32], data[32:64])


@pytest.mark.parametrize("limit", [1, 16, 31, 32, 33, 63])
def test_barrier_in_a_branch(limit):
    branch = kernel_of("y, limit", BEFORE["t"], "if t < limit:", "    y[t] = float32(1.0)", "    cuda.syncthreads()")
    hazard = found(branch, 1, 64, ones(), limit, kind="divergent barrier", at="cuda.syncthreads()")
    assert f"thread {limit}" in hazard.threads or "thread 0" in hazard.threads


def test_barrier_in_a_device_function_called_in_a_branch():
    @cuda.jit(device=True)
    def wait():
        cuda.syncthreads()

    lines = BEFORE["t"], "if t < 40:", "    wait()", "y[t] = float32(1.0)"
    caller, _ = program(lines, "y", wait=wait, float32=float32)
    report = hazards(caller, 1, 64, ones())
    assert [h.kind for h in report] == ["divergent barrier"] and report[0].line == line_with(wait, "syncthreads")


@pytest.mark.parametrize(
    "made",
    [
        ["table = cuda.shared.array(8, float32)", "table[t] = float32(1.0)", "cuda.syncthreads()"],
        ["table = cuda.local.array(8, float32)", "for m in range(8):", "    table[m] = float32(1.0)"],
        ["table = cuda.const.array_like(ONES)"],
    ],
    ids=["shared", "local", "const"],
)
def test_out_of_bounds_in_every_space(made):
    kernel, _ = program(["t = cuda.threadIdx.x", *made, "y[t] = table[t + k]"], "y, k", float32=float32, ONES=ones(8))
    clean(kernel, 1, 8, ones(8), 0)
    found(kernel, 1, 8, ones(8), 1, kind="out of bounds", at="+ k]", threads=["thread 7"])


def test_out_of_bounds_writes_change_nothing_else():
    over = kernel_of("y", "y[cuda.grid(1)] = float32(5.0)")
    device = cuda.to_device(ones(64))
    with simt.using(simt.Options(hazards="report")):
        over[1, 64](device[:32])
    assert device.copy_to_host().tolist() == [5.0] * 32 + [1.0] * 32


def test_shared_memory_of_an_earlier_block_is_not_left_over():
    kernel = kernel_of(
        "y", "box = cuda.shared.array(1, float32)", "if cuda.grid(1) == 0:", "    box[0] = float32(1.0)",
        "cuda.syncthreads()", "y[cuda.grid(1)] = box[0]",
    )  # fmt: skip
    for lanes in (32, 1 << 16):
        what = dict(kind="uninitialised", at="= box[0]", array="box", threads=["block 1"])
        found(kernel, 2, 32, ones(), options=simt.Options(hazards="report", lanes=lanes), **what)


def test_a_kernels_own_writes_count_for_the_next_launch():
    clear = kernel_of("y", "i = cuda.grid(1)", "if i % 2 == 0:", "    y[i] = float32(0.0)")
    use = kernel_of("y, step", "y[cuda.grid(1) * step] += float32(1.0)")
    fresh = cuda.device_array(64, np.float32)
    clear[1, 64](fresh)
    clean(use, 1, 32, fresh, 2)
    assert {h.kind for h in hazards(use, 1, 64, fresh, 1)} == {"uninitialised"}


def test_modes():
    data = ones(), ones()
    with pytest.raises(simt.HazardError) as caught:
        forgotten_barrier[1, 64](*data)
    assert caught.value.hazards[0].kind == "race" and "line" in str(caught.value)
    with simt.using(simt.Options(hazards="warn")), pytest.warns(simt.HazardWarning, match="race"):
        forgotten_barrier[1, 64](*data)
    for quiet in ("report", "off"):
        with simt.using(simt.Options(hazards=quiet)), warnings.catch_warnings():
            warnings.simplefilter("error")
            forgotten_barrier[1, 64](*data)
    report = simt.xray(forgotten_barrier, 1, 64, *data)
    with pytest.raises(simt.HazardError):
        report.raise_hazards()
    assert simt.xray(forgotten_barrier, 1, 64, *data, options=simt.Options(hazards="off")).hazards == ()
    with pytest.raises(ValueError, match="hazards="):
        simt.Options(hazards="loud")


def test_a_report_says_hazards_first_hand_and_a_hazard_its_file_where_that_is_one_of_the_package():
    report = simt.xray(forgotten_barrier, 1, 64, ones(), ones())
    assert "race" in str(report) and "race" in report.to_json() and "race" in report._repr_html_()
    simt.xray(kernel_of("y", "y[cuda.grid(1)] = float32(1.0)"), 1, 64, ones()).raise_hazards()
    assert Hazard("race", 7, "x", "", "", path=simt.__file__).where == "dwlab/simt/__init__.py, line 7"
    assert Hazard("race", 7, "x", "", "", path=__file__).where == "line 7"


def test_a_race_with_a_line_of_another_file_names_the_file(tmp_path, monkeypatch):
    text = "from dwlab import cuda\n\n\n@cuda.jit(device=True)\ndef put(s, i):\n    s[i] = i\n"
    (tmp_path / "puts.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    from puts import put

    @cuda.jit
    def kernel(y):
        s = cuda.shared.array(64, float32)
        put(s, cuda.threadIdx.x)
        y[cuda.threadIdx.x] = s[63 - cuda.threadIdx.x]

    (race,) = hazards(kernel, 1, 64, np.zeros(64, np.float32))
    assert "wrote on line 6 of puts.py, with nothing" in race.message
