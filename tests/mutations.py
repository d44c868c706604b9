"""Mutations: right kernels with one edit, and what the edit does wrong.

A row is (stage, storage types, old text, new text, class). A class says what must be named: a regular expression for
what a finding or a contrast says of it.
"""

from dataclasses import dataclass

CLASSES = {
    # what is read
    "wrong padding": r"padding|K is not|K > 1|border",
    "padding is not the zero point": r"padding is not the zero point|border wrong",
    "missing guard": r"out of bounds|negative index|beyond the edge|next row|wraps around|tail",
    "border repeated": r"border repeated",
    "wraps around": r"wraps? around",
    "sides exchanged": r"sides exchanged|H is not W|W > H|H > W|not square|transposed",
    "shifted": r"shifted",
    "wrong stride": r"stride",
    "wrong image": r"image|N > 1|B > 1|batch entry|b is right",
    "wrong channel": r"channel",
    "wrong layout": r"layout|transposed|N(CHW|HWC)",
    "wrong sign": r"wrong way|sign|reversed|forward pass",
    # the filter
    "filter transposed": r"filter transposed",
    "filter flipped": r"filter flipped|weights reversed",
    "wrong filter": r"wrong filter|one filter for all",
    "operands exchanged": r"exchanged",
    # which terms are summed
    "taps missing": r"taps?( is| are)? (missing|left out|wrong)|K > 1|most taps",
    "times missing": r"times? .*(missing|only|lost|left out)|L > ",
    "entries missing": r"batch entr|B > ",
    "channels missing": r"(channel|step).*(missing|only|reset)|C > ",
    "partial sums lost": r"partial sums lost|first of each|L > 1",
    "sum not reset": r"not reset|constant offset|adds to the output|uninitialised",
    "sum reset": r"reset",
    "wrong factor": r"wrong factor|mean in place of sum",
    "constant offset": r"constant offset",
    "inexact": r"inexact",
    # bias, activation, residual
    "bias left out": r"bias left out|has a bias",
    "bias after the activation": r"bias after the activation",
    "wrong bias": r"(wrong|sign of the|twice).*bias|bias (added twice|not scaled)|constant offset",
    "activation left out": r"activation left out|activation is",
    "wrong activation": r"wrong activation|activation is (an? )?(relu|gelu)|activation that is none",
    "residual left out": r"residual left out|has a residual",
    "residual before the activation": r"residual before the activation",
    "wrong residual": r"wrong (sign of the )?residual|residual (added|before|left)|has a residual",
    # int8
    "zero_x": r"zero_x",
    "zero_y": r"zero_y",
    "zero_r": r"zero_r",
    "m_r": r"m_r",
    "wrong m": r"wrong m\b",
    "wrong rounding": r"round",
    "wrong limits": r"limit",
    # who computes what
    "not written": r"not written|nothing written|never written",
    "part of a tile": r"tile|multiple",
    "one size only": r" [<>] \d|beyond the first|not a multiple",
    "race": r"^race|two writers|uninitialised|runs differ",
    "two writers": r"two writers",
    "divergent barrier": r"divergent barrier",
    "uninitialised": r"uninitialised",
}


@dataclass(frozen=True)
class Mutation:
    """One edit of a stage, judged in a storage type."""

    stage: str
    dtype: str
    old: str
    new: str
    kind: str
    module: str = ""

    @property
    def op(self):
        """The operator: of depthwise1d and of fused layers with the path."""
        op, path, _ = self.stage.split("/")
        return f"{op}/{path}" if op in ("depthwise1d", "fused") else op

    def __str__(self):
        return f"{self.stage}-{self.dtype}-{self.kind}".replace(" ", "_")


def _rows(*rows):
    return [
        Mutation(one, dtype, old, new, kind, *module)
        for stages, dtypes, old, new, kind, *module in rows
        for one in stages.split()
        for dtype in dtypes.split()
    ]


F32, ALL = "float32", "float32 float16 bfloat16"
DW, PW = "depthwise2d/forward/naive", "pointwise/forward/naive"
DWPW, PWDW, PWPW = "fused/dwpw/naive", "fused/pwdw/map", "fused/pwpw/naive"
LAYERS = " ".join((DW, PW, DWPW, PWDW, PWPW))
FWD, DX, DY = "depthwise1d/forward/", "depthwise1d/input_grad/", "depthwise1d/weight_grad/"
BOTH = "depthwise1d/backward/"

FIRST = _rows(
    # ---- what follows the sum, in all layers
    (LAYERS, F32, "_finish(layer.bias, ", "_finish(False, ", "bias left out"),
    (LAYERS, F32, "layer.bias, layer.activation, layer", 'layer.bias, "none", layer', "activation left out"),
    (f"{DW} {PW} {DWPW}", F32, "layer.activation, layer.residual)", "layer.activation, False)", "residual left out"),
    (LAYERS, F32, "return min(max(value, float32(0)), float32(6))", "return min(max(value, float32(0)), float32(8))", "wrong activation"),
    (LAYERS, F32, "(float32(1) + math.erf(value * float32(root)))", "(float32(1) + math.erf(value))", "wrong activation"),
    (f"{PW} {DWPW} {PWPW}", "float16", "return max(value, float32(0))", "return value", "activation left out"),
    (LAYERS, F32, "activated(total + float32(b[c])) + float32(r[at])", "activated(total + float32(b[c]) + float32(r[at]))", "residual before the activation"),
    (LAYERS, F32, "return activated(total + float32(b[c]))\n", "return activated(total) + float32(b[c])\n", "bias after the activation"),
    (LAYERS, F32, "return activated(total + float32(b[c]))\n", "return activated(total + float32(b[0]))\n", "wrong bias"),
    (LAYERS, F32, "activated(total + float32(b[c])) + float32(r[at])", "activated(total + float32(b[c])) + float32(r[c])", "wrong residual"),
    (f"{PW} {DWPW} {PWDW} {PWPW}", "float16", "return total + float32(w) * float32(x)", "return total + float32(w) * float32(x) * float32(1.01)", "wrong factor"),
    (LAYERS, "int8", 'closing_int8(requantise(layer))', "closing_int8(_requantise(False, layer.activation == 'relu', layer.zero_y, False))", "bias left out"),
    (LAYERS, "int8", "    return _sums(layer.dtype == \"int8\", layer.zero_x)", "    return _sums(layer.dtype == \"int8\", 0)", "zero_x"),
    (LAYERS, "int8", "return int32(whole + int32(zero))", "return int32(whole)", "zero_y"),
    (LAYERS, "int8", "whole = ptx.rint(value)", "whole = int32(value)", "wrong rounding"),
    (LAYERS, "int8", "whole = ptx.rint(value)", "whole = int32(math.floor(value + float32(0.5)))", "wrong rounding"),
    (LAYERS, "int8", "return rounded(float32(total) * m[c])", "return rounded(float32(total) * m[0])", "wrong m"),
    (f"{DW} {PW} {DWPW}", "int8", "float32(int32(r) - int32(zero_r))", "float32(int32(r))", "zero_r"),
    (f"{DW} {PW} {PWPW}", "int8", "int32(zero_r)) * float32(m_r)", "int32(zero_r))", "m_r"),
    (LAYERS, "int8", "        if MOST:\n            whole = min(whole, int32(127 - zero))\n", "", "wrong limits"),
    # ---- depthwise2d
    (DW, "float32 int8", "q * S + j - PAD", "q * S + j", "wrong padding"),
    (DW, "float32 int8", "p * S + i - PAD", "p + i - PAD", "wrong stride"),
    (DW, F32, "h < H and v < W", "h < W and v < H", "sides exchanged"),
    (DW, F32, "uint32((c * K + i) * K + j), uint32(((n", "uint32((c * K + j) * K + i), uint32(((n", "filter transposed"),
    (DW, F32, "uint32((i * K + j) * C + c), uint32", "uint32(((K - 1 - i) * K + K - 1 - j) * C + c), uint32", "filter flipped"),
    (DW, "float32 int8", "            for j in range(K):\n                v =", "            for j in range(K - 1):\n                v =", "taps missing"),
    (DW, F32, "((n * H + h) * W + v) * C + c)\n", "(h * W + v) * C + c)\n", "wrong image"),
    (DW, F32, "c = uint32(at // (P * Q) % C)", "c = uint32(at // (P * P) % C)", "sides exchanged"),
    (DW, F32, "h < H and v < W", "h < H", "missing guard"),
    (DW, F32, "closing(total, b, m, r, c, at)", "closing(total, b, m, r, 0, at)", "wrong bias"),
    ("depthwise2d/forward/shared", "float32 float16", "        cuda.syncthreads()\n", "", "race"),
    ("depthwise2d/forward/shared", "float32 float16", "(i * ACROSS + j) * CHANNELS", "(j * ACROSS + i) * CHANNELS", "filter transposed"),
    ("depthwise2d/forward/shared", "float32 float16", "value = float32(0)\n", "value = float32(1)\n", "wrong padding"),
    ("depthwise2d/forward/registers", "float32 float16", "if uint32(v + j) < uint32(W):", "if uint32(v + j) <= uint32(W):", "missing guard"),
    ("depthwise2d/forward/columns", "float32 bfloat16", "int32(p * uint32(S)) - int32(PAD)", "int32(p * uint32(S))", "wrong padding"),
    # ---- pointwise
    (PW, "float32 float16 int8", "for _ in range(C):", "for _ in range(C - 1):", "channels missing"),
    (PW, F32, "xi = uint32(xi + step)", "xi = uint32(xi + 1)", "wrong layout"),
    (PW, F32, "wi = uint32(f * C)", "wi = uint32(f)", "wrong filter"),
    (PW, "float32 int8", "xi, step = uint32(at // F * C), uint32(1)", "xi, step = uint32(at // F % HW * C), uint32(1)", "wrong image"),
    (PW, F32, "f = uint32(at % F)", "f = uint32(at // F % F)", "wrong channel"),
    (PW, F32, "if at >= y.size:", "if at >= y.size - 1:", "not written"),
    (PW, F32, "y[at] = closing(total,", "y[at] = closing(total / C,", "wrong factor"),
    ("pointwise/forward/shared", "float32 float16", "            cuda.syncthreads()\n            for k", "            for k", "race"),
    ("pointwise/forward/shared", "float32 float16", "for k0 in range(0, C, TILE):", "for k0 in range(0, C - C % TILE, TILE):", "channels missing"),
    ("pointwise/forward/split", "bfloat16", "return in_turn([step(*one) for one in every])", "return in_turn([step(*one) for one in every[1:]])", "channels missing"),
    # ---- fused
    (DWPW, "float32 float16 int8", "p * S + j // K - PAD", "p * S + j // K", "wrong padding"),
    (DWPW, F32, "h < H and v < W", "h < H", "missing guard"),
    (DWPW, "float32 int8", "for j in range(K * K):", "for j in range(K * K - 1):", "taps missing"),
    (DWPW, "float32 int8", "for c in range(C):", "for c in range(C - 1):", "channels missing"),
    (DWPW, "float32", "        cuda.syncthreads()\n", "", "race"),
    (DWPW, F32, "q * S + j % K - PAD", "q + j % K - PAD", "wrong stride"),
    (DWPW, F32, "n = uint32(cuda.blockIdx.y)", "n = uint32(0)", "not written"),
    (DWPW, F32, "w2[uint32(f * C + c)]", "w2[uint32(c * F + f)]", "filter transposed"),
    (DWPW, F32, "first(total, b1, m1, r, c, uint32(0))", "total", "bias left out"),
    (PWDW, "float32 int8", "o // Q * S + j - PAD", "o // Q * S + j", "wrong padding"),
    (PWDW, F32, "if h < H and v < W:", "if h < H and v < H:", "sides exchanged"),
    (PWDW, "float32 float16", "for c in range(C):\n                xi", "for c in range(1, C):\n                xi", "channels missing"),
    (PWDW, F32, "(f * K + j) * K + k if", "(f * K + k) * K + j if", "filter transposed"),
    (PWDW, F32, "        cuda.syncthreads()\n", "", "race"),
    (PWDW, F32, "o % Q * S + k - PAD", "o % Q + k - PAD", "wrong stride"),
    (PWDW, F32, "tile[at] = between(total, b1, m1, r, f, at)", "tile[at] = between(total, b1, m1, r, 0, at)", "wrong bias"),
    (PWPW, "float32 float16 int8", "for c in range(C):\n                    xi", "for c in range(C - 1):\n                    xi", "channels missing"),
    (PWPW, F32, "w1[uint32(f * C + c)]", "w1[uint32(c * F + f)]", "filter transposed"),
    (PWPW, F32, "        cuda.syncthreads()\n", "", "race"),
    (PWPW, F32, "xi = uint32((n * C + c) * HW + p", "xi = uint32(c * HW + p", "wrong image"),
    (PWPW, F32, "tile[i] = between(total, b1, m1, r, f, f)", "tile[i] = total", "bias left out"),
    (PWPW, F32, "yi = uint32((n * G + g) * HW + p if", "yi = uint32((n * HW + p) * G + g if", "wrong layout"),
    # ---- depthwise1d forward
    (f"{FWD}naive", F32, "s = t + shift - j", "s = t + shift - j + 1", "shifted"),
    (f"{FWD}naive", F32, "s = t + shift - j", "s = t - j", "wrong padding"),
    (f"{FWD}naive", F32, "s = t + shift - j", "s = t + shift + j", "wrong sign"),
    (f"{FWD}naive", F32, "w[h, j] *", "w[h, w.shape[1] - 1 - j] *", "filter flipped"),
    (f"{FWD}naive", F32, "w[h, j] *", "w[0, j] *", "wrong filter"),
    (f"{FWD}naive", F32, "x[b, h, s]", "x[0, h, s]", "wrong image"),
    (f"{FWD}naive", F32, "if s >= 0 and s < x.shape[2]:", "if s >= 0:", "missing guard"),
    (f"{FWD}naive", F32, "range(w.shape[1])", "range(w.shape[1] - 1)", "taps missing"),
    (f"{FWD}naive", F32, "y[b, h, t] = acc", "y[b, h, t] += acc", "sum not reset"),
    (f"{FWD}naive", F32, "acc = 0.0", "acc = 0.5", "constant offset"),
    (f"{FWD}naive", F32, "t < y.shape[2]:", "t < y.shape[2] - 1:", "not written"),
    (f"{FWD}naive", F32, "y[b, h, t] = acc", "y[b, h, t] = acc * 1.01", "wrong factor"),
    (f"{FWD}naive", F32, "y[b, h, t] = acc", "y[b, h, t] = acc if t < 256 else 0", "one size only"),
    (f"{FWD}coalesced", F32, "row % uint32(x.shape[1])", "row % uint32(x.shape[0])", "two writers"),
    (f"{FWD}coalesced", F32, "s = uint32(s - 1)", "s = uint32(s - 2)", "wrong stride"),
    (f"{FWD}coalesced", F32, "j = uint32(0)", "j = uint32(1)", "shifted"),
    (f"{FWD}shared", F32, "        cuda.syncthreads()\n        p =", "        p =", "race"),
    (f"{FWD}shared", F32, "j0 = uint32(j0 + CHUNK)", "j0 = uint32(j0 + taps)", "taps missing"),
    (f"{FWD}wide", ALL, "mine = min(uint32(ROWS),", "mine = min(uint32(ROWS - 1),", "not written"),
    # ---- depthwise1d input_grad
    (f"{DX}naive", F32, "t = s - shift + j", "t = s + shift - j", "wrong sign"),
    (f"{DX}naive", F32, "t = s - shift + j", "t = s - shift + j + 1", "shifted"),
    (f"{DX}naive", F32, "w[h, j] *", "w[h, w.shape[1] - 1 - j] *", "filter flipped"),
    (f"{DX}naive", F32, "range(w.shape[1])", "range(1, w.shape[1])", "taps missing"),
    (f"{DX}naive", F32, "dy[b, h, t]", "dy[b, 0, t]", "wrong channel"),
    (f"{DX}naive", F32, "if t >= 0 and t < dy.shape[2]:", "if t < dy.shape[2]:", "missing guard"),
    (f"{DX}naive", F32, "dx[b, h, s] = acc", "dx[b, h, s] = acc + 1", "constant offset"),
    (f"{DX}naive", F32, "dx[b, h, s] = acc", "dx[b, h, s] = -acc", "wrong factor"),
    (f"{DX}coalesced", F32, "t = uint32(s - shift)", "t = uint32(s)", "wrong padding"),
    (f"{DX}coalesced", F32, "b < dy.shape[0] and s < length", "b < dy.shape[0] and s < length and row > 0", "not written"),
    (f"{DX}wide", ALL, "reverse=True", "reverse=False", "filter flipped"),
    (f"{DX}wide", ALL, "K - 1 - SHIFT", "SHIFT", "wrong padding"),
    # ---- depthwise1d weight_grad
    (f"{DY}naive", F32, "s = t + shift - j", "s = t + shift - j - 1", "shifted"),
    (f"{DY}naive", F32, "s = t + shift - j", "s = t + j - shift", "wrong sign"),
    (f"{DY}naive", F32, "range(dy.shape[0])", "range(1)", "entries missing"),
    (f"{DY}naive", F32, "range(dy.shape[2])", "range(dy.shape[2] - 1)", "times missing"),
    (f"{DY}naive", F32, "x[b, h, s]", "x[b, 0, s]", "wrong channel"),
    (f"{DY}naive", F32, "dw[h, j] = acc", "dw[h, j] = acc / dy.shape[0]", "wrong factor"),
    (f"{DY}naive", F32, "if s >= 0 and s < x.shape[2]:", "if s < x.shape[2]:", "missing guard"),
    (f"{DY}naive", F32, "dw[h, j] = acc", "dw[h, dw.shape[1] - 1 - j] = acc", "filter flipped"),
    (f"{DY}coalesced", F32, "(16, 8, 4, 2, 1)", "(8, 4, 2, 1)", "partial sums lost"),
    (f"{DY}coalesced", F32, "t = uint32(t + TILE)", "t = uint32(t + 2 * TILE)", "times missing"),
    (f"{DY}coalesced", F32, "if cuda.threadIdx.x == 0:", "if True:", "two writers"),
    (f"{DY}shared", F32, "            cuda.syncthreads()\n            p = row", "            p = row", "race"),
    (f"{DY}shared", F32, "t0 = uint32(t0 + CHUNK)", "t0 = uint32(t0 + length)", "times missing"),
    # ---- depthwise1d backward
    (f"{BOTH}naive", F32, "uint32(s - uint32(shift) + uint32(j))", "uint32(s + uint32(shift) - uint32(j))", "wrong sign"),
    (f"{BOTH}naive", F32, "g += w[h, j] * f", "g += w[0, j] * f", "wrong filter"),
    (f"{BOTH}naive", F32, "cuda.atomic.add(dw, (h, j), f * value)", "dw[h, j] += f * value", "race"),
    (f"{BOTH}naive", F32, "value = x[b, h, s]", "value = x[0, h, s]", "wrong image"),
    (f"{BOTH}naive", F32, "range(w.shape[1])", "range(w.shape[1] - 1)", "taps missing"),
    (f"{BOTH}naive", F32, "dx[b, h, s] = g", "dx[b, h, s] = 2 * g", "wrong factor"),
    (f"{BOTH}naive", F32, "zero=True", "zero=False", "sum not reset"),
    (f"{BOTH}naive", F32, "f * value)", "f * value * float32(0.5))", "wrong factor"),
    (f"{BOTH}channels", ALL, "n = min(uint32(ROWS),", "n = min(uint32(ROWS - 1),", "not written"),
)  # fmt: skip

# Written when the rules of the diagnosis were finished: what they are worth on mistakes that they were not made from.
SECOND = _rows(
    # ---- what follows the sum
    (LAYERS, F32, "activated(total + float32(b[c])) + float32(r[at])", "activated(total + float32(b[c])) - float32(r[at])", "wrong residual"),
    (LAYERS, F32, "return activated(total) + float32(r[at])", "return activated(total + float32(r[at]))", "residual before the activation"),
    (LAYERS, F32, "return max(value, float32(0))\n", "return max(value, float32(0.1) * value)\n", "wrong activation"),
    (LAYERS, F32, "return float32(0.5) * value * (float32(1) + math.erf(value * float32(root)))", "return value / (float32(1) + math.exp(float32(-1.702) * value))", "wrong activation"),
    (f"{DW} {PW} {PWPW}", F32, "return activated(total + float32(b[c]))\n", "return activated(total - float32(b[c]))\n", "wrong bias"),
    (f"{PW} {DWPW} {PWDW} {PWPW}", "float16", "_finish(layer.bias, ", "_finish(False, ", "bias left out"),
    (f"{PW} {DWPW} {PWDW} {PWPW}", "float16", "activated(total + float32(b[c])) + float32(r[at])", "activated(total + float32(b[c])) + float32(2) * float32(r[at])", "wrong residual"),
    (f"{DW} {PW} {DWPW}", F32, "return total + float32(w) * float32(x)", "return total + float32(w) * float32(x) + float32(0.01)", "constant offset"),
    (f"{PW} {PWDW} {PWPW}", "float16", "return min(max(value, float32(0)), float32(6))", "return min(value, float32(6))", "wrong activation"),
    (LAYERS, "int8", "int32(x) - int32(zero)", "int32(x) + int32(zero)", "zero_x"),
    (LAYERS, "int8", "return int32(whole + int32(zero))", "return int32(whole - int32(zero))", "zero_y"),
    (LAYERS, "int8", "return scaled(int32(total + b[c]), m, c)", "return scaled(int32(total - b[c]), m, c)", "wrong bias"),
    (f"{DW} {PW} {DWPW}", "int8", "whole = ptx.rint(value)", "whole = int32(math.ceil(value))", "wrong rounding"),
    (f"{DW} {PW} {DWPW} {PWPW}", "int8", "float32(int32(r) - int32(zero_r))", "float32(int32(r) + int32(zero_r))", "zero_r"),
    (f"{DW} {PW} {PWDW} {PWPW}", "int8", "float32(int32(r) - int32(zero_r)) * float32(m_r)", "float32(int32(r) - int32(zero_r)) / float32(m_r)", "m_r"),
    (f"{DW} {PW} {DWPW}", "int8", "whole = max(whole, int32(-128 - zero))", "whole = max(whole, int32(-127 - zero))", "wrong limits"),
    (LAYERS, "int8", "_requantise(layer.bias, layer.activation == \"relu\", layer.zero_y, False)", "_requantise(layer.bias, False, layer.zero_y, False)", "activation left out"),
    # ---- depthwise2d
    (DW, "float32 int8", "p * S + i - PAD", "p * S + i - PAD + 1", "shifted"),
    (DW, "float32 int8", "q * S + j - PAD", "(q - PAD) * S + j", "wrong padding"),
    (DW, F32, "h < H and v < W", "h < H - 1 and v < W", "missing guard"),
    (DW, "float32 int8", "            for j in range(K):\n                v =", "            for j in range(1, K):\n                v =", "taps missing"),
    (DW, F32, "uint32(((n * C + c) * H + h) * W + v)", "uint32(((n * C + c) * H + h) * H + v)", "sides exchanged"),
    (DW, F32, "q = uint32(at % Q)", "q = uint32(at % P)", "sides exchanged"),
    (DW, F32, "if i >= y.size:", "if i >= y.size // 2:", "not written"),
    (DW, F32, "                if h < H and v < W:", "                if h < H and v < W and (j > 0 or q < 64):", "one size only"),
    ("depthwise2d/forward/shared", "float32 float16", "q0 * S + k // uint32(CHANNELS)", "q0 + k // uint32(CHANNELS)", "wrong stride"),
    ("depthwise2d/forward/shared", "float32 float16", "uint32((c * K + i) * K + j)", "uint32((c * K + K - 1 - i) * K + K - 1 - j)", "filter flipped"),
    ("depthwise2d/forward/registers", "float32 float16", "h = int32(h + S)", "h = int32(h + 1)", "wrong stride"),
    ("depthwise2d/forward/registers", "float32 float16", "            sums[0] = float32(0)\n", "", "sum not reset"),
    ("depthwise2d/forward/columns", "float32 bfloat16", "int32(q * uint32(S)) - int32(PAD)", "int32(q * uint32(S)) - int32(PAD) + int32(1)", "shifted"),
    ("depthwise2d/forward/columns", "bfloat16", "n = uint32(cuda.blockIdx.x), np.int64(cuda.blockIdx.y)", "n = uint32(cuda.blockIdx.x), np.int64(0)", "not written"),
    # ---- pointwise
    (PW, "float32 float16 int8", "wi = uint32(wi + 1)", "wi = uint32(wi + F)", "wrong filter"),
    (PW, F32, "f = uint32(at // HW % F)", "f = uint32(at // HW % F // 2 * 2)", "wrong filter"),
    (PW, "float32 float16", "xi, step = uint32(at // (HW * F) * (HW * C) + at % HW)", "xi, step = uint32(at % HW)", "wrong image"),
    (PW, F32, "y[at] = closing(total, b, m, r, f, at)", "y[at] = closing(total, b, m, r, (f + 1) % F, at)", "wrong bias"),
    (PW, "int8", "y[at] = closing(total, b, m, r, f, at)", "y[at] = closing(total, b, m, r, (f + 1) % F, at)", "wrong m"),
    (PW, F32, "for _ in range(C):", "for _ in range(C // 4 * 4):", "channels missing"),
    (PW, F32, "for _ in range(C):", "for _ in range(min(C, 256)):", "one size only"),
    ("pointwise/forward/shared", "float32 float16", "total += left[k, i] * right[k, j]", "total = left[k, i] * right[k, j]", "sum reset"),
    ("pointwise/forward/shared", "float32 float16", "            cuda.syncthreads()\n        if m", "        if m", "race"),
    ("pointwise/forward/shared", "float32 float16", "if m < M and n < N:\n            at", "if m < M - 1 and n < N:\n            at", "not written"),
    # ---- fused
    (DWPW, "float32 int8", "h < H and v < W", "h < W and v < H", "sides exchanged"),
    (DWPW, "float32 float16 int8", "range(C):\n                    total = multiply", "range(1, C):\n                    total = multiply", "channels missing"),
    (DWPW, "float32 int8", "uint32(c * K * K + j), uint32(((n", "uint32(c * K * K + K * K - 1 - j), uint32(((n", "filter flipped"),
    (DWPW, F32, "w2[uint32(f * C + c)]", "w2[uint32(c)]", "wrong filter"),
    (DWPW, "float32 int8", "y[at] = second(total, b2, m2, r, f, at)", "y[at] = second(total, b2, m2, r, 0, at)", "wrong bias"),
    (DWPW, F32, "if p < P and q < Q:\n                total = ZERO\n                for c", "if p < P and q < P:\n                total = ZERO\n                for c", "sides exchanged"),
    (DWPW, F32, "p * S + j // K - PAD", "p * S + j % K - PAD", "filter transposed"),
    (PWDW, "float32 int8", "o % Q * S + k - PAD", "o % Q * S + k - PAD + 1", "shifted"),
    (PWDW, "float32 float16", "            for j in range(K):\n                h", "            for j in range(K - 1):\n                h", "taps missing"),
    (PWDW, F32, "if h < H and v < W:", "if h < H:", "missing guard"),
    (PWDW, "float32 int8", "y[yi] = finish(total, b2, m2, r, f, yi)", "y[yi] = finish(total, b2, m2, r, g, yi)", "wrong bias"),
    (PWDW, F32, "w1[uint32(f * C + c)]", "w1[uint32(c)]", "wrong filter"),
    (PWDW, F32, "n = uint32(cuda.blockIdx.y)", "n = uint32(0)", "not written"),
    (PWDW, F32, "o // Q * S + j - PAD", "o // Q + j - PAD", "wrong stride"),
    (PWPW, "float32 int8", "for f in range(F):\n                    value", "for f in range(F - 1):\n                    value", "channels missing"),
    (PWPW, F32, "w2[uint32(g * F + f)]", "w2[uint32(f * G + g)]", "filter transposed"),
    (PWPW, "float32 float16 int8", "y[yi] = finish(total, b2, m2, r, g, yi)", "y[yi] = finish(total, b2, m2, r, 0, yi)", "wrong bias"),
    (PWPW, F32, "tile[i] = between(total, b1, m1, r, f, f)", "tile[i] = between(total, b2, m1, r, f, f)", "wrong bias"),
    (PWPW, F32, "if p < HW:\n                total = ZERO\n                for c", "if p < HW - 1:\n                total = ZERO\n                for c", "uninitialised"),
    (PWPW, F32, "n = uint32(cuda.blockIdx.y)", "n = uint32(0)", "not written"),
    # ---- depthwise1d
    (f"{FWD}naive", F32, "acc += w[h, j] * x[b, h, s]", "acc = w[h, j] * x[b, h, s]", "sum reset"),
    (f"{FWD}naive", F32, "s = t + shift - j", "s = max(t + shift - j, 0)", "border repeated"),
    (f"{FWD}naive", F32, "s = t + shift - j", "s = (t + shift - j) % x.shape[2]", "wraps around"),
    (f"{FWD}naive", F32, "s = t + shift - j", "s = t + 2 * shift - j", "wrong padding"),
    (f"{FWD}naive", F32, "x[b, h, s]", "x[b, 0, s]", "wrong channel"),
    (f"{FWD}naive", F32, "y[b, h, t] = acc", "y[b, h, t] = acc + 0.25", "constant offset"),
    (f"{FWD}naive", F32, "range(w.shape[1])", "range(min(w.shape[1], 64))", "taps missing"),
    (f"{FWD}naive", F32, "if b < y.shape[0] and", "if b < min(y.shape[0], 64) and", "not written"),
    (f"{FWD}coalesced", F32, "t = uint32(cuda.blockIdx.y * TILE + cuda.threadIdx.x)", "t = uint32(cuda.blockIdx.y * (TILE - 1) + cuda.threadIdx.x)", "two writers"),
    (f"{FWD}coalesced", F32, "s = uint32(t + shift)", "s = uint32(t)", "wrong padding"),
    (f"{FWD}shared", F32, "w[h, uint32(j0 + n - 1 - i)]", "w[h, uint32(j0 + i)]", "filter flipped"),
    (f"{FWD}shared", F32, "        while q < n:\n", "        while q < uint32(n - 1):\n", "taps missing"),
    (f"{FWD}shared", F32, "        cuda.syncthreads()\n        j0", "        j0", "race"),
    (f"{FWD}wide", "float16 bfloat16", "SHIFT, dtype=DTYPE", "0, dtype=DTYPE", "wrong padding"),
    (f"{DX}naive", F32, "t = s - shift + j", "t = s + j", "wrong padding"),
    (f"{DX}naive", F32, "w[h, j] *", "w[0, j] *", "wrong filter"),
    (f"{DX}naive", F32, "dy[b, h, t]", "dy[0, h, t]", "wrong image"),
    (f"{DX}naive", F32, "range(w.shape[1])", "range(w.shape[1] - 1)", "taps missing"),
    (f"{DX}naive", F32, "s < dx.shape[2]:", "s < dx.shape[2] - 1:", "not written"),
    (f"{DX}naive", F32, "acc += w[h, j] * dy[b, h, t]", "acc = w[h, j] * dy[b, h, t]", "sum reset"),
    (f"{DX}naive", F32, "t = s - shift + j", "t = min(s - shift + j, dy.shape[2] - 1)", "border repeated"),
    (f"{DX}coalesced", F32, "t = uint32(t + 1)", "t = uint32(t - 1)", "wrong sign"),
    (f"{DX}coalesced", F32, "j = uint32(j + 1)", "j = uint32(j + 2)", "taps missing"),
    (f"{DX}coalesced", F32, "dx[b, h, s] = acc", "dx[b, h, s] = acc * float32(1.001)", "wrong factor"),
    (f"{DX}coalesced", F32, "h = uint32(row % uint32(dy.shape[1]))", "h = uint32(0)", "two writers"),
    (f"{DX}wide", "float16", "L, K, DTYPE, convolve", 'L, K, DTYPE, straight_line.row_to_tile(L, K, max(0, K - 2 - SHIFT), reverse=True, dtype=DTYPE)', "shifted"),
    (f"{DY}naive", F32, "s = t + shift - j", "s = t - j", "wrong padding"),
    (f"{DY}naive", F32, "range(dy.shape[0])", "range(dy.shape[0] - 1)", "entries missing"),
    (f"{DY}naive", F32, "range(dy.shape[2])", "range(1, dy.shape[2])", "times missing"),
    (f"{DY}naive", F32, "acc = 0.0", "acc = 1.0", "constant offset"),
    (f"{DY}naive", F32, "dw[h, j] = acc", "dw[h, j] = acc * 2", "wrong factor"),
    (f"{DY}naive", F32, "dy[b, h, t]", "dy[0, h, t]", "wrong image"),
    (f"{DY}naive", F32, "s = t + shift - j", "s = (t + shift - j) % x.shape[2]", "wraps around"),
    (f"{DY}coalesced", F32, "(16, 8, 4, 2, 1)", "(16, 8, 4, 2)", "partial sums lost"),
    (f"{DY}coalesced", F32, "b = uint32(b + 1)", "b = uint32(b + 2)", "entries missing"),
    (f"{DY}coalesced", F32, "    b = uint32(0)\n", "    b = uint32(1)\n", "entries missing"),
    (f"{DY}shared", F32, "            cuda.syncthreads()\n            t0", "            t0", "race"),
    (f"{DY}shared", F32, "cuda.atomic.add(dw, (h, j), acc)", "dw[h, j] = acc", "two writers"),
    (f"{DY}shared", F32, "while p < stop:", "while p < uint32(stop - 1):", "times missing"),
    (f"{BOTH}naive", F32, "f = dy[b, h, t]", "f = dy[0, h, t]", "wrong image"),
    (f"{BOTH}naive", F32, "uint32(s - uint32(shift) + uint32(j))", "uint32(s + uint32(j))", "wrong padding"),
    (f"{BOTH}naive", F32, "g = float32(0)", "g = float32(1)", "constant offset"),
    (f"{BOTH}naive", F32, "cuda.atomic.add(dw, (h, j), f * value)", "cuda.atomic.add(dw, (0, j), f * value)", "wrong channel"),
    (f"{BOTH}naive", F32, "cuda.atomic.add(dw, (h, j), f * value)", "cuda.atomic.add(dw, (h, w.shape[1] - 1 - j), f * value)", "filter flipped"),
    (f"{BOTH}naive", F32, "            if t < L:\n", "            if t < L and j > 0:\n", "taps missing"),
    (f"{BOTH}naive", F32, "dx[b, h, s] = g", "dx[b, h, s] += g", "sum not reset"),
    (f"{BOTH}channels", ALL, "            cuda.syncwarp()\n            take", "            take", "race"),
    (f"{BOTH}channels", "float16", "        for j in range(K):\n            sums[j] = float32(0)\n        while", "        while", "sum not reset"),
)  # fmt: skip
