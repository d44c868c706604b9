"""Kernels of a CUDA graph that start while the one before runs: programmatic dependent launch.

Between two kernels of a graph, of which one needs the other's outputs, about a µs is lost: the second is started when
all of the first has ended. From compute capability 9.0 on an edge of the graph may be programmatic: the second kernel
is started as soon as all blocks of the first are at their end, or have begun (`PORTS`), and waits itself for what the
first wrote, by ptx.grid_dependency_wait(). `overlapped` turns edges of a captured graph into such edges. Which is
faster depends on the network: kernels that have begun take room from the one before, and those that have nothing to do
ahead of their wait gain little. So inference.prepare tries.

Why the outputs stay right. Maps share memory, so a kernel depends not only on the one before, whose output it reads,
but on earlier ones that read or write the memory that it writes. A captured stream is a chain, in which each kernel
comes after all before. With programmatic edges this still holds of what a kernel does behind its wait, by induction
along the chain: the wait returns when the kernel before is done and what it wrote is there, and that one was done only
after its own wait had returned, in the threads that wrote its outputs at least, so after all that come before it.

So a kernel may have a programmatic edge before it if it waits before it reads or writes a map. What no kernel of the
graph writes it may read earlier: filters, biases and an int8 layer's factors are there before the graph starts, in
memory of their own. Our kernels request the filters that they need first, and wait then. Writing may never come
earlier, not even to a map that the kernel before does not touch: one before that may still read that memory.

All other nodes keep the edge before them: kernels without the wait (PyTorch's, the first stages), copies and memsets,
and nodes with several before them, which a chain has not. They start when the node before is done, so after all.

No block waits for one that finds no place: a kernel is started early only when all blocks of the one before have begun.

Source: CUDA Programming Guide, "Programmatic Dependent Launch", its use in CUDA graphs; CUDA Driver API,
CUgraphEdgeData; PTX ISA 8.7, "griddepcontrol".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeVar

WAIT = "griddepcontrol.wait"
PROGRAMMATIC = 1  # CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
PORTS = {"end": 1, "begin": 2}
"""When the next kernel may start: once all blocks of this one are at their end (or have said so, which ours do not),
or once all have begun (CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER)."""
WORDS = {"": "one after the other", "end": "overlapped from the end", "begin": "overlapped from the beginning"}
"""How kernels of a graph follow each other, by the port of its edges, "" if none has one."""

Node = TypeVar("Node", bound=Hashable)


class EdgeError(RuntimeError):
    """A graph whose edges cannot be changed; the message says what is missing."""


def early(edges: Sequence[tuple[Node, Node]], kernels: Iterable[Node], waiting: Iterable[Node]) -> list[int]:
    """Which edges (from, to) may be programmatic: those between kernels, before one that waits and has no other.

    kernels: the nodes that are kernels. waiting: those that wait before they read or write a map.
    """
    kernels, waiting = set(kernels), set(waiting)
    before = Counter(second for _, second in edges)
    return [
        number for number, (first, second) in enumerate(edges)
        if first in kernels and second in kernels & waiting and before[second] == 1
    ]  # fmt: skip


def waiting_names(kernels: Iterable[Any]) -> set[str]:
    """The names by which the driver knows the compiled forms of kernels of numba.cuda that wait."""
    compiled = (one for kernel in kernels for one in kernel.overloads.values())
    return {one.entry_name for one in compiled if WAIT in one._codelibrary.get_asm_str()}


def overlapped(graph: int, names: Iterable[str], port: str) -> int:
    """Makes edges of a CUDA graph programmatic that may be; returns how many.

    graph: the handle of one that is not instantiated. names: of the kernels that wait. port: one of PORTS. Raises
    EdgeError, the graph as it was, where the driver or cuda.bindings cannot do it.
    """
    driver = _driver()
    graph, names = driver.CUgraph(graph), set(names)
    get = getattr(driver, "cuGraphGetEdges_v2", driver.cuGraphGetEdges)  # _v2: before CUDA 13
    count = _done(get(graph, 0))[-1]
    firsts, seconds, data, _ = _done(get(graph, count)) if count else ((), (), (), 0)
    nodes = {int(one): one for one in (*firsts, *seconds)}
    edges = [(int(first), int(second)) for first, second in zip(firsts, seconds, strict=True)]
    kernels = [number for number, node in nodes.items() if _is_kernel(driver, node)]
    waiting = [number for number in kernels if _name(driver, nodes[number]) in names]
    found = early(edges, kernels, waiting)
    changed = [number for number in found if not (data[number].type or data[number].from_port)]  # a library's own stay
    for done, number in enumerate(changed):
        first, second = firsts[number], seconds[number]
        try:
            _change(driver, graph, first, second, (0, 0), (PROGRAMMATIC, PORTS[port]))
        except EdgeError:
            for other in changed[:done]:
                _change(driver, graph, firsts[other], seconds[other], (PROGRAMMATIC, PORTS[port]), (0, 0))
            raise
    return len(changed)


def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise EdgeError(f"cuda.bindings is needed to change a graph's edges ({error})") from None
    if not hasattr(driver, "CUgraphEdgeData"):
        raise EdgeError("these cuda.bindings know no kinds of edges: CUDA 12.3 or later is needed")
    return driver


def _done(answer: Sequence[Any]) -> Sequence[Any]:
    """The values that a call of the driver gives beside its status."""
    status, *found = answer
    if int(status):
        raise EdgeError(f"the driver says {getattr(status, 'name', status)}")
    return found


def _is_kernel(driver: Any, node: Any) -> bool:
    (kind,) = _done(driver.cuGraphNodeGetType(node))
    return kind == driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL


def _name(driver: Any, node: Any) -> str:
    """A kernel node's function; "" where the driver does not say."""
    status, params = driver.cuGraphKernelNodeGetParams(node)
    if int(status):
        return ""
    for ask, handle in ((driver.cuFuncGetName, params.func), (driver.cuKernelGetName, params.kern)):
        if int(handle):
            status, name = ask(handle)
            if not int(status):
                return name.decode() if isinstance(name, bytes) else str(name)
    return ""


def _change(driver: Any, graph: Any, first: Any, second: Any, old: tuple[int, int], new: tuple[int, int]) -> None:
    """Puts another edge in the place of one; (type, port) as CUgraphEdgeData has them. As it was where that fails."""
    remove = getattr(driver, "cuGraphRemoveDependencies_v2", driver.cuGraphRemoveDependencies)
    add = getattr(driver, "cuGraphAddDependencies_v2", driver.cuGraphAddDependencies)
    _done(remove(graph, [first], [second], [_edge(driver, *old)], 1))
    try:
        _done(add(graph, [first], [second], [_edge(driver, *new)], 1))
    except EdgeError:
        _done(add(graph, [first], [second], [_edge(driver, *old)], 1))
        raise


def _edge(driver: Any, kind: int, port: int) -> Any:
    made = driver.CUgraphEdgeData()
    made.type, made.from_port = kind, port
    return made
