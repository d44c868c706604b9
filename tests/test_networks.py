"""Layer tables: shapes that chain, sizes that others counted, and the graph that says what may be fused."""

import pytest

from dwlab.problems import networks
from dwlab.problems.layers import DepthwiseConv2d, Pointwise
from dwlab.problems.networks import INPUT, NETWORKS, NetworkError, Operation, macs, network, weights


def written(problem):
    return problem.N, getattr(problem, "F", problem.C), problem.P, problem.Q


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("resolution, dtype", [(224, "float16"), (160, "int8")])
def test_each_layer_reads_what_another_wrote(name, resolution, dtype):
    made = network(name, batch=3, layout="NHWC", dtype=dtype, resolution=resolution)
    maps = {}
    for layer in made.layers:
        problem = layer.problem
        assert (problem.N, problem.layout, problem.dtype) == (3, "NHWC", dtype)
        if layer.input != INPUT:
            assert maps[layer.input] == (problem.N, problem.C, problem.H, problem.W), layer
        assert problem.residual == bool(layer.residual)
        if layer.residual not in ("", INPUT):
            assert maps[layer.residual] == written(problem), layer
        assert layer.name not in maps and layer.name.startswith(layer.block)
        maps[layer.name] = written(problem)
    # Nothing is computed in vain.
    assert [layer.name for layer in made.layers if not made.readers(layer.name)] == [made.layers[-1].name]


# Published totals, with every parameter of the batch norms: what each channel behind a convolution has of its own.
# torchvision's table of models: MobileNet_V2_Weights, 3,504,872 (2 a channel); Keras' Xception.summary(): 22,910,480
# (4 a channel); MobileNetV1 of arXiv 1704.04861, table 8: 4.2 million.
def behind(made, depthwise):
    ops = {"pointwise", "conv2d"} | ({"depthwise2d"} if depthwise else set())
    return sum(written(layer.problem)[1] for layer in made.layers if layer.problem.op in ops)


def test_parameters_and_work_are_those_of_the_literature():
    v2 = network("mobilenet_v2")
    assert v2.weights + 2 * behind(v2, depthwise=True) + 1000 == 3_504_872
    xception = network("xception")
    assert xception.weights + 4 * behind(xception, depthwise=False) + 1000 == 22_910_480
    v1 = network("mobilenet_v1")
    assert round((v1.weights + 2 * behind(v1, depthwise=True) + 1000) / 1e6, 1) == 4.2
    # arXiv 1704.04861, tables 2 and 4: 569 million multiply-adds; shares of them, and of the parameters
    made = network("mobilenet_v1")
    assert round(made.macs / 1e6) == 569
    for kind, of_macs, of_weights in ((Pointwise, 94.86, 74.59), (DepthwiseConv2d, 3.06, 1.06)):
        problems = [layer.problem for layer in made.layers if isinstance(layer.problem, kind)]
        assert 100 * sum(map(macs, problems)) / made.macs == pytest.approx(of_macs, abs=0.2)
        assert 100 * sum(map(weights, problems)) / made.weights == pytest.approx(of_weights, abs=0.2)


def test_compulsory_bytes_are_image_filters_biases_and_output():
    made = network("mobilenet_v1", batch=2)
    filters = sum(weights(layer.problem) for layer in made.layers)
    # Biases: a number for each channel written by the stem, 13 depthwise and 13 pointwise layers and the classifier.
    widths = [32, 64, 128, 128, 256, 256] + 6 * [512] + 2 * [1024]
    biases = 32 + sum(widths[:13]) + sum(widths[1:]) + 1000
    assert made.compulsory_bytes == 4 * (2 * 3 * 224 * 224 + filters + biases + 2 * 1000)
    assert 2 * network("mobilenet_v1", dtype="float16").compulsory_bytes == network("mobilenet_v1").compulsory_bytes
    small = network("mobilenet_v1", dtype="int8")
    assert small.compulsory_bytes == 3 * 224 * 224 + filters + 4 * biases + 1000


def shape_of(made, name):
    problem = made.layer(name).problem
    return problem.C, written(problem)[1], problem.H, problem.P


def test_maps_of_xception():
    """Layers of the source's list, at 224 pixels: (channels, filters, map read, map written)."""
    made = network("xception")
    assert shape_of(made, "1.pointwise1") == (64, 128, 109, 109)
    assert shape_of(made, "2.pointwise1") == (128, 256, 55, 55) and shape_of(made, "2.pool") == (256, 256, 55, 28)
    assert shape_of(made, "3.pointwise2") == (728, 728, 28, 28) and shape_of(made, "12.pointwise2")[1:3] == (1024, 14)
    assert shape_of(made, "13.pointwise1") == (1024, 1536, 7, 7)
    assert shape_of(made, "13.pointwise2") == (1536, 2048, 7, 7)
    assert sum(isinstance(layer.problem, DepthwiseConv2d) for layer in made.layers) == 34
    assert shape_of(made, "2.shortcut") == (128, 256, 28, 28)


def test_transformers_blocks_and_proxylessnas_have_their_widths():
    for name, width in {"ceit_t": 192, "ceit_s": 384, "ceit_b": 768}.items():
        blocks = network(name).blocks
        assert len(blocks) == 12
        for block in blocks.values():
            assert [layer.channels for layer in block] == [(width, 4 * width), (4 * width,) * 2, (4 * width, width)]
            assert {layer.problem.H for layer in block} == {14}
    maps = {layer.problem.H: layer.problem.C for layer in network("cmt_s").layers if layer.name.endswith("expand")}
    assert maps == {56: 64, 28: 128, 14: 256, 7: 512}
    made = network("proxylessnas")
    hidden = [layer.problem.C for layer in made.layers if layer.name.endswith(".depthwise")]
    assert hidden == [32, 72, 96, 168, 336, 336, 672, 384, 384, 768, 1536, 1536, 1536, 1536]
    assert made.layer("head.expand").channels == (432, 1280)
    assert [layer.block for layer in made.layers if layer.residual] == ["4", "6", "8", "9", "11", "12", "13"]


def index(made, name):
    return made.layers.index(made.layer(name))


def test_shortcuts_and_pools_are_not_crossed():
    made = network("mobilenet_v2")
    assert made.joint(index(made, "2.expand")) == "" == made.joint(index(made, "2.depthwise"))
    assert made.joint(index(made, "1.project")) == ""  # 16 channels become 24: no shortcut
    assert made.joint(index(made, "2.project")) == "3.project adds what 2.project writes"
    # The next block strides, so nobody else needs the map; but it is a sum, and a fused kernel adds at its end only.
    assert made.joint(index(made, "3.project")) == "3.project adds a map, which only a last layer can"
    assert len(made.pairs) == 35
    made = network("xception")
    assert made.joint(index(made, "1.shortcut")) == "1.depthwise1 reads stem.2"
    assert made.joint(index(made, "1.pointwise2")) == "1.pool is no depthwise or pointwise layer"
    assert list(made.kernels)[-3:] == [
        ("13.depthwise1", "13.pointwise1"), ("13.pointwise1", "13.depthwise2"), ("13.depthwise2", "13.pointwise2"),
    ]  # fmt: skip
    assert len(made.pairs) == 3 * 3 + 8 * 5 + 2 * 3


@pytest.mark.parametrize("name", NETWORKS)
def test_what_the_second_layer_of_a_pair_reads_nobody_else_does(name):
    made = network(name)
    assert made.pairs
    for place in made.pairs:
        first, second = made.layers[place : place + 2]
        assert first.planned and second.planned
        assert second.input == first.name and made.readers(first.name) == (second.name,)


@pytest.mark.parametrize("name", NETWORKS)
def test_int8_layers_have_what_int8_can(name):
    """Same layers, same work; GELU is an operation behind them, and adds what a shortcut brings."""
    made, plain = network(name, dtype="int8"), network(name)
    assert made.macs == plain.macs
    activations = [layer.problem.activation for layer in plain.layers if layer.planned]
    assert [layer.problem.op for layer in made.layers].count("gelu") == activations.count("gelu")
    sums = [layer for layer in plain.layers if layer.planned and layer.residual]
    behind = sum(layer.problem.op == "gelu" and layer.problem.residual for layer in made.layers)
    assert behind == sum(layer.problem.activation == "gelu" for layer in sums)
    assert sum(layer.planned and layer.problem.residual for layer in made.layers) == len(sums) - behind
    assert {layer.problem.activation for layer in made.layers} <= {"none", "relu"}
    if name == "mobilenet_v2":
        assert made.layer("3.project").residual == "2.project" and made.layer("3.project").problem.residual
    if name == "ceit_t":
        last = made.layer("1.project.gelu")
        assert last.residual == "input" and last.problem.residual and last.input == "1.project"
    back = networks.in_float(made)
    six = [layer.name for layer in plain.layers if layer.problem.activation == "relu6"]
    assert [layer.name for layer in back.layers if layer.problem.activation == "relu6"] == six
    if "gelu" not in activations:
        assert [layer.problem for layer in back.layers] == [layer.problem for layer in plain.layers]


@pytest.mark.parametrize("resolution", [0, -224, 224.0, True, "224", None])
def test_a_resolution_is_a_whole_number(resolution):
    with pytest.raises(NetworkError, match=r"resolution .* takes a whole number of pixels, such as 224"):
        networks.network.__wrapped__("mobilenet_v1", resolution=resolution)


def test_what_is_not_there_or_a_resolution_that_does_not_fit_is_refused():
    with pytest.raises(NetworkError, match=r"no output on a map of 1×1: take a larger resolution"):
        network("xception", resolution=3)
    with pytest.raises(NetworkError, match="resolution 100: cmt_s takes a multiple of 32 pixels"):
        network("cmt_s", resolution=100)
    with pytest.raises(NetworkError, match="no network 'mobilnet_v2'. The nearest is 'mobilenet_v2'"):
        network("mobilnet_v2")
    with pytest.raises(NetworkError, match="mobilenet_v2 has no layer '2.depthwize'. The nearest is '2.depthwise'"):
        network("mobilenet_v2").layer("2.depthwize")
    with pytest.raises(NetworkError, match="no operation 'maxpool'. The nearest is 'max_pool'"):
        Operation("maxpool", 1, 1, 1, 4, 4)
    with pytest.raises(NetworkError, match="has no layers 53 and 54: it has 54"):
        network("mobilenet_v2").joint(53)
