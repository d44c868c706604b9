"""Programmatic dependent launch: which edges of a graph may change, how they do, and that the kernels wait."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from compiler import needs_compiler

from dwlab import dependent_launch, inference, inspect, ptx, simt, target
from dwlab.dependent_launch import EdgeError, early
from dwlab.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.target import cuda

CHAIN = [("stem", "a"), ("a", "b"), ("b", "pool"), ("pool", "c"), ("c", "copy"), ("copy", "d"), ("d", "e")]
KERNELS = {"stem", "a", "b", "pool", "c", "d", "e"}


def test_only_edges_before_kernels_that_wait_change():
    waiting = {"a", "b", "c", "d"}
    found = [CHAIN[number] for number in early(CHAIN, KERNELS, waiting)]
    assert found == [("stem", "a"), ("a", "b"), ("pool", "c")]  # not pool and e, which do not wait, nor d after a copy
    assert early(CHAIN, KERNELS, ()) == [] and early([], (), ()) == []


def test_a_node_with_several_before_it_keeps_its_edges():
    edges = [("x", "left"), ("x", "right"), ("left", "sum"), ("right", "sum"), ("sum", "last")]
    nodes = {"x", "left", "right", "sum", "last"}
    assert [edges[number] for number in early(edges, nodes, nodes)] == [edges[0], edges[1], edges[4]]


# --- a driver that keeps a graph's edges in a list --------------------------------------------------------------------


class Handle(int):
    """A node, a graph or a function."""


class Graph:
    """What the driver's calls do, with nodes 1 to 5 in a chain; 3 is a copy, 4 is PyTorch's. refuses: an edge type."""

    CUgraph = Handle
    CUgraphEdgeData = SimpleNamespace
    CUgraphNodeType = SimpleNamespace(CU_GRAPH_NODE_TYPE_KERNEL="kernel")
    NAMES = {1: "first", 2: "second", 4: "cudnn", 5: "third", 6: "second"}

    def __init__(self, refuses=None, own=()):
        self.edges = {(n, n + 1): (1, 1) if (n, n + 1) in own else (0, 0) for n in range(1, 6)}
        self.refuses = refuses

    def cuGraphGetEdges(self, graph, count):
        assert graph == 77
        if not count:
            return 0, [], [], [], len(self.edges)
        data = [SimpleNamespace(type=kind, from_port=port) for kind, port in self.edges.values()]
        return 0, [Handle(a) for a, _ in self.edges], [Handle(b) for _, b in self.edges], data, count

    def cuGraphNodeGetType(self, node):
        return 0, "memcpy" if node == 3 else "kernel"

    def cuGraphKernelNodeGetParams(self, node):  # a library's function, or a kernel that no context has loaded
        return 0, SimpleNamespace(func=Handle(0 if node == 5 else node), kern=Handle(node))

    def cuFuncGetName(self, function):
        return 0, self.NAMES[function].encode()

    cuKernelGetName = cuFuncGetName

    def cuGraphRemoveDependencies(self, graph, first, second, data, count):
        (a,), (b,), (how,) = first, second, data
        assert count == 1 and self.edges[a, b] == (how.type, how.from_port)
        del self.edges[a, b]
        return (0,)

    def cuGraphAddDependencies(self, graph, first, second, data, count):
        (a,), (b,), (how,) = first, second, data
        assert count == 1 and (a, b) not in self.edges
        if (how.type, a) == self.refuses:
            return (1,)
        self.edges[a, b] = (how.type, how.from_port)
        return (0,)


@pytest.fixture
def graph(monkeypatch):
    def use(*given, **options):
        made = Graph(*given, **options)
        monkeypatch.setattr(dependent_launch, "_driver", lambda: made)
        return made

    return use


@pytest.mark.parametrize("port, number", [("end", 1), ("begin", 2)])
def test_edges_of_a_graph_become_programmatic(graph, port, number):
    made = graph()
    assert dependent_launch.overlapped(77, {"first", "second", "third"}, port) == 3
    assert made.edges == {(1, 2): (1, number), (2, 3): (0, 0), (3, 4): (0, 0), (4, 5): (1, number), (5, 6): (1, number)}
    made = graph()
    assert dependent_launch.overlapped(77, {"first"}, port) == 0 and set(made.edges.values()) == {(0, 0)}


def test_an_edge_that_a_library_made_so_stays_as_it_is(graph):
    made = graph(own=[(4, 5)])
    assert dependent_launch.overlapped(77, {"second", "third"}, "begin") == 2
    assert made.edges[4, 5] == (1, 1) and made.edges[5, 6] == (1, 2)


def test_a_graph_that_cannot_be_changed_is_as_it_was(graph):
    made = graph(refuses=(1, 5))
    before = dict(made.edges)
    with pytest.raises(EdgeError, match="the driver says 1"):
        dependent_launch.overlapped(77, {"second", "third"})
    assert made.edges == before


def test_bindings_that_know_no_kinds_of_edges_are_named(monkeypatch):
    bindings = pytest.importorskip("cuda.bindings.driver", reason="needs cuda.bindings, of the GPU extras")
    monkeypatch.delattr(bindings, "CUgraphEdgeData")
    with pytest.raises(EdgeError, match=r"CUDA 12\.3"):
        dependent_launch.overlapped(77, ())


# --- the kernels wait -------------------------------------------------------------------------------------------------


@cuda.jit
def doubled(x, y):
    ptx.grid_dependency_wait()
    i = cuda.grid(1)
    if i < y.size:
        y[i] = 2 * x[i]


def test_in_a_kernel_on_its_own_the_wait_does_nothing():
    x, y = np.arange(64, dtype=np.float32), np.full(64, np.nan, np.float32)
    doubled[2, 32](x, y)
    np.testing.assert_array_equal(y, 2 * x)
    report = simt.xray(simt.jit(doubled.py_func) if target.mode == "gpu" else doubled, 2, 32, x, y)
    assert report.hazards == () and report.totals.global_load_requests == 2


def problems(layout, dtype):
    """A depthwise layer, a pointwise layer, and the pairs of the two that there are."""
    dw = DepthwiseConv2d(1, 32, 8, 8, 3, layout=layout, dtype=dtype)
    pw = Pointwise(1, 32, 32, 8, 8, layout=layout, dtype=dtype)
    return dw, pw, Fused(dw, pw), Fused(pw, dw), Fused(pw, pw)


def waits(one):
    """Whether the text of a stage's kernel begins with the wait."""
    return re.search(r"\n +def kernel\(x, [^)]*\):\n +ptx.grid_dependency_wait\(\)\n", one.source()) is not None


WAITING = {
    one.id: problem
    for layout, dtype in (("NCHW", "float32"), ("NHWC", "int8"), ("NHWC", "float16"))
    for problem in problems(layout, dtype)
    for one in inference.takers(problem)
    if waits(one)
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_the_stages_that_networks_prefer_wait(dtype):
    for problem in problems("NHWC", dtype):
        assert inference.takers(problem)[-1].id in WAITING, problem


@needs_compiler
@pytest.mark.parametrize("name", WAITING)
def test_every_thread_waits_before_it_touches_memory(name):
    text = inspect.compile(name, problem=WAITING[name], cc="9.0").ptx
    ahead, _, after = text.partition(dependent_launch.WAIT)
    assert after and not re.search(r"\b(ld|st|atom|red)\.|cp\.async|\bbra\b|\bret;", ahead.replace("ld.param", ""))


@needs_compiler
@pytest.mark.parametrize("cc", ["7.5", "8.9"])
def test_where_no_kernel_starts_early_the_wait_is_no_instruction(cc):
    layer = DepthwiseConv2d(1, 32, 8, 8, 3, layout="NHWC")
    text = inspect.compile("depthwise2d/forward/wide", problem=layer, cc=cc).ptx
    assert f".target sm_{cc.replace('.', '')}" in text and "griddepcontrol" not in text
