"""Weights of networks: of PyTorch's state dicts, random ones, and those that cannot be used."""

import numpy as np
import pytest
from small_networks import image_of, thin, tiny

torch = pytest.importorskip("torch", reason="state dicts are PyTorch's: pip install '.[torch]'")

from dwlab import inference  # noqa: E402
from dwlab.inference import with_torch  # noqa: E402
from dwlab.inference.weights import check_weights, load_weights, random_weights, weights_from_torch  # noqa: E402
from dwlab.problems.networks import NETWORKS, InferenceError, network  # noqa: E402


def block(read, written, kernel=1, stride=1, groups=1, activation=True):
    """Convolution, batch norm and ReLU6 as torchvision's Conv2dNormActivation has them."""
    nn = torch.nn
    layers = [nn.Conv2d(read, written, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(written)]
    return layers + [nn.ReLU6()] * activation


class Inverted(torch.nn.Module):
    def __init__(self, read, hidden, written, stride):
        super().__init__()
        nn = torch.nn
        expand = [nn.Sequential(*block(read, hidden))] if hidden != read else []
        depthwise = nn.Sequential(*block(hidden, hidden, 3, stride, hidden))
        self.conv = nn.Sequential(*expand, depthwise, *block(hidden, written, activation=False))
        self.shortcut = read == written and stride == 1

    def forward(self, x):
        return x + self.conv(x) if self.shortcut else self.conv(x)


class MobileNetV2(torch.nn.Module):
    """The network with the names of its tensors as torchvision's, written from the table of arXiv 1801.04381."""

    def __init__(self):
        super().__init__()
        nn = torch.nn
        features, read = [nn.Sequential(*block(3, 32, 3, 2))], 32
        for wider, written, times, stride in (
            (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
        ):  # fmt: skip
            for number in range(times):
                features.append(Inverted(read, wider * read, written, stride if not number else 1))
                read = written
        self.features = nn.Sequential(*features, nn.Sequential(*block(320, 1280)))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def shaken(module, seed=3):
    """Random statistics and factors in every batch norm: those of a new one would hide a fold that leaves them out."""
    torch.manual_seed(seed)
    for one in module.modules():
        if isinstance(one, torch.nn.BatchNorm2d):
            one.running_mean.normal_(0, 0.3)
            one.running_var.uniform_(0.3, 2)
            one.weight.data.uniform_(0.5, 1.5)
            one.bias.data.normal_(0, 0.3)
    return module.eval()


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    return shaken(MobileNetV2())


def by_pytorch(made, weights, image):
    own = {layer: {name: torch.from_numpy(one) for name, one in arrays.items()} for layer, arrays in weights.items()}
    with torch.inference_mode():
        return with_torch.forward(made, own, torch.from_numpy(image))


def test_a_state_dict_of_torchvision_with_its_batch_norms_folded(trained):
    made = network("mobilenet_v2", 2, "NCHW", "float32", 64)
    weights = weights_from_torch(made, trained.state_dict())
    check_weights(made, weights)
    image = image_of(made)
    with torch.inference_mode():
        wanted = trained(torch.from_numpy(image))
    found = by_pytorch(made, weights, image)
    assert float((found - wanted).norm() / wanted.norm()) < 1e-5


DROP = object()


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("features.0.1.running_var", DROP, "no 'features.0.1.running_var', which layer stem needs, of shape (32,)"),
        ("features.0.0.weight", DROP, "52 convolutions and linear layers, mobilenet_v2 has 53: is it of this network?"),
        ("classifier.1.bias", DROP, "no 'classifier.1.bias', which layer head.classifier needs"),
        ("classifier.1.weight", torch.zeros(10, 1280), "has shape (10, 1280); (1000, 1280) is needed"),
        ("features.1.conv.0.1.weight", torch.full((32,), np.nan), "numbers that are not finite"),
        ("features.1.conv.0.1.running_var", torch.full((32,), -1.0), "holds -1: no variance is negative"),
        ("features.1.conv.1.weight", torch.ones(16, 32, 1, 1, dtype=torch.int64), "int64; floating-point"),
    ],
)
def test_tensors_that_cannot_be_used_are_named(trained, key, value, words):
    given = dict(trained.state_dict())
    given[key] = value
    if value is DROP:
        del given[key]
    with pytest.raises(InferenceError) as raised:
        weights_from_torch(network("mobilenet_v2"), given)
    assert words in str(raised.value), raised.value


def test_what_is_no_state_dict(trained):
    with pytest.raises(InferenceError, match="a MobileNetV2 is no state dict"):
        weights_from_torch(network("mobilenet_v2"), trained)
    with pytest.raises(InferenceError, match="0 convolutions and linear layers.*Its first tensors: none"):
        weights_from_torch(network("mobilenet_v2"), {})
    with pytest.raises(InferenceError, match=r"holds dictionaries \(model, ema\): give the state dict in it alone"):
        weights_from_torch(network("mobilenet_v2"), {"epoch": 3, "model": trained.state_dict(), "ema": {}})
    with pytest.raises(InferenceError, match="feed-forward blocks alone"):
        weights_from_torch(network("ceit_t"), {})


@pytest.mark.parametrize("name", NETWORKS)
def test_random_weights_keep_maps_in_size(name):
    made = thin(network(name, 1, "NCHW", "float32", 64))
    weights = random_weights(made, 5)
    check_weights(made, weights)
    y = by_pytorch(made, weights, image_of(made))
    assert 0.01 < float(y.std()) < 100
    same = random_weights(made, 5)
    assert all(np.array_equal(weights[a][b], same[a][b]) for a in weights for b in weights[a])


@pytest.mark.parametrize(
    "spoil, words",
    [
        (lambda w: w.pop("1.project"), "no 'w' of layer 1.project: (8, 8) is needed"),
        (lambda w: w["stem"].pop("b"), "no 'b' of layer stem"),
        (lambda w: w.update({"1.projec": {}}), "no layer '1.projec' with weights. The nearest is '1.project'"),
        (lambda w: w["1.depthwise"].update(w=np.zeros((3, 3, 8), np.float32)), "shape (3, 3, 8); (8, 3, 3) is needed"),
        (lambda w: w["stem"]["b"].fill(np.inf), "'b' of layer stem holds numbers that are not finite"),
    ],
)
def test_weights_that_do_not_fit(spoil, words):
    made = tiny()
    weights = random_weights(made)
    spoil(weights)
    with pytest.raises(InferenceError) as raised:
        inference.prepare(made, weights)
    assert words in str(raised.value)


def test_files_that_are_no_weights(tmp_path):
    made = network("mobilenet_v2")
    path = tmp_path / "weights.pt"
    for content in (b"", b"no weights", b"PK\x03\x04 damaged"):
        path.write_bytes(content)
        with pytest.raises(InferenceError, match="weights.pt is no file of weights"):
            load_weights(made, path)
    with pytest.raises(InferenceError, match="there is no file"):
        load_weights(made, tmp_path / "none.pt")
    torch.save([1, 2], path)
    with pytest.raises(InferenceError, match="a list is no state dict"):
        load_weights(made, path)
