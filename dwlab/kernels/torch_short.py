"""The short causal convolution of language models' layers as an operator of PyTorch's: bias, SiLU, state, one token.

    y, state = short_conv(x, w, b, "silu", return_final_state=True)      # x (B, H, L): a prompt
    y = short_conv_update(x, state, w, b, "silu")                        # x (B, H): its next token; state moves on
    layer = ShortConv1d(64, 4, activation="silu")                        # a module: loads the state of an nn.Conv1d

y[b, h, t] = activation(bias[h] + sum_j w[h, j] x[b, h, t - j]), in one kernel for up to 9 taps (`flat`). A state is the
K - 1 elements before the next one, (B, H, K - 1), the newest last: all that the next call needs, as causal-conv1d's
initial_states. float32, float16 and bfloat16; filters and bias may be float32 beside 16 bits. In simulated mode CPU
tensors run on dwlab.simt. Raises DispatchError.
"""

from __future__ import annotations

import functools
from typing import Any

from dwlab.kernels import dispatch, registry, torch_ops
from dwlab.kernels.depthwise1d import channels_last, flat_rows
from dwlab.kernels.depthwise1d.flat_rows import activate
from dwlab.kernels.dispatch import DispatchError
from dwlab.kernels.parts import pieces
from dwlab.kernels.torch_ops import TYPES, torch
from dwlab.problems import DepthwiseConv1d
from dwlab.target import cuda

Tensor = torch.Tensor
LAYOUTS = ("BHL", "BLH")


def short_conv(
    x: Tensor, w: Tensor, bias: Tensor | None = None, activation: str | None = None,
    initial_state: Tensor | None = None, return_final_state: bool = False, layout: str = "BHL",
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """y of x's shape and type, and the state behind x if wanted; differentiable once, with respect to all tensors.

    x (B, H, L), or (B, L, H) in layout "BLH", whose gradients are computed by way of the other; w (H, K), bias (H,);
    initial_state (B, H, K - 1), zeros if None; activation None or "silu".
    """
    if layout not in LAYOUTS:
        raise DispatchError(f"layout={layout!r}: {' or '.join(LAYOUTS)} is needed")
    last = layout == "BLH"
    _check("x", x, ("B", "L", "H") if last else ("B", "H", "L"))
    B, H, L = _in_rows(x, last).shape
    state = (B, H, w.shape[-1] - 1) if isinstance(w, Tensor) and w.ndim else ()
    silu = _checked(x, H, w, bias, activation, initial_state, state)
    y = _operator(x, w, bias, initial_state, silu, last)
    if not return_final_state:
        return y
    before = x.new_zeros(state) if initial_state is None else initial_state.to(x.dtype)
    end = _in_rows(x, last)[..., max(0, L - state[2]) :]
    return y, torch.cat([before, end], -1)[..., end.shape[-1] :].contiguous()


def short_conv_update(
    x: Tensor, state: Tensor, w: Tensor, bias: Tensor | None = None, activation: str | None = None
) -> Tensor:
    """y (B, H) of one more element a row, x (B, H); state (B, H, K - 1), of x's type, moves on by it, in place.

    Not differentiable.
    """
    _check("x", x, ("B", "H"))
    shape = (*x.shape, w.shape[-1] - 1) if isinstance(w, Tensor) and w.ndim else ()
    silu = _checked(x, x.shape[1], w, bias, activation, state, shape)
    if state.dtype != x.dtype or not state.is_contiguous():
        raise DispatchError(f"state is {state.dtype} with strides {state.stride()}: contiguous {x.dtype} is needed")
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, state, w, bias)):
        raise DispatchError("short_conv_update has no gradient: call it under torch.no_grad()")
    return _update(x, state, w, bias, silu)


def _check(name: str, given: Any, axes: tuple[Any, ...]) -> None:
    if not isinstance(given, Tensor) or given.dtype not in TYPES:
        got = given.dtype if isinstance(given, Tensor) else type(given).__name__
        raise DispatchError(f"{name} is {got}: pass a torch tensor of {', '.join(TYPES.values())}")
    fits = all(want == got for want, got in zip(axes, given.shape, strict=False) if isinstance(want, int))
    if given.ndim != len(axes) or not fits:
        raise DispatchError(f"{name} has shape {tuple(given.shape)}: ({', '.join(map(str, axes))}) is needed")


def _checked(x: Tensor, H: int, w: Any, bias: Any, activation: Any, state: Any, shape: tuple[int, ...]) -> bool:
    """Whether there is SiLU. Raises DispatchError for the first that cannot be used."""
    if activation not in (None, "silu"):
        raise DispatchError(f"activation={activation!r}: None or 'silu' is needed")
    _check("w", w, (H, "K"))
    if not w.shape[1]:
        raise DispatchError("w has no taps")
    named = {"x": x, "w": w}
    if bias is not None:
        _check("bias", bias, (H,))
        named["bias"] = bias
    if state is not None:
        _check("state", state, shape)
        named["state"] = state
    for name, one in named.items():
        if one.device != x.device:
            raise DispatchError(f"{name} is on {one.device} and x on {x.device}")
        if name in ("w", "bias") and one.dtype not in (x.dtype, torch.float32):
            raise DispatchError(f"{name} is {one.dtype} beside x of {x.dtype}: that or float32 is needed")
    if not x.is_contiguous():
        raise DispatchError(f"x has strides {x.stride()}: pass x.contiguous(), or layout='BLH'")
    torch_ops.no_tangents(*named.values())
    return activation == "silu"


@torch.library.custom_op("dwlab::short_conv", mutates_args=())
def _operator(x: Tensor, w: Tensor, bias: Tensor | None, state: Tensor | None, silu: bool, last: bool) -> Tensor:
    """As PyTorch knows it. last: x is (B, L, H)."""
    y, ahead = _fused(x, w, bias, silu, last), w.shape[1] - 1
    if state is not None and ahead and x.numel():  # the first ones anew
        head = torch.cat([state.to(x.dtype), _in_rows(x, last)[..., :ahead]], -1)
        _in_rows(y, last)[..., :ahead] = _fused(head, w, bias, silu, False)[..., ahead:]
    return y


@_operator.register_fake
def _(x: Any, w: Any, bias: Any, state: Any, silu: bool, last: bool) -> Tensor:
    return torch.empty_like(x)


def _in_rows(x: Tensor, last: bool) -> Tensor:
    """x as (B, H, L), and back."""
    return x.transpose(1, 2) if last else x


def _fused(x: Tensor, w: Tensor, bias: Tensor | None, silu: bool, last: bool) -> Tensor:
    """Without a state; by one kernel where one takes it, else in float32, and PyTorch's bias and SiLU behind."""
    if not x.numel():
        return torch.empty_like(x)
    rows, dtype, K = _in_rows(x, last), TYPES[x.dtype], w.shape[1]
    form = {"bias": bias is not None, "activation": "silu" if silu else "none"}
    problem, aligned = DepthwiseConv1d(*rows.shape, K, "causal", dtype), x.data_ptr() % 16 == 0
    if aligned and last and K <= flat_rows.MOST and problem.H % pieces.elements(dtype) == 0:
        how, kernel = channels_last.launch(problem), channels_last.kernel_of(K, dtype, **form)
    elif aligned and not last and flat_rows.takes(problem):
        how, kernel = flat_rows.launch(problem), _flat(K, dtype, registry.short(problem), **form)
    else:
        y = dispatch.forward(rows.float().contiguous(), w.float())
        y = y if bias is None else y + bias[:, None]
        return _in_rows(torch.nn.functional.silu(y) if silu else y, last).to(x.dtype).contiguous()
    y = torch.empty_like(x)
    arrays = (dispatch.memory_of(one.detach(), words=True) for one in (x, _filters(w, bias, last), y))
    kernel[how.grid, how.block, dispatch.current_stream()](*arrays, *how.scalars)
    return y


@functools.cache
def _flat(K: int, dtype: str, short: int, **form: Any) -> Any:
    return registry.stage("depthwise1d/forward/flat").kernel.make(K, 0, dtype, False, short, **form)


def _filters(w: Tensor, bias: Tensor | None, last: bool = False) -> Tensor:
    """Float32, each channel's bias behind its taps; last: taps first, in memory of its own, aligned to 16 bytes."""
    parts = [w.detach()] if bias is None else [w.detach(), bias.detach()[:, None]]
    if last:
        return torch.cat([one.t() for one in parts]).float()
    return w.detach().float().contiguous() if bias is None else torch.cat(parts, 1).float()


@torch.library.custom_op("dwlab::short_conv_backward", mutates_args=())
def _backward(dy: Tensor, x: Tensor, w: Tensor, bias: Tensor | None, state: Tensor | None, silu: bool) -> list[Tensor]:
    """dx, dw, and of bias and state the gradients of those that are there."""
    before = 0 if state is None else w.shape[1] - 1
    rows = x if state is None else torch.cat([state.to(x.dtype), x], -1)
    if silu:
        pre = torch_ops.depthwise_conv1d(rows, w)[..., before:].float()
        pre = pre if bias is None else pre + bias[:, None]
        gate = torch.sigmoid(pre)
        dy = (dy * (gate * (1 + pre * (1 - gate)))).to(x.dtype)
    ahead = torch.nn.functional.pad(dy, (before, 0)).contiguous()
    dx, dw = torch.ops.dwlab.depthwise_conv1d_backward(ahead, rows, w, "causal", "", True, True)
    found = [dx[..., before:].contiguous(), dw]
    found += [] if bias is None else [dy.sum((0, 2), dtype=torch.float32).to(bias.dtype)]
    return found + ([] if state is None else [dx[..., :before].to(state.dtype, copy=True)])


@_backward.register_fake
def _(dy: Any, x: Any, w: Any, bias: Any, state: Any, silu: bool) -> list[Tensor]:
    return [torch.empty_like(one) for one in (x, w, bias, state) if one is not None]


def _saved(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.silu, ctx.last = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, *others = ctx.saved_tensors
    dx, *found = _backward(*(_in_rows(one, ctx.last).contiguous() for one in (dy, x)), *others, ctx.silu)
    more = iter(found)
    return _in_rows(dx, ctx.last), *(None if one is None else next(more) for one in others), None, None


_operator.register_autograd(_gradients, setup_context=_saved)
_backward.register_autograd(torch_ops._once_only)


# ---------------------------------------------------------------------------------------------------- one token


@torch.library.custom_op("dwlab::short_conv_update", mutates_args=("state",))
def _update(x: Tensor, state: Tensor, w: Tensor, bias: Tensor | None, silu: bool) -> Tensor:
    y = torch.empty_like(x)
    if x.numel():
        given = (x, state.view(-1, max(1, state.shape[2])) if state.numel() else x, _filters(w, bias), y)
        arrays = (dispatch.memory_of(one.view(torch.uint16) if one.itemsize == 2 else one) for one in given)
        kernel = _token(w.shape[1], TYPES[x.dtype], bias is not None, silu)
        kernel[-(-x.numel() // 128), 128, dispatch.current_stream()](*arrays)
    return y


@_update.register_fake
def _(x: Any, state: Any, w: Any, bias: Any, silu: bool) -> Tensor:
    return torch.empty_like(x)


@functools.cache
def _token(K: int, dtype: str, bias: bool, silu: bool) -> Any:
    up, down, activated = pieces.up(dtype), pieces.down(dtype), activate("silu" if silu else "none")

    @cuda.jit
    def kernel(x, state, w, y):
        b, h = divmod(cuda.grid(1), w.shape[0])
        row = cuda.grid(1)
        if b < x.shape[0]:
            total = w[h, 0] * up(x[b, h])
            for j in range(1, K):
                total += w[h, j] * up(state[row, K - 1 - j])
            for j in range(K - 2):
                state[row, j] = state[row, j + 1]
            if K > 1:
                state[row, K - 2] = x[b, h]
            if bias:
                total += w[h, K]
            y[b, h] = down(activated(total))

    return kernel


class ShortConv1d(torch.nn.Conv1d):
    """nn.Conv1d of a filter a channel, padded by K - 1 and cut off at L, then an activation; loads that layer's state.

    Its taps are short_conv's reversed.
    """

    def __init__(self, channels: int, taps: int, bias: bool = True, activation: str | None = None, **where: Any):
        super().__init__(channels, channels, taps, padding=taps - 1, groups=channels, bias=bias, **where)
        self.activation = activation

    @property
    def taps(self) -> Tensor:
        """w (H, K) as short_conv takes it."""
        return self.weight[:, 0].flip(-1)

    def forward(
        self, x: Tensor, initial_state: Tensor | None = None, return_final_state: bool = False, layout: str = "BHL"
    ) -> Any:
        return short_conv(x, self.taps, self.bias, self.activation, initial_state, return_final_state, layout)

    def update(self, x: Tensor, state: Tensor) -> Tensor:
        """short_conv_update with this layer's parameters."""
        return short_conv_update(x, state, self.taps, self.bias, self.activation)
