"""What is wrong with a network that the kernels run is found, in the step where it is."""

from dataclasses import replace

import pytest
from small_networks import cut, image_of, thin, tiny

torch = pytest.importorskip("torch", reason="networks run with PyTorch: pip install '.[torch]'")

from dwlab import inference  # noqa: E402
from dwlab.inference import comparison  # noqa: E402
from dwlab.inference.weights import random_weights  # noqa: E402
from dwlab.problems.networks import network  # noqa: E402

torch.set_num_threads(1)  # maps are tiny here: more threads wait for each other, where others use the CPU too


def test_a_wrong_bias_is_found_in_its_step_alone():
    made = tiny()
    weights = random_weights(made)
    weights["1.project"]["b"][3] += 1e-4
    wrong = inference.prepare(made, weights, keep=True)
    found = comparison.compare(replace(wrong, weights=random_weights(made)), image_of(made))
    assert [step.layers for step in found.steps if not step.ok] == [("1.project",)] and not found.ok
    assert "1 of 5 steps are wrong, first 1.project" in found.summary()


def test_memory_that_is_shared_too_early_is_found(monkeypatch):
    made = cut(thin(network("mobilenet_v2", 1, "NHWC", "float32", 8)), "3.project")

    def wrong(steps, keep=False):
        places = right(steps, keep)
        if not keep:
            places["3.depthwise"] = places["2.project"]  # which 3.project still adds
        return places

    right = inference.share
    monkeypatch.setattr(inference, "share", wrong)
    found = comparison.compare(inference.prepare(made), image_of(made))
    assert not found.reused and not found.ok and "shared memory" in found.summary()


def test_a_step_that_writes_nothing_is_found():
    made = tiny()
    model = inference.prepare(made, keep=True)
    lazy = (*model.starters[:2], lambda stream: None, *model.starters[3:])
    inference.run(model, image_of(made))  # what this one leaves must not pass for the lazy one's
    # graph: on a GPU that is what runs, of all steps as they were.
    found = comparison.compare(replace(model, starters=lazy, graph=None), image_of(made))
    assert not found.ok and [step.ok for step in found.steps][2] is False
    assert found.to_dict()["steps"][2]["error"] is None  # it was NaN, which JSON has not
