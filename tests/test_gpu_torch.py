"""What only a GPU with PyTorch can prove: nothing copied, nothing waited for, the right stream, CUDA graphs.

Every test here is skipped without both, and the skip says which is missing. What holds on a CPU too is in
tests/test_torch_ops.py, which uses the GPU where there is one.
"""

import dataclasses
import functools
import re
import threading

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")

from dwlab import problems, target  # noqa: E402
from dwlab.kernels import dispatch, registry  # noqa: E402
from dwlab.kernels.dispatch import DispatchError  # noqa: E402
from dwlab.kernels.torch_ops import depthwise_conv1d  # noqa: E402
from dwlab.problems import PATHS, DepthwiseConv1d  # noqa: E402

if target.mode != "gpu":
    pytest.skip(f"needs a GPU, and there is none: {target.reason}", allow_module_level=True)
if not torch.cuda.is_available():
    pytest.skip(f"needs a PyTorch that sees the GPU; this is {torch.__version__}", allow_module_level=True)

from test_torch_ops import assert_right  # noqa: E402
from test_torch_ops import tensors_of as leaves_of  # noqa: E402

cuda = target.cuda
tensors_of = functools.partial(leaves_of, grad=False)
"""x, w and dy of a problem."""
PROBLEM = DepthwiseConv1d(3, 8, 16, 8, "same")
MIDDLING = DepthwiseConv1d(64, 32, 48, 48)
SLEEP = 400_000_000  # cycles that the GPU spends before the work in question: some 0.2 s


def call(path, problem, x, w, dy, **more):
    """The outputs of a path's function, as a tuple."""
    given = {"x": x, "w": w, "dy": dy}
    inputs = [given[name] for name in problem.arrays(path) if name in given]
    if path == "weight_grad":
        inputs.append(problem.K)
    made = getattr(dispatch, path)(*inputs, **{"padding": problem.padding, **more})
    return made if path == "backward" else (made,)


def named(path, outputs):
    return dict(zip(PROBLEM.outputs(path), outputs, strict=True))


@pytest.fixture
def seen(monkeypatch):
    """What was handed to the kernels, for each call: its launches, where Numba sees each array, the stream."""
    calls = []
    start = dispatch._start

    def spy(prepared, inputs, results, stream):
        every = {**inputs, **results}
        addresses = {name: dispatch._array_of(one).device_ctypes_pointer.value for name, one in every.items()}
        calls.append((prepared, addresses, dispatch.current_stream()))
        return start(prepared, inputs, results, stream)

    monkeypatch.setattr(dispatch, "_start", spy)
    return calls


# -------------------------------------------------------------------------------- right, and nothing copied


def test_tensors_that_begin_at_any_address():
    x, w, dy = tensors_of(PROBLEM)
    moved = torch.empty(x.numel() + 1, device="cuda")[1:].view_as(x).copy_(x)
    assert moved.data_ptr() % 16 == 4
    assert_right(PROBLEM, (x, w, dy), y=dispatch.forward(moved, w, padding="same"))
    for stage in dispatch.ranking(PROBLEM, "forward"):
        if stage.aligned > 4:
            with pytest.raises(DispatchError, match=f"{stage.id} needs arrays that begin at a multiple of"):
                dispatch.forward(moved, w, padding="same", stage=stage.name)


def test_both_kinds_of_device_memory_give_the_same():
    x, w, dy = tensors_of(PROBLEM)
    host = [tensor.cpu().numpy() for tensor in (x, w)]
    y = dispatch.forward(x, w, padding="same").cpu().numpy()
    assert (dispatch.forward(*host, padding="same") == y).all()
    device = dispatch.forward(*map(cuda.to_device, host), padding="same")
    assert (device.copy_to_host() == y).all()


@pytest.mark.parametrize("path", PATHS)
def test_kernels_get_the_tensors_own_memory_and_torch_allocates_the_rest(path, seen, monkeypatch):
    x, w, dy = tensors_of(PROBLEM)
    call(path, PROBLEM, x, w, dy)  # compiled, and made ready
    torch.cuda.synchronize()

    def refuse(*_, **__):
        raise AssertionError("memory outside torch's allocator")

    for name in ("device_array", "to_device", "device_array_like", "pinned_array", "mapped_array", "managed_array"):
        monkeypatch.setattr(cuda, name, refuse)
    count = lambda: torch.cuda.memory_stats()["allocation.all.allocated"]  # noqa: E731
    seen.clear()
    before = count()
    outputs = call(path, PROBLEM, x, w, dy)
    made = count() - before
    ((plans, addresses, _),) = seen
    tensors = {"x": x, "w": w, "dy": dy} | named(path, outputs)
    assert addresses == {name: tensors[name].data_ptr() for name in addresses}
    assert {name for plan in plans for name in plan.problem.arrays(plan.stage.path)} <= addresses.keys()
    workspaces = sum(plan.how.parts > 1 for plan in plans)  # one part is written where the output is
    assert made == len(outputs) + workspaces

    places = {name: torch.full_like({"y": x, "dx": x, "dw": w}[name], torch.nan) for name in PROBLEM.outputs(path)}
    before = count()
    again = call(path, PROBLEM, x, w, dy, **places)
    assert count() - before == workspaces
    assert [tensor.data_ptr() for tensor in again] == [tensor.data_ptr() for tensor in places.values()]
    assert_right(PROBLEM, (x, w, dy), **places)


def test_nothing_keeps_a_tensors_memory():
    x, w, dy = tensors_of(MIDDLING)
    call("backward", MIDDLING, x, w, dy)
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        more = [tensor.clone() for tensor in (x, w, dy)]
        outputs = call("backward", MIDDLING, *more)
        assert torch.cuda.memory_allocated() > before
        del more, outputs
    assert torch.cuda.memory_allocated() == before


# ---------------------------------------------------------------------------------------------------- streams


@pytest.mark.parametrize("path", PATHS)
def test_calls_run_on_torchs_current_stream_in_order_and_nothing_waits(path, seen):
    """The inputs are written late, on a stream of their own. Run anywhere else, a kernel would read what was before."""
    x, w, dy = tensors_of(PROBLEM)
    _ = [2 * tensor for tensor in call(path, PROBLEM, x, w, dy)]  # a kernel that is loaded waits: theirs, too
    late = [torch.zeros_like(tensor) for tensor in (x, w, dy)]
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    seen.clear()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SLEEP)
        for place, tensor in zip(late, (x, w, dy), strict=True):
            place.copy_(tensor)
        outputs = call(path, PROBLEM, *late)
        doubled = [2 * tensor for tensor in outputs]
        pending = not stream.query()
    stream.synchronize()
    assert pending, "the call waited for the GPU (or the GPU was done within the launch: then raise SLEEP)"
    assert int(seen[0][2]) == stream.cuda_stream
    assert_right(PROBLEM, (x, w, dy), **named(path, [tensor / 2 for tensor in doubled]))


def test_the_gradients_run_on_the_stream_of_the_forward_pass(seen):
    x, w, dy = tensors_of(PROBLEM)
    leaves = [tensor.clone().requires_grad_() for tensor in (x, w)]
    depthwise_conv1d(*leaves, "same").backward(dy)
    late = [torch.zeros_like(tensor).requires_grad_() for tensor in (x, w)]
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    seen.clear()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SLEEP)
        with torch.no_grad():
            for place, tensor in zip(late, (x, w), strict=True):
                place.copy_(tensor)
        y = depthwise_conv1d(*late, "same")
        dx, dw = torch.autograd.grad(y, late, dy)
        pending = not stream.query()
    stream.synchronize()
    assert pending
    assert {int(one) for _, _, one in seen} == {stream.cuda_stream}
    assert_right(PROBLEM, (x, w, dy), y=y, dx=dx, dw=dw)


def test_workspaces_of_calls_in_flight_on_two_streams_do_not_meet():
    x, w, dy = tensors_of(MIDDLING)
    want = dispatch.backward(dy, x, w)
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    found = []
    for turn in range(40):
        with torch.cuda.stream(streams[turn % 2]):
            found.append(dispatch.backward(dy, x, w))
    torch.cuda.synchronize()
    for dx, dw in found:
        torch.testing.assert_close(dx, want[0], rtol=2.0**-20, atol=2.0**-20)
        torch.testing.assert_close(dw, want[1], rtol=2.0**-17, atol=2.0**-13)  # atomics come in any order


def test_calls_from_another_thread():
    x, w, dy = tensors_of(PROBLEM)
    found = {}
    thread = threading.Thread(target=lambda: found.update(y=dispatch.forward(x, w, padding="same")))
    thread.start()
    thread.join()
    assert_right(PROBLEM, (x, w, dy), **found)


# ---------------------------------------------------------------------------------------------------- graphs


def warm(body):
    """A few runs on a side stream, as PyTorch asks for before a capture: they compile and load every kernel."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            body()
    torch.cuda.current_stream().wait_stream(side)


@pytest.mark.parametrize("one", registry.stages("depthwise1d"), ids=lambda one: one.id)
def test_a_graph_of_each_stage_replays_with_changed_inputs(one):
    places = tensors_of(PROBLEM)
    body = lambda: call(one.path, PROBLEM, *places, stage=one.name)  # noqa: E731
    warm(body)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = body()
    for seed in (1, 2):
        fresh = tensors_of(PROBLEM, seed=seed)
        for place, tensor in zip(places, fresh, strict=True):
            place.copy_(tensor)
        for tensor in outputs:
            tensor.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        assert_right(PROBLEM, fresh, **named(one.path, outputs))


def test_a_graph_of_forward_and_backward_as_in_training():
    problem = MIDDLING
    x, w, dy = tensors_of(problem)
    x.requires_grad_()
    w.requires_grad_()

    def step():
        y = depthwise_conv1d(x, w, problem.padding)
        return (y.detach(), *torch.autograd.grad(y, (x, w), dy))

    warm(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, dx, dw = step()
    for seed in (3, 4):
        fresh = tensors_of(problem, seed=seed)
        with torch.no_grad():
            for place, tensor in zip((x, w, dy), fresh, strict=True):
                place.copy_(tensor)
        graph.replay()
        torch.cuda.synchronize()
        assert_right(problem, fresh, y=y, dx=dx, dw=dw)


# ----------------------------------------------------------------------------- wrong devices, and the paper's shape


def test_tensors_on_the_wrong_device():
    x, w, dy = tensors_of(PROBLEM)
    with pytest.raises(DispatchError, match=re.escape("x is on cpu and dwlab runs in gpu mode: pass x.cuda()")):
        dispatch.forward(x.cpu(), w.cpu())
    with pytest.raises(DispatchError, match=re.escape("w is on cpu and dwlab runs in gpu mode: pass w.cuda()")):
        depthwise_conv1d(x, w.cpu())
    with pytest.raises(DispatchError, match=re.escape("y is on cpu and dwlab runs in gpu mode: pass y.cuda()")):
        dispatch.forward(x, w, y=torch.empty(x.shape))
    with pytest.raises(DispatchError, match="x is a torch tensor and w a Numba device array"):
        dispatch.forward(x, cuda.as_cuda_array(w))
    with pytest.raises(DispatchError, match="torch tensors: they run on torch's current stream"):
        dispatch.forward(x, w, stream=torch.cuda.Stream())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason=f"needs two GPUs, and torch sees {torch.cuda.device_count()}")
def test_two_gpus():
    x, w, dy = tensors_of(PROBLEM)
    there = [one.to("cuda:1") for one in (x, w, dy)]
    with pytest.raises(DispatchError, match=re.escape("x is on cuda:0 and w on cuda:1: pass w.to(x.device)")):
        dispatch.forward(x, there[1])
    remedy = "x is on cuda:1 and the current GPU is cuda:0: call under `with torch.cuda.device(x.device):`"
    with pytest.raises(DispatchError, match=re.escape(remedy)):
        dispatch.forward(*there[:2])
    leaves = [tensor.clone().requires_grad_() for tensor in there[:2]]
    with torch.cuda.device(1):
        y = depthwise_conv1d(*leaves, "same")
        dx, dw = torch.autograd.grad(y, leaves, there[2])
        torch.cuda.synchronize()
    assert {one.device for one in (y, dx, dw)} == {there[0].device}
    assert_right(PROBLEM, there, y=y, dx=dx, dw=dw)
    assert_right(PROBLEM, (x, w, dy), y=dispatch.forward(x, w, padding="same"))


def test_the_papers_shape_by_a_few_of_its_rows():
    """All rows are computed; those of two batch entries, and all dw of two channels, are compared."""
    problem = problems.PAPER
    generator = torch.Generator(device="cuda").manual_seed(0)
    rows, filters = (problem.B, problem.H, problem.L), (problem.H, problem.K)
    x, w, dy = (3 * torch.rand(shape, generator=generator, device="cuda") - 1 for shape in (rows, filters, rows))
    x.requires_grad_()
    w.requires_grad_()
    y = depthwise_conv1d(x, w)
    dx, dw = torch.autograd.grad(y, (x, w), dy)
    entries = [0, problem.B - 1]
    few = dataclasses.replace(problem, B=2)
    cut = tuple(tensor.detach()[entries] for tensor in (x, dy))
    assert_right(few, (cut[0], w, cut[1]), y=y[entries], dx=dx[entries])
    channels = [0, problem.H - 1]
    few = dataclasses.replace(problem, H=2)
    cut = tuple(tensor.detach()[:, channels].contiguous() for tensor in (x, dy))
    assert_right(few, (cut[0], w[channels], cut[1]), dw=dw[channels])
