"""The fusion planner's widget: the planner's own numbers, decisions that flip, limits, bad input, its face."""

import time

import pytest
from seconds import alone, piece

from dwlab.gpu import specs as gpus
from dwlab.planner.accesses import Tile, sizes
from dwlab.planner.modules import Rules, best
from dwlab.widgets import planner as widget


def decisions(panel):
    """(by bytes, by predicted time) as the panel's table has them."""
    return tuple(row[-1] for row in panel.tables[2].rows)


@pytest.mark.parametrize("name", ["mobilenet_v1 3.depthwise", "mobilenet_v2 2.expand", "mobilenet_v2 12.expand"])
@pytest.mark.parametrize("gpu", ["t4", "h200"])
def test_with_the_planners_tile_it_has_the_planners_numbers(name, gpu):
    layers, found = widget.pair(name), gpus.find(gpu)
    kinds = ["dwpw"] if "depthwise" in name else ["pwdw", "pwdw_r"]
    modules = [best(kind, layers, found, Rules()) for kind in kinds]
    for module in (one for one in modules if not isinstance(one, str)):
        weighed = widget.weigh(layers, gpu, module.tile)
        assert weighed.fused == module
        assert not weighed.exceeded
        assert weighed.fuse_by_time == (module.time_us < weighed.unfused_us)


@pytest.mark.parametrize("name", widget.PAIRS)
def test_parts_add_up_and_only_the_fused_kernel_has_nothing_between(name):
    one = widget.weigh(widget.pair(name), "t4", Tile(32, 4, 8))
    found = widget.parts(one)
    assert sum(apart for apart, _ in found.values()) == one.unfused_bytes
    assert sum(fused for _, fused in found.values()) == one.fused.gma_bytes
    assert found["between"][0] >= 2 * sizes(one.layers[:1])["y"][0] and found["between"][1] == 0
    assert found["y"] == (sizes(one.layers)["y"][0] + sizes(one.layers).get("r", (0,))[0],) * 2


def test_the_decision_flips_with_the_tile_the_gpu_and_the_shared_memory():
    name = "mobilenet_v1 3.depthwise"
    assert decisions(widget.view(name, "t4", 64, 8, 8))[0] == "unfused"
    assert decisions(widget.view(name, "t4", 128, 8, 8))[0] == "fuse"
    assert decisions(widget.view(name, "h200", 128, 8, 8))[0] == "unfused", "fewer blocks than multiprocessors"
    needed = widget.weigh(widget.pair(name), "t4", Tile(128, 8, 8)).fused.shared_bytes
    kib = -(-needed // 1024)
    assert decisions(widget.view(name, "t4", 128, 8, 8, shared_kib=kib))[0] == "fuse"
    panel = widget.view(name, "t4", 128, 8, 8, shared_kib=kib - 1)
    assert decisions(panel) == ("unfused", "unfused")
    assert panel.problems == (f"Shared memory: {needed:,} bytes a block, {(kib - 1) * 1024:,} are allowed.",)


def test_all_limits_are_named():
    found = widget.view("mobilenet_v1 8.depthwise", "t4", 512, 14, 14).problems
    assert [text.split(":")[0] for text in found] == ["Shared memory", "On chip"]
    found = widget.view("mobilenet_v2 2.expand", "h200", 8, 1, 1).problems
    assert [text.split(":")[0] for text in found] == ["More work"], "3 × 3 pixels are computed for each output"


WRONG = [
    (("mobilenet_v9 1.depthwise",), "There is no network 'mobilenet_v9'"),
    (("mobilenet_v1 stem",), "cannot share a kernel with the next layer"),
    (("mobilenet_v1 3.depthwise", "t5"), "There is no GPU 't5'"),
    (("mobilenet_v1 3.depthwise", "t4", 0), "The tile's channels are 0"),
    (("mobilenet_v1 3.depthwise", "t4", 8, 8, 8, None, 1, "float8"), "float8"),
]


@pytest.mark.parametrize(("arguments", "says"), WRONG, ids=[says for _, says in WRONG])
def test_what_cannot_be_used_makes_a_panel_that_says_why(arguments, says):
    panel = widget.view(*arguments)
    assert panel.draw is None and len(panel.problems) == 1 and says in panel.problems[0], panel.problems
    assert "Not possible" in panel.html()


@pytest.mark.parametrize("arguments", [(), ("mobilenet_v1 8.depthwise", "h200", 512, 14, 14)])
def test_a_panel_has_picture_words_and_numbers(arguments):
    panel = widget.view(*arguments)
    assert panel.figure().svg() in panel.html()
    assert panel.figure().alt == panel.alt and len(panel.alt) > 100
    assert "predicted, not measured" in panel.text() and panel.tables[0].rows[-1][2] in panel.text()


def test_a_step_of_the_widget_is_quick():
    widget.view(gpu="h200").html()  # records
    piece()
    pieces, steps = [], []
    for filters in range(24, 32):
        pieces.append(piece())
        start = time.process_time()
        widget.view(gpu="t4", filters=filters).html()
        steps.append(time.process_time() - start)
    assert alone(sum(steps) / len(steps), pieces) < 0.3  # about 0.1; 1.5 where all records are read anew
