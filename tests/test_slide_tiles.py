"""benchmarks/slide_tiles.py: which choices it times, and the constants that it fits."""

import itertools

import numpy as np
import pytest
from test_benchmarks import script
from test_layer_peers import NO_TORCH

from dwlab import records, references, target
from dwlab.fused import slide_tiles as stage_tiles
from dwlab.layers import problem as problem_of
from dwlab.records import writing

slide_tiles = script("slide_tiles")
ENVIRONMENT = {"gpu": "NVIDIA Test", "date": "2026-11-23T10:11:12+00:00"}


def test_each_pair_is_timed_with_its_best_tiles_first_and_with_other_registers_last():
    asked = itertools.product(((32, 14, 1, 24), (48, 7, 2, 16)), ("float32", "float16"), (32, 1))
    jobs = slide_tiles.jobs([slide_tiles.pair(*sizes, N, dtype) for sizes, dtype, N in asked], best=2)
    assert len({(problem, tiles, count) for problem, tiles, count in jobs}) == len(jobs)
    first = jobs[: 2 * 2 * 2]  # pairs, storage types, batches
    assert {(problem.N, problem.dtype) for problem, _, _ in first} == {
        (N, dtype) for N in (1, 32) for dtype in ("float32", "float16")
    }
    for problem, tiles, count in first:
        assert tiles == stage_tiles.choose(problem.kernel_key, problem.N)
        assert count == stage_tiles.registers(problem.kernel_key, tiles)
    for problem, tiles, count in jobs:
        assert count * tiles.threads <= stage_tiles.REGISTERS
        assert not stage_tiles.why_not(problem.kernel_key, tiles)


def test_a_fit_finds_the_constants_that_times_were_made_with():
    rng = np.random.default_rng(3)
    wanted = np.array(list(stage_tiles.CONSTANTS.values()), float) * rng.uniform(0.6, 1.6, len(stage_tiles.CONSTANTS))
    parts, _, _ = slide_tiles.recorded()
    clocks = np.exp(slide_tiles.off(np.log(wanted), parts, np.ones(len(parts))))
    assert np.abs(slide_tiles.off(np.log(slide_tiles.fit(parts, clocks)), parts, clocks)).max() < 1e-3


def test_the_costs_constants_are_about_what_the_records_give():
    parts, clocks, cold = slide_tiles.recorded()
    assert cold.sum() > 150 and (~cold).sum() > 400
    fitted = slide_tiles.fit(parts, clocks)
    now, best = (
        slide_tiles.off(np.log(constants), parts, clocks)
        for constants in (np.array(list(stage_tiles.CONSTANTS.values()), float), fitted)
    )
    assert best @ best <= now @ now < 1.05**2 * (best @ best)
    assert np.median(abs(now[cold])) < 0.15 and np.median(abs(now[~cold])) < 0.1


def test_a_row_says_its_problem_so_that_it_is_found_again():
    problem = slide_tiles.pair(32, 14, 2, 24, 32, "float16")
    tiles = stage_tiles.choose(problem.kernel_key, 32)
    row = slide_tiles.row_of(problem, tiles, 128, 0, 5.0)
    words = [text.partition(" ")[2] for text in row["problem"].values()]
    assert problem_of(f"{words[0]} float16 -> {words[1]} float16") == problem
    assert stage_tiles.Tiles(**row["tiles"]) == tiles


def test_rows_of_cold_buffers_say_so(tmp_path):
    problem = slide_tiles.pair(32, 14, 2, 24, 32, "float16")
    tiles = stage_tiles.choose(problem.kernel_key, 32)
    rows = [slide_tiles.row_of(problem, tiles, 128, 0, us, cold) for us, cold in ((5.0, "warm"), (7.0, "cold"))]
    rows.append({name: value for name, value in rows[0].items() if name != "cold"} | {"time_us": 6.0})  # an older one
    file = writing.write(tmp_path, [], ENVIRONMENT, {"copy_gbps": 4000.0}, sections={"tiles": rows})
    parts, clocks, cold = slide_tiles.recorded([records.read_run(file)])
    assert cold.tolist() == [False, True, False] and (parts == parts[0]).all()
    assert clocks == pytest.approx(np.array([5.0, 7.0, 6.0]) * slide_tiles.CLOCK_MHZ)


def test_the_pairs_that_the_planner_fuses():
    found = slide_tiles.planned("h200", ["float32"], [32])
    assert found and {(one.N, one.kind, one.first.dtype) for one in found} == {(32, "dwpw", "float32")}
    assert slide_tiles.planned("h200", ["float32"], [1, 32])[-len(found) :] == found
    assert slide_tiles.main(["--planned", "no such GPU"]) == 2
    with pytest.raises(SystemExit):
        slide_tiles.main(["--best", "0"])


def test_the_command_fits_without_a_gpu(capsys):
    assert slide_tiles.main(["--fit"]) == 0
    said = capsys.readouterr().out
    assert "tensor" in said and "root mean square" in said


@pytest.mark.skipif(target.mode == "gpu", reason="says what is missing where there is no GPU")
def test_without_a_gpu_nothing_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DWLAB_TARGET", "simulated")
    assert slide_tiles.main([str(tmp_path)]) == 2
    assert "needs a GPU" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("first", ["relu6", "relu stride 2", "gelu"])
@pytest.mark.parametrize("second", ["relu", "relu6 residual", ""])
def test_what_a_result_is_held_to_knows_every_epilogue(first, second):
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    side = 4 if "stride" in first else 7
    problem = problem_of(f"N=3 C=8 H=7 W=7 K=3 NHWC bias {first} -> N=3 C=8 F=16 H={side} W={side} NHWC bias {second}")
    given = problem.inputs("dwpw")
    given |= {"x": 8 * given["x"]}  # beyond what relu6 ends at
    want = references.reference(problem, "dwpw", given)["y"][::2]
    found = slide_tiles.expected(problem, {name: torch.from_numpy(one) for name, one in given.items()}, slice(0, 3, 2))
    assert np.abs(found.numpy() - want).max() < 1e-5 * np.abs(want).max()
