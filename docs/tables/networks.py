"""Tables of layers, pairs and networks against PyTorch, of the planner, of sparse filters, of counters of layers."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Container, Sequence

from dwlab import planner, records
from dwlab.planner import validation
from dwlab.problems import PAPER
from dwlab.problems.layers import DTYPES, Fused
from dwlab.problems.networks import network
from dwlab.records import Record
from dwlab.report import rows as found_in
from dwlab.report.rows import VALIDATED, Brought, Runs, geometric, grouped, measured_on, network_of, over, share
from dwlab.text.tabular import Markdown, percent, rounded, times
from tables import stages
from tables.writing import LARGE_US, NONE, listed, median, near_copies, shown, slower, table, values

LIBRARIES = ("cuBLAS", "PyTorch", "cuSPARSELt heuristic", "cuSPARSELt search", "cuSPARSE")
"""Those that a layer with sparse filters is compared with."""


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# -------------------------------------------------------------------------------------------------------------- layers


def layers(runs: Runs) -> Markdown:
    """Our stages against PyTorch's best on layers of image networks, a row an op, storage type and batch."""
    found, used = found_in.layers(runs)
    if not found:
        return NONE
    copied, rows = records.copies(runs, used[-1].gpu), []
    for (op, dtype, batch), here in grouped(found, found_in.group_of).items():
        every = set().union(*(found_in.layers_of(name, dtype) for name in VALIDATED))
        its = {layer for one, path, layer in every if found_in.op_of({"op": one, "path": path}) == op}
        ratios, unfused = values(here, "speedup_vs_peer"), values(here, "speedup_vs_apart")
        large = [row for row in here if row.get("time_us") and row["copy_bound_us"] >= LARGE_US]
        fast = [row["fraction_of_copy"] for row in large]
        near = near_copies(((row["compulsory_bytes"], row["time_us"]) for row in large), copied)
        rows.append({
            "layers of": op, "dtype": dtype, "batch": batch, "layers": len(here),
            "not measured": len(its - {row["layer"] for row in here}), "× baseline, geometric mean": geometric(ratios),
            "least": times(min(ratios, default=None)), "slower": sum(ratio < 1 for ratio in ratios),
            "of copy, median": percent(median(values(here, "fraction_of_copy"))),
            "large layers: median": percent(median(fast)), "at 85 % of copy": share([one >= 0.85 for one in fast]),
            "of a copy as large": share(near), "× unfused, geometric mean": geometric(unfused),
            "slower ": share([ratio < 1 for ratio in unfused]),
        })  # fmt: skip
    lost = sorted(((row["speedup_vs_peer"], f"{row['layer']} ({row['dtype']}, batch {row['batch']})")
                   for row in found if (row.get("speedup_vs_peer") or 1) < 1), key=lambda one: one[0])  # fmt: skip
    worst = "; ".join(f"{name} {ratio:.2f}" for ratio, name in lost[:5])
    compiled = sum(row["compiled"] for row in found)
    return table(rows, [
        f"Slower than the baseline: {len(lost)} of {len(found)}, the worst {worst}.  ",
        f"not measured: of the distinct layers and pairs of {', '.join(VALIDATED)}, those without a row. × baseline: "
        "the fastest of any record of PyTorch over our fastest stage, both in CUDA graphs and their best layout; "
        f"torch.compile is among them for {compiled} of {len(found)} rows; float32 without TF32, int8 beside "
        "PyTorch's float16, and pointwise beside torch._int_mm too. of copy: compulsory bytes over the time, against "
        f"the copy of its run. large: {LARGE_US:g} µs or more at the copy bandwidth. of a copy as large: at 85 % of a "
        "copy of as many bytes. × unfused: our two kernels of a pair, one after the other in a graph, over the fused "
        "one.  ",
        measured_on(used),
    ], (0, 1))  # fmt: skip


def others(runs: Runs) -> Markdown:
    """Layers of no network: each depthwise one with PyTorch's best too, of the others a line an op, type and batch."""
    found, used = found_in.layers(runs, of_networks=False)
    rows = [
        {"layer": row["layer"], "dtype": row["dtype"], "batch": row["batch"],
         "stage, layout": f"{row['stage']}, {row['layout']}" if row.get("stage") else "none",
         "µs": rounded(row.get("time_us")), "baseline (µs)": rounded(row.get("peer_time_us")),
         "× baseline": times(row.get("speedup_vs_peer")), "baseline": row.get("peer")}
        for row in found if row["op"] == "depthwise2d"
    ]  # fmt: skip
    lines, drawn = [], (row for row in found if row["op"] != "depthwise2d")
    for (op, dtype, batch), here in grouped(drawn, found_in.group_of).items():
        ratios = values(here, "speedup_vs_peer")
        lines.append(
            f"{len(here)} drawn layers of {op}, {dtype}, batch {batch}: × baseline {geometric(ratios)}, geometric "
            f"mean; {times(min(ratios))}, the least; below 1: {sum(one < 1 for one in ratios)}, below 0.9: "
            f"{sum(one < 0.9 for one in ratios)}.  "
        )
    return table(rows, [*lines, measured_on(used)], (0, 1, 3, -1))


def losses(runs: Runs) -> Markdown:
    """Where our kernels, or their fusion, lose: how many layers, pairs and networks, and which kinds; a list."""
    lines, lost, most = [], {}, []
    of_networks, of_none = ([row for row in found_in.layers(runs, which)[0] if row.get("speedup_vs_peer")]
                            for which in (True, False))  # fmt: skip
    for (op, dtype, batch), here in grouped(of_networks, found_in.group_of).items():
        mean = statistics.geometric_mean(values(here, "speedup_vs_peer"))
        name = f"{op.partition('/')[2].upper()} pairs in one kernel" if "/" in op else f"{op} layers"
        if mean < 1:
            lost.setdefault(name, []).append(f"{dtype} batch {batch} ({times(mean)} ×)")
    if of_networks:
        behind, more = ([row["speedup_vs_peer"] < 1 for row in rows] for rows in (of_networks, of_none))
        many = f"{share(behind)} recorded layers and pairs{f', {share(more)} of no network' if more else ''}."
        kinds = "; ".join(f"{name} in {_and(where)}" for name, where in lost.items())
        lines.append(f"- Slower than PyTorch's best way: {many}{f' On the mean: {kinds}.' if kinds else ''}")
    pairs = sorted(found_in.brought_to_pairs(runs)[0], key=lambda one: (DTYPES.index(one.dtype), one.batch))
    for (dtype, batch), here in grouped(pairs, lambda one: (one.dtype, one.batch)).items():
        behind = [one.fusion < 1 for one in here if one.fusion]
        most += [f"{dtype} batch {batch} ({share(behind)})"] if sum(behind) * 2 > len(behind) else []
    if most:
        lines.append(f"- Fusing is slower than our own two kernels for most pairs in {_and(most)}.")
    if found := found_in.brought_to_networks(runs)[0]:
        names = [f"{one.name} in {one.dtype} at batch {one.batch}" for one in found if one.kernels and one.both < 1]
        lines.append(f"- Slower than PyTorch's best as a whole: {len(names)} of {len(found)} networks{listed(names)}.")
    return Markdown("\n".join([*lines, ""])) if lines else NONE


NEAR = 0.1
"""How far the planner's bytes may be from the hardware's, as a fraction of these, and count as right."""


def layer_counters(runs: Runs = None) -> found_in.Found:
    """The newest counters of each stage, layer, layout, batch and storage type; and the runs."""
    names = ("op", "path", "stage", "layer", "layout", "batch", "dtype")
    rows, used = records.newest_rows("layer_counters", lambda row: tuple(row[name] for name in names), runs)
    order = ("depthwise2d", "pointwise", "fused")
    return sorted(rows, key=lambda row: (order.index(row["op"]), row["path"], row["stage"], -len(row["dtype"]))), used


def counters(runs: Runs) -> Markdown:
    """Requests and sectors of layers' launches by formula and by the hardware, a row a stage and storage type.

    And in how many launches the planner's accesses, in sectors, are what warps requested.
    """
    found, used = layer_counters(runs)
    launches, rows = grouped(found, lambda row: (found_in.op_of(row), row["stage"], row["dtype"])), []
    for (op, stage, dtype), here in launches.items():
        equal = {}
        for what in ("requests", "sectors"):
            names = f"load_{what}", f"store_{what}"
            counted = [row for row in here if None not in map(row.get, names)]
            same = [all(row[name] == row[f"predicted_{name}"] for name in names) for row in counted]
            equal[f"{what} as the formula says"] = share(same)
        loaded = sorted(row["load_sectors"] / row["predicted_load_sectors"] for row in here if row.get("load_sectors"))
        planned = [row["planned_asked_bytes"] / (32 * (row["load_sectors"] + row["store_sectors"])) for row in here
                 if all(map(row.get, ("planned_asked_bytes", "load_sectors", "store_sectors")))]  # fmt: skip
        rows.append({
            "stage": f"{op}/{stage}", "dtype": dtype, "launches": len(here), **equal,
            "load sectors / formula": " to ".join(dict.fromkeys(f"{one:.2f}" for one in (loaded[:1] + loaded[-1:]))),
            f"planner within {100 * NEAR:g} %": share([abs(one - 1) <= NEAR for one in planned]),
        })  # fmt: skip
    return table(rows, [
        f"{len(found)} launches. Of copies past the registers (cp.async) the hardware counts a sector for each 32 "
        "bytes of shared memory that a 128-byte line goes to: more than the formula where rows lie off by 16 bytes, as "
        "the interpreter's `copied_again` counts. planner: the bytes that its plan says warps request. Counted by "
        f"Nsight Compute, one launch each, from cold caches. {measured_on(used)}",
    ], (0, 1))  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- pairs


def _in_networks(runs: Runs, gpu: str) -> tuple[list[Brought], list[Record]]:
    """Every pair of the VALIDATED networks that was timed both ways in one run of its network, alike ones once.

    Arrays are in the L2 as far as they fit, as in the network. No baseline is timed so.
    """
    runs = records.shown_runs([run for run in found_in.all_of(runs) if run.sections.get("network_kernels")], gpu)
    recorded = {network_of(row) for run in runs for row in run.sections["network_kernels"]}
    found: dict[tuple[str, str, int], Brought] = {}
    used: list[Record] = []
    for name, batch, dtype, layout in sorted(recorded, key=lambda one: (one[0], one[2], one[1], one[3])):
        if name in VALIDATED:
            timed, run = validation.timed_kernels(network(name, batch, layout, dtype), gpu, runs)
            times = {problem: us for _, problem, us in timed}
            used += [run] if run is not None else []
            for pair, us in times.items():
                if isinstance(pair, Fused) and pair.first in times and pair.second in times:
                    key = found_in.layer_text(pair), dtype, batch
                    both = times[pair.first] + times[pair.second]
                    found.setdefault(key, Brought(pair.main_path, *key, None, both, us))
    return list(found.values()), [run for run in runs if any(one is run for one in used)]


Group = tuple[str, str, int]
"""Kind, storage type and batch."""


def by_group(found: Sequence[Brought]) -> dict[Group, list[Brought]]:
    """Pairs or networks by kind, storage type and batch: types as the tables have them, DWPW first."""
    ordered = sorted(found, key=lambda one: (one.kind, DTYPES.index(one.dtype), one.batch))
    return grouped(ordered, lambda one: (one.kind, one.dtype, one.batch))


def pairs(runs: Runs) -> Markdown:
    """Gains by our kernels for pairs of layers, and by fusing them beside: a row a module, type and batch."""
    found, used = found_in.brought_to_pairs(runs)
    if not found:
        return NONE
    every, (inside, also) = by_group(found), _in_networks(runs, used[-1].gpu)
    in_networks, rows, faster, behind = by_group(inside), [], [], []
    for group, here in every.items():
        (kind, dtype, batch), there = group, in_networks.get(group, [])
        alone = [one for one in here if one.kernels and one.fusion]
        rows.append({
            "module": kind.upper(), "dtype": dtype, "batch": batch,
            "pairs": f"{len(alone)}{f' of {len(here)}' if len(alone) < len(here) else ''}",
            "kernels: × PyTorch layer by layer": geometric((one.kernels for one in alone), True),
            "fusion: × layer by layer": geometric((one.fusion for one in alone), True),
            "faster fused": share([one.fusion > 1 for one in alone]),
            "both: × PyTorch": geometric((one.kernels * one.fusion for one in alone), True),
            "fusion in a network: × layer by layer": geometric((one.fusion for one in there), True),
            "faster fused ": share([one.fusion > 1 for one in there]),
        })  # fmt: skip
        means = [statistics.geometric_mean(one.fusion for one in ones) for ones in (alone, there) if ones]
        faster += [group] if means and min(means) > 1 else []
        behind += [group] if means and max(means) < 1 else []
    return table(rows, [
        f"On the mean fusing wins, however it is measured, in {len(faster)} of {len(every)} rows{_names(faster)}. "
        f"It loses, however it is measured, in {len(behind)}{_names(behind)}.  ",
        "Geometric means, TF32 off. kernels: PyTorch's fastest way for the two layers, for int8 its float16, over our "
        "own two kernels, one for each layer. fusion: our own two over our fused one; below 1 it is slower. both: the "
        "product of the two, which a comparison with PyTorch alone takes for fusion. These three with arrays out of "
        "the L2 as far as that can be, also the map that the first has just written, where our two were not timed in "
        "one graph: that favours fusion at batch 32. in a network: the same pairs timed with arrays in the L2 as far "
        "as they fit.  ",
        f"pairs: those of whose two layers both were timed. {measured_on([*used, *also])}",
    ], (0, 1))  # fmt: skip


def _names(groups: Sequence[Group]) -> str:
    """ ": DWPW int8 batch 1 and 32; …", the groups of a module and type together; "" of none."""
    batches = grouped(groups, lambda group: f"{group[0].upper()} {group[1]} batch")
    names = [f"{what} {' and '.join(f'{batch}' for *_, batch in here)}" for what, here in batches.items()]
    return listed(names)


# ------------------------------------------------------------------------------------------------------------ networks


def networks(runs: Runs, names: Container[str] | None = None) -> Markdown:
    """Gains by our kernels for each network, by fusing beside, and the energy of an image with PyTorch's.

    names: the networks that have rows, all if None; the sentences below are of all in any case.
    """
    rows, used = found_in.networks(runs)
    found = {network_of(row): one for row, one in zip([row for row in rows if row.get("apart_us")],
                                                      found_in.brought_to_networks(runs)[0], strict=True)}  # fmt: skip
    if not found:
        return NONE
    ways = [one for run in found_in.all_of(runs) if run.gpu == used[-1].gpu for one in run.peers if one.get("time")]

    def among(way: str) -> int:
        tried = {(one["shape"]["network"], one["shape"]["N"], one["dtype"]) for one in ways
                 if way in str(one.get("way"))}  # fmt: skip
        return sum((row["network"], row["batch"], row.get("peer_dtype") or row["dtype"]) in tried for row in rows)

    lines = []
    for row in (row for row in rows if names is None or row["network"] in names):
        one = found.get(network_of(row))
        kernels, fusion, both = (one.kernels, one.fusion, one.both) if one else (None, None, None)
        joules, theirs = (row.get(name) or None for name in ("joules", "peer_joules"))
        lines.append({
            "network": row["network"], "dtype": row["dtype"], "batch": row["batch"],
            "PyTorch's best (µs)": rounded(row.get("peer_time_us")),
            "layer by layer (µs)": rounded(row.get("apart_us")), "fused (µs)": rounded(row.get("fused_us")),
            "fused pairs": row.get("pairs"), "kernels: × PyTorch": slower(kernels),
            "fusion: × layer by layer": slower(fusion), "both: × PyTorch": slower(both),
            "mJ an image": joules and rounded(1e3 * joules), "PyTorch's": theirs and rounded(1e3 * theirs),
            "× PyTorch": slower(over(theirs, joules)),
        })  # fmt: skip
    means = []
    for (_, dtype, batch), here in by_group([one for one in found.values() if one.name in VALIDATED]).items():
        brings = geometric(max(one.fusion or 1.0, 1.0) for one in here)
        means.append(f"{dtype} batch {batch}: kernels {geometric(one.kernels for one in here)}, fusion {brings}")
    behind = [f"{one} {one.fusion:.2f}" for one in found.values() if one.fusion is not None and one.fusion <= 1]
    none = [f"{one}" for one in found.values() if one.fused_us is None]
    watts = [row[name] for row in rows for name in ("rest_watts", "peer_rest_watts") if row.get(name)]
    rest = f"took {min(watts):.0f} to {max(watts):.0f} W at rest, part of it" if watts else ""
    energy = f" Energy: NVML's, of the whole board, which {rest}." if watts else ""
    return table(lines, [
        f"Geometric means over {', '.join(VALIDATED)}, where the faster way is run: {'; '.join(means)}.  ",
        f"Slower fused, and so run layer by layer, {len(behind)} of {len(found)}{listed(behind)}. No pair was faster "
        f"in one kernel in {len(none)}{listed(none)}.  ",
        "One inference as one CUDA graph, random weights. kernels: PyTorch's best, for int8 its float16, over our "
        "network layer by layer. fusion: that over our network with two layers in one kernel where kernels timed alone "
        "said so. PyTorch's: the least in time and energy of any record, TF32 off; among its ways is torch.compile as "
        f"it comes for {among(' torch.compile, ')} of {len(rows)} rows, with its search and frozen weights for "
        f"{among(' max-autotune with freezing, ')}.{energy}  ",
        measured_on(used),
    ], (0, 1))  # fmt: skip


def own(runs: Runs) -> Markdown:
    """Models of one's own and PyTorch's best, a row a network, storage type and batch."""
    found, used = records.newest_rows("own", network_of, runs)
    rows = [
        {"network": row["network"].removeprefix("torchvision "), "dtype": row["dtype"], "batch": row["batch"],
         "our kernels": row["kernels"], "of these for two layers": row["pairs"],
         "operations by PyTorch": row["operations"], "µs": rounded(row.get("time_us")),
         "PyTorch's best (µs)": rounded(row.get("peer_time_us")), "× PyTorch": slower(row.get("speedup_vs_peer")),
         "PyTorch's best": row.get("peer")}
        for row in found
    ]  # fmt: skip
    means = [f"{dtype} batch {batch} {geometric(row.get('speedup_vs_peer') for row in here)}"
             for (dtype, batch), here in grouped(found, lambda row: (row["dtype"], row["batch"])).items()]  # fmt: skip
    return table(rows, [
        f"× PyTorch, geometric means: {'; '.join(means)}.  ",
        "One inference as one CUDA graph, weights of an untrained model, norms with the means of random images; ours "
        "and PyTorch's each as they are and through torch.compile as it comes, the faster of each; TF32 off.  ",
        measured_on(used),
    ], (0, 1, -1))  # fmt: skip


def headline(runs: Runs) -> Markdown:
    """Five rows, MobileNetV2 by type and batch and S4ConvD's convolution: what the kernels bring, and what fusion.

    µs of an inference in one CUDA graph, and of a launch. What has no record has no row.
    """
    found, used = found_in.brought_to_networks(runs)
    rows = [
        (f"MobileNetV2, {one.dtype}, {one.batch} image{'s' * (one.batch > 1)}", one)
        for one in sorted(found, key=lambda one: (one.batch, DTYPES.index(one.dtype)))
        if one.name == "mobilenet_v2" and one.dtype in ("float32", "float16") and one.batch in (1, 32)
    ]
    run = stages.newest(PAPER, runs=runs)
    made = stages.totals_us(run, found_in.all_of(runs)) if run else {}
    if theirs := made.get(stages.ANY, {}).get("forward"):
        one = Brought("", "", "float32", PAPER.B, theirs, made["best"]["forward"], None)
        rows.append(("1-D convolution (S4ConvD), forward, float32", one))
        used = [*used, run]
    gpus, dates = dict.fromkeys(run.gpu for run in used), sorted(run.date[:10] for run in used)
    return table([
        {"": name, "PyTorch's best (µs)": rounded(one.baseline_us), "our kernels (µs)": rounded(one.unfused_us),
         "two layers in one (µs)": rounded(one.fused_us),
         **{head: shown("{:.2f} ×", ratio) for head, ratio in (
             ("by the kernels", one.kernels), ("by fusion", one.fusion), ("in all", one.both))}}
        for name, one in rows
    ], [f"TF32 off. Measured on {', '.join(gpus)}, {' to '.join(dates[:1] + dates[-1:])}."])  # fmt: skip


EMPTY = "kernels that do nothing"
"""A row of `energy_tries`: what launching costs."""


def energy(runs: Runs) -> Markdown:
    """Ways to run a network that might take less energy: of each plan the order of launches that takes least."""
    found, used = records.newest_rows("energy_tries", lambda row: (*network_of(row), row["way"]), runs)
    if not found:
        return NONE
    recorded = {network_of(row): row for row in found_in.networks(runs, used[-1].gpu)[0] if row.get("peer_joules")}
    rows = []
    for key, here in sorted(grouped(found, network_of).items()):
        theirs = [row for row in here if row["way"].startswith("PyTorch ")]
        best = min(theirs, key=lambda row: row["joules"], default=None)
        least = best["joules"] if best else recorded.get(key, {}).get("peer_joules")
        plans = grouped([row for row in here if row["way"] != EMPTY and row not in theirs],
                        lambda row: row["way"].partition(",")[0])  # fmt: skip
        least_of_plan = [min(plan, key=lambda row: row["joules"]) for plan in plans.values()]
        rows += [
            {"network": row["network"], "dtype": row["dtype"], "way": row["way"].replace("apart", "layer by layer"),
             "kernels of ours": row["kernels"] or None, "time (µs)": rounded(row["time_us"]),
             "W": f"{row['watts']:.0f}", "mJ": rounded(1e3 * row["joules"]),
             "of that above rest (mJ)": rounded(1e3 * row["joules"] * (1 - row["rest_watts"] / row["watts"])),
             "× PyTorch": times(over(least, row["joules"]) if row in least_of_plan else None)}
            for row in here if row is best or row in least_of_plan
        ]  # fmt: skip
    rest, batches = sorted(row["rest_watts"] for row in found), sorted({str(row["batch"]) for row in found})
    return table(rows, [
        f"An image at batch {_and(batches)}, as a CUDA graph. At rest the GPU took "
        f"{rest[0]:.0f} to {rest[-1]:.0f} W. × PyTorch: the least energy of PyTorch's ways over ours; where this run "
        "has none of PyTorch's, the least of any record of whole networks.  ",
        measured_on(used),
    ], (0, 1, 2))  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- planner


def validated(runs: Runs) -> Markdown:
    """The planner's decisions compared with measured times, maps NHWC: a row a network, storage type and batch."""
    having = [run for run in found_in.all_of(runs) if run.sections.get("network_kernels") or run.sections.get("layers")]
    having = records.shown_runs(having)
    recorded = {(row["network"], row["dtype"], row["batch"]) for run in having
                for row in run.sections.get("network_kernels", ()) if row["layout"] == "NHWC"}  # fmt: skip
    plans = [planner.plan(name, having[-1].gpu, dtype=dtype, batch=batch, layout="NHWC")
             for name, dtype, batch in sorted(recorded, key=lambda one: (one[0], -len(one[1]), *one[1:]))]  # fmt: skip
    made = [found for plan in plans if (found := validation.validate(plan, runs=having)).rows]
    if not made:
        return NONE

    def wrong(one: validation.Validation, fuse: bool) -> int:
        return sum(not row.right and row.pair.fuse is fuse for row in one.rows)

    rows = [
        {"network": one.plan.network.name, "dtype": one.plan.network.dtype, "batch": one.plan.network.batch,
         "pairs measured": len(one.rows), "right": sum(row.right for row in one.rows),
         "fused, but slower": wrong(one, True), "unfused, but slower": wrong(one, False),
         "mean regret": percent(one.mean), "largest": percent(one.largest),
         "whole plan over the best": None if one.regret is None else f"+{percent(one.regret)}"}
        for one in made
    ]  # fmt: skip
    every = [row.right for one in made for row in one.rows]
    return table(rows, [
        f"In all {share(every)} decisions are right ({statistics.mean(every):.0%}), each pair by itself. Regret: "
        "time lost, of the better of the two ways. Layers and pairs that are alike count once.  ",
        *(f"Times: {source}.  " for source in dict.fromkeys(one.source for one in made)),
        f"Planned for {made[0].plan.gpu.name} by predicted times, whose constants were fitted to earlier ones of them; "
        "`benchmarks/plan_costs.py` says how far off they are for a network that the fit does not see. Each pair: "
        "`python -m dwlab plan NETWORK --validate`.",
    ], (0, 1))  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- sparse

DENSE = "ours, dense"


def sparse(runs: Runs) -> Markdown:
    """How many times as fast our fastest stage is as each library and as our dense stages, by kind of layer: the
    source's products or networks' layers, in a layout and a pattern. Geometric mean, least and greatest.
    """
    found, used = found_in.fastest_sparse(runs)
    names = [*(name for name in LIBRARIES if any(name in row["peers"] for row in found)), DENSE]
    kinds = grouped(found, lambda row: (row["networks"] != found_in.SOURCE, found_in.layout_of(row), row["pattern"]))
    rows = []
    for (of_networks, layout, pattern), here in sorted(kinds.items(), key=lambda kind: kind[0][:2]):
        beside = {}
        for name in names:
            us = [one["peers"].get(name) if name != DENSE else min(one["dense"].values(), default=None) for one in here]
            ratios = [theirs / one["time_us"] for theirs, one in zip(us, here, strict=True) if theirs is not None]
            beside[f"× {name}"] = (
                f"{geometric(ratios)} ({times(min(ratios))} to {times(max(ratios))})" if ratios else ""
            )
        rows.append({"layers": "of networks" if of_networks else "the source's", "layout": layout, "pattern": pattern,
                     "number": len(here), **beside})  # fmt: skip
    return table(rows, [measured_on(used)], (0, 1, 2))


TABLES = {
    "layers": layers, "layers/others": others, "layers/counters": counters, "headline": headline, "losses": losses,
    "pairs": pairs, "networks": networks, "networks/own": own, "networks/energy": energy, "planner": validated,
    "sparse": sparse,
    "networks/three": functools.partial(networks, names=("mobilenet_v1", "mobilenet_v2", "ceit_t")),
}  # fmt: skip
