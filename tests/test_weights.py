"""Weights of networks: of PyTorch's models, random ones, and those that cannot be used."""

import copy
import re

import numpy as np
import pytest
from small_networks import cut, image_of, thin, tiny

torch = pytest.importorskip("torch", reason="models are PyTorch's: pip install '.[torch]'")

from dwlab import inference  # noqa: E402
from dwlab.inference import with_torch  # noqa: E402
from dwlab.inference.weights import check_weights, random_weights, weights_from_torch  # noqa: E402
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


def test_a_model_with_its_batch_norms_folded(trained):
    made = network("mobilenet_v2", 1, "NCHW", "float32", 32)
    weights = weights_from_torch(made, trained)
    check_weights(made, weights)
    image = image_of(made)
    with torch.inference_mode():
        wanted = trained(torch.from_numpy(image))
    assert float((by_pytorch(made, weights, image) - wanted).norm() / wanted.norm()) < 1e-5


def test_a_model_of_other_layers_is_refused(trained):
    made = cut(network("mobilenet_v2", 1, "NCHW", "float32", 32), "1.project")
    other = copy.deepcopy(trained.features[:2]).eval()
    other[1].conv[1], other[1].conv[2] = (one.eval() for one in block(32, 8, activation=False))
    for model, words in (
        (other, "1.project has weights (8, 32, 1, 1), not (16, 32): is it"),
        (
            torch.nn.Sequential(other[0], other[1].conv[0]).eval(),
            "the model has 2 convolutions and linear layers, not 3: is it mobilenet_v2",
        ),
    ):
        with pytest.raises(InferenceError, match=re.escape(words)):
            weights_from_torch(made, model)


@pytest.mark.parametrize("name", NETWORKS)
def test_random_weights_keep_maps_in_size(name):
    made = thin(network(name, 1, "NCHW", "float32", 32))
    weights = random_weights(made, 5)
    check_weights(made, weights)
    assert 0.01 < float(by_pytorch(made, weights, image_of(made)).std()) < 100
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
