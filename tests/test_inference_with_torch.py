"""Networks by PyTorch alone."""

import numpy as np
import pytest
from small_networks import cut, image_of, thin

torch = pytest.importorskip("torch", reason="networks run with PyTorch: pip install '.[torch]'")

from dwlab.inference import with_torch  # noqa: E402
from dwlab.inference.weights import random_weights  # noqa: E402
from dwlab.problems.networks import network  # noqa: E402


@pytest.mark.parametrize("gemm", [False, True])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_relu_in_the_call_before_it_is_the_same_network(monkeypatch, gemm, layout):
    """cuDNN's call is not there on the CPU: one that computes what its documentation says stands for it."""
    calls = []

    def convolution_relu(x, w, b, stride, padding, dilation, groups):
        calls.append(groups)
        return torch.nn.functional.conv2d(x, w, b, stride, padding, dilation, groups).relu()

    monkeypatch.setattr(torch, "cudnn_convolution_relu", convolution_relu)
    made = cut(thin(network("mobilenet_v1", 2, layout, "float32", 16)), "2.pointwise")
    own = {layer: {name: torch.from_numpy(one) for name, one in arrays.items()}
           for layer, arrays in random_weights(made).items()}  # fmt: skip
    image = torch.from_numpy(image_of(made))
    plain = with_torch.forward(made, own, image, gemm=gemm)
    joined = with_torch.forward(made, own, image, gemm=gemm, joined=True)
    np.testing.assert_allclose(joined, plain, rtol=1e-5, atol=1e-6)
    assert bool((joined == 0).any()) and len(calls) == (0 if gemm else 5)
    assert gemm or calls.count(1) == 3  # the others are depthwise
