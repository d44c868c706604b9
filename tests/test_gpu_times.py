"""Times of a real GPU that make sense: measured by one process alone, the last step of `make test` on a GPU."""

import json
import re

import numpy as np
import pytest

from dwlab import cuda, problems, study
from dwlab.gpu import machine, target
from dwlab.measure import device, timing
from dwlab.measure.profile import profile
from dwlab.model import roofline
from dwlab.problems import DepthwiseConv1d

pytestmark = pytest.mark.skipif(target.mode != "gpu", reason=f"needs a GPU, and there is none: {target.reason}")


@cuda.jit
def copies(source, out):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = source[i]


def timed(count, **how):
    source, out = cuda.to_device(np.arange(count, dtype=np.float32)), cuda.device_array(count, np.float32)
    return timing.time_launches(lambda stream: copies[-(-count // 256), 256, stream](source, out), **how)


def test_a_copy_of_twice_the_size_takes_twice_as_long_and_one_timed_twice_differs_by_noise_only():
    count = 1 << 26  # 512 MB moved: far above any L2
    one, two = timed(count), timed(2 * count)
    assert two.median_us / one.median_us == pytest.approx(2, rel=0.08)
    assert timed(count).median_us == pytest.approx(one.median_us, rel=0.05)
    assert one.method == ("graph" if one.median_us < timing.GRAPH_BELOW_US else "events") and one.spread < 0.2


def test_graph_and_events_agree_where_both_can_be_used():
    count = 1 << 26  # long enough for events, and for the graph's gaps not to count
    events, graph = timed(count, graph_below_us=0), timed(count, graph_below_us=1e9)
    assert (events.method, graph.method) == ("events", "graph")
    assert graph.median_us == pytest.approx(events.median_us, rel=0.1)


def test_a_short_kernel_is_timed_in_a_graph_below_the_cost_of_a_launch():
    short = timed(1 << 10)
    assert short.method == "graph" and short.note == ""
    assert 0.3 < short.median_us < timed(1 << 10, graph_below_us=0).median_us


def test_ceilings_are_plausible():
    measured = device.measure(quick=True)
    ceilings = measured.ceilings
    assert ceilings.measured and ceilings.source.startswith("measured; copy of ")
    known = machine.datasheet(measured.name)
    if known is not None:
        assert 0.5 * known.ceilings.copy_gbps < ceilings.copy_gbps < known.ceilings.copy_gbps
        assert 0.6 * known.ceilings.fma_tflops < ceilings.fma_tflops < 1.1 * known.ceilings.fma_tflops
        assert (measured.sms, measured.compute_capability) == (known.sms, known.compute_capability)
    assert ceilings.l2_gbps > ceilings.copy_gbps
    assert 0.5 < ceilings.launch_us < 1000
    assert roofline.ridge(ceilings) > 1


def test_a_problem_beyond_the_gpus_memory_names_one_that_fits():
    free = cuda.current_context().get_memory_info()[0]
    rows = free // (4 * 2 * 128 * 48) + 1000
    bench = object.__new__(study.GpuBench)  # without its ceilings, which this needs no measuring of
    bench.machine, bench.few = machine.present(), False
    with pytest.raises(study.OutOfMemory, match="MB of GPU memory") as caught:
        with bench.prepare(DepthwiseConv1d(int(rows), 128, 48, 48), "forward"):
            pass
    shape = re.search(r'--problem "([^"]+)"', str(caught.value))[1]
    assert study.memory_needed(problems.problem(shape), "forward") < free


def test_the_quick_study_measures_and_records(tmp_path, capsys):
    from dwlab.__main__ import main

    path = tmp_path / "run.json"
    status = main(["study", "--op", "depthwise1d", "--path", "forward", "--quick", "--json", "--record", str(path)])
    made = json.loads(capsys.readouterr().out)
    assert status == 0, [row["verdict"] for row in made["rows"]]
    for row in made["rows"]:
        assert row["passed"] and row["time_us"] > 0 and 0 < row["fraction_of_copy"] < 1.03
        assert row["p10_us"] <= row["time_us"] <= row["p90_us"]
    assert json.loads(path.read_text())["environment"]["gpu"] == made["environment"]["gpu"]


def test_times_of_a_gpu_are_plausible_and_in_order():
    stream, big = cuda.stream(), 1 << 22
    host = cuda.pinned_array(big, np.float32)
    host[:] = 1
    x, y = cuda.device_array(big, np.float32), cuda.device_array(big, np.float32)
    for _ in range(2):
        with profile() as p, p.range("all"):
            x.copy_to_device(host, stream=stream)
            copies[big // 256, 256, stream](x, y)
            y.copy_to_host(host, stream=stream)
            stream.synchronize()
        host[:] = 1
    timeline = p.timeline
    work = [one for one in timeline.items if one.device]
    assert [one.kind for one in work] == ["to device", "kernel", "to host"]
    assert len({one.stream for one in work}) == 1
    for before, after in zip(work, work[1:], strict=False):
        assert before.device[1] <= after.device[0] + 1
    shares = timeline.shares()
    assert 0 < shares["kernels"] < shares["copies"] < timeline.wall_us  # 32 MB over a bus, and in the GPU's memory
    assert shares["both"] == 0 and shares["waiting"] > 0
    assert any(one.kind == "range" for one in timeline.items)
