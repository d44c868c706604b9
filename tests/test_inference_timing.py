"""What is timed of a network, and which ways PyTorch has for the same."""

import pytest
from small_networks import cut, simulated, thin, tiny

torch = pytest.importorskip("torch", reason="networks run with PyTorch: pip install '.[torch]'")

from dwlab import inference  # noqa: E402
from dwlab.inference import selection, timing  # noqa: E402
from dwlab.inference.weights import random_weights  # noqa: E402
from dwlab.kernels import choices  # noqa: E402
from dwlab.measure.timing import Timing, TimingError  # noqa: E402
from dwlab.problems.layers import Fused  # noqa: E402
from dwlab.problems.networks import network  # noqa: E402

torch.set_num_threads(1)


@pytest.mark.parametrize("name", ["mobilenet_v1", "mobilenet_v2"])
def test_pytorchs_ways_have_a_relu_inside_only_where_there_is_one(name):
    made = network(name, 1, "NHWC", "float32", 32)
    eager = timing.ways(made, random_weights(made), False)
    assert sum("ReLU" in way for way in eager) == (3 if name == "mobilenet_v1" else 0)
    both = timing.ways(made, random_weights(made), True)
    assert set(eager) < set(both) and sum("torch.compile" in way for way in both) == 6


@simulated
def test_pytorchs_compiled_ways_are_compiled_once_each_and_never_given_up(monkeypatch):
    """By itself torch.compile runs one function eagerly once it was compiled for eight networks, and says nothing."""
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", lambda call, **how: compiled(call, backend="eager", **how))
    for resolution in (16, 32, 48, 64):
        made = cut(thin(network("mobilenet_v1", 1, "NHWC", "float32", resolution)), "2.pointwise")
        before = counters["stats"]["unique_graphs"]
        calls = timing.compile_baselines(made, random_weights(made))
        assert len(calls) == 6 and counters["stats"]["unique_graphs"] == before + 6
    assert not counters["graph_break"]
    torch.compiler.reset()
    monkeypatch.setattr(timing.baselines, "captured", lambda call, _: (call, None))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for call in calls.values():  # modules among them
        with timing.baseline_graph(None, "", call) as found:
            assert found[0] is call


def test_what_is_tuned_is_what_comes_first_of_layers_and_of_pairs_that_may_share_a_kernel():
    made = tiny()
    found = timing.candidates(made, 1)
    problems = [problem for _, problem in found]
    assert len(set(problems)) == len(problems) and all(stage == choices.ranking(one)[0] for stage, one in found)
    pairs = [one for one in problems if isinstance(one, Fused)]
    joints = [n for n in range(len(made.layers) - 1) if not made.joint(n)]
    assert {(made.layers[n].problem, made.layers[n + 1].problem) for n in joints} == {
        (one.first, one.second) for one in pairs
    }
    assert {layer.problem for layer in made.layers if layer.planned} == set(problems) - set(pairs)
    assert len(timing.candidates(made, 2)) > len(found)


@simulated
def test_nothing_is_timed_in_simulated_mode():
    model = inference.prepare(tiny())
    assert model.graph is None
    for call in (lambda: timing.measure(model), lambda: timing.tune(model.network)):
        with pytest.raises(TimingError, match="nothing is timed in simulated mode"):
            call()


@pytest.mark.parametrize("together, alone, fused", [(90.0, 100.0, True), (110.0, 100.0, False), (100.0, 100.0, False)])
def test_of_both_ways_timed_here_the_faster_is_run(monkeypatch, together, alone, fused):
    made = tiny()
    took = {"together": together, "alone": alone}
    monkeypatch.setattr(
        timing.baselines, "time_graph", lambda graph: Timing(took[graph], took[graph], took[graph], 3, 1, "graph", "")
    )
    by_kernels = selection.decide(made, runs=[])
    assert by_kernels.pairs and by_kernels.by == "prediction"
    ways = [inference.Model(made, {}, (), {}, (), graph) for graph in took]
    found, model, other = timing.faster(by_kernels, *ways)
    assert (model, other) == (ways[0], ways[1]) if fused else (ways[1], None)
    assert found.pieces == (by_kernels.pieces if fused else selection.layer_by_layer(made))
    assert (found.by, found.unfused_us, found.fused_us) == ("network", alone, together)
    assert f"timed here, {alone:.1f} µs layer by layer, {together:.1f} µs with" in found.why
