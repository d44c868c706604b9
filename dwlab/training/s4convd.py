"""S4ConvD (arXiv 2502.21035) in PyTorch: a small model whose one expensive step is the depthwise convolution.

    features (B, 4, L) -> 1x1 convolution to H channels -> blocks -> 1x1 convolution to log(1 + kWh), (B, L)

A block writes out the filter of a diagonal state space model, K taps for each channel, and convolves with it, causally:

    w[h, l] = 2 Re sum_n C[h, n] (exp(step[h] A[h, n]) - 1) / A[h, n] exp(step[h] A[h, n] l),  A = -exp(a_re) + i a_im
    x + GLU(W GELU(dropout(w * x + D x)))

Which code convolves is the only thing that differs between models of the same configuration (`conv`): a stage of
dwlab.kernels.depthwise1d for all three paths, the best stage for the shape, or one of PyTorch's own ways. The
parameters are the same, so a state_dict fits every variant. The model predicts log(1 + kWh), in which the paper's loss,
RMSLE, is a root mean square: there is no logarithm of a negative prediction.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    from dwlab.gpu.target import NO_TORCH

    raise ModuleNotFoundError(NO_TORCH, name="torch") from None

from dwlab.kernels import registry, torch_ops
from dwlab.problems import nearest

CHANNELS, BLOCKS, STATES, TAPS, DROPOUT = 128, 4, 32, 48, 0.01
"""The paper's configuration: H, blocks, N/2 complex states, K = L, dropout."""

PATHS = ("forward", "input_grad", "weight_grad")

Convolution = Callable[[Any, Any], Any]
"""(x (B, H, L), w (H, K)) -> y (B, H, L), causal, differentiable in both."""


class ModelError(ValueError):
    """A model that cannot be built as requested, or an input that it cannot take; the message says what to do."""


# ----------------------------------------------------------------------------------------------- the convolution's ways


def conv1d_inside(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """PyTorch's conv1d with its own padding on both sides, of whose output the first L are kept."""
    taps = w.shape[-1]
    return F.conv1d(x, w.flip(-1)[:, None], padding=taps - 1, groups=x.shape[1])[..., : x.shape[-1]]


class _Toeplitz(torch.autograd.Function):
    """y[:, h] = x[:, h] @ T[h] with T[h, s, t] = w[h, t - s]: a matrix product for each channel, and two for gradients.

    The products write straight into tensors of (B, H, L), so nothing is copied for the layers around.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x, length, taps = x.contiguous(), x.shape[-1], w.shape[-1]
        j = torch.arange(length, device=x.device) - torch.arange(length, device=x.device)[:, None]
        matrices = torch.where((j >= 0) & (j < taps), w[:, j.clamp(0, taps - 1)], w.new_zeros(()))
        y = torch.empty_like(x)
        torch.bmm(x.transpose(0, 1), matrices, out=y.transpose(0, 1))
        ctx.save_for_backward(x, matrices)
        ctx.taps = taps
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, matrices = ctx.saved_tensors
        dy, (_, channels, length) = dy.contiguous(), x.shape
        dx = torch.empty_like(x)
        torch.bmm(dy.transpose(0, 1), matrices.transpose(1, 2), out=dx.transpose(0, 1))
        products = torch.bmm(x.permute(1, 2, 0), dy.transpose(0, 1))
        # dw[h, j] is the sum of a diagonal. In rows wide enough for every tap, one more than the width leads along it.
        width = length + ctx.taps
        wide = F.pad(products, (0, ctx.taps)).contiguous()
        dw = wide.as_strided((channels, length, ctx.taps), (length * width, width + 1, 1)).sum(1)
        return dx, dw


def toeplitz(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The convolution as one matrix product for each channel, PyTorch's fastest way for short rows."""
    return _Toeplitz.apply(x, w)


LIBRARY: dict[str, Convolution] = {
    "torch": torch_ops.reference_conv1d,
    "torch_inside": conv1d_inside,
    "fft": torch_ops.fft_conv1d,
    "toeplitz": toeplitz,
}
"""PyTorch's own ways: conv1d on rows padded before it, conv1d with its own padding, FFT, one matrix a channel.

conv2d in channels-last, the slowest of the baselines on an H200, would have the whole model laid out for it.
"""


@functools.cache
def stage_names() -> tuple[str, ...]:
    """The stages that all three paths have, in their order: naive, coalesced, ..."""
    names = [[one.name for one in registry.stages("depthwise1d", path)] for path in PATHS]
    return tuple(name for name in names[0] if all(name in others for others in names[1:]))


def ways() -> tuple[str, ...]:
    """Every name that `conv` may have: "best", the stages, PyTorch's own."""
    return ("best", *stage_names(), *LIBRARY)


def convolution(conv: str) -> Convolution:
    """The convolution of a name. Raises ModelError, with the nearest, for one that is not in ways()."""
    if conv in LIBRARY:
        return LIBRARY[conv]
    if conv not in ways():
        raise ModelError(f"there is no convolution {conv!r}. {nearest(conv, ways())} There are: {', '.join(ways())}")
    chosen = None if conv == "best" else dict.fromkeys(PATHS, conv)
    return lambda x, w: torch_ops.depthwise_conv1d(x, w, padding="causal", stages=chosen)


# ------------------------------------------------------------------------------------------------------------ the model


class Filter(nn.Module):
    """The filters w (channels, taps) of diagonal state space models, started as S4D-Lin is (arXiv 2206.11893)."""

    def __init__(self, channels: int, taps: int, states: int):
        super().__init__()
        self.taps = taps
        low, high = math.log(0.001), math.log(0.1)
        self.log_step = nn.Parameter(low + (high - low) * torch.rand(channels))
        self.c = nn.Parameter(torch.randn(channels, states, 2) * 0.5**0.5)
        self.a_re = nn.Parameter(torch.full((channels, states), math.log(0.5)))
        self.a_im = nn.Parameter(math.pi * torch.arange(states, dtype=torch.float32).repeat(channels, 1))

    def forward(self) -> torch.Tensor:
        a = torch.complex(-self.a_re.exp(), self.a_im)
        scaled = a * self.log_step.exp()[:, None]
        c = torch.view_as_complex(self.c) * (scaled.exp() - 1) / a
        times = torch.arange(self.taps, device=self.c.device)
        return 2 * (c[..., None] * (scaled[..., None] * times).exp()).sum(1).real


class Block(nn.Module):
    """x (B, H, L) -> x + GLU(W GELU(dropout(w * x + D x))), (B, H, L)."""

    def __init__(self, channels: int, taps: int, states: int, dropout: float, convolve: Convolution):
        super().__init__()
        self.filter = Filter(channels, taps, states)
        self.d = nn.Parameter(torch.randn(channels, 1))
        self.dropout = nn.Dropout(dropout)
        self.mix = nn.Conv1d(channels, 2 * channels, 1)
        self.convolve = convolve

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.convolve(x, self.filter().contiguous()) + self.d * x
        return x + F.glu(self.mix(F.gelu(self.dropout(y))), dim=1)


class S4ConvD(nn.Module):
    """features (B, F, L) float32 -> log(1 + kWh) of each hour, (B, L).

    conv: which code convolves, one of ways(). taps: length of the filters; L may be any. Causal: hour t sees the
    features up to t. Raises ModelError for sizes below 1, a dropout outside [0, 1), or an unknown conv.
    """

    def __init__(
        self,
        features: int = 4,
        channels: int = CHANNELS,
        blocks: int = BLOCKS,
        states: int = STATES,
        taps: int = TAPS,
        dropout: float = DROPOUT,
        conv: str = "torch",
    ):
        super().__init__()
        sizes = {"features": features, "channels": channels, "blocks": blocks, "states": states, "taps": taps}
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ModelError(f"{name} must be a whole number from 1 up, not {size!r}")
        if not 0 <= dropout < 1:
            raise ModelError(f"dropout must lie in [0, 1), not {dropout!r}")
        self.conv, self.features = conv, features
        convolve = convolution(conv)
        self.spread = nn.Conv1d(features, channels, 1)
        self.blocks = nn.ModuleList(Block(channels, taps, states, dropout, convolve) for _ in range(blocks))
        self.readout = nn.Conv1d(channels, 1, 1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if features.ndim != 3 or features.shape[1] != self.features:
            raise ModelError(f"features must be (B, {self.features}, L), but the shape is {tuple(features.shape)}")
        x = self.spread(features)
        for block in self.blocks:
            x = block(x)
        return self.readout(x)[:, 0]


def rmsle(predicted: torch.Tensor, load: torch.Tensor) -> torch.Tensor:
    """Root mean squared logarithmic error of predicted (B, L), log(1 + kWh), against load (B, L), kWh of 0 or more.

    1e-12 under the root keeps its gradient finite where every prediction is right.
    """
    return (F.mse_loss(predicted, torch.log1p(load)) + 1e-12).sqrt()
