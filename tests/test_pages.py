"""Ratios of the pages' tables, and of the sentences below them, computed anew from the packed records: all but LEFT.

Nothing here is shared with what builds the pages: tables are read as text, records as JSON lines. The last test asks
that each ratio was compared.
"""

import functools
import itertools
import json
import lzma
import math
import re
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
H200, H100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"
PAPER = "B=16384 H=128 L=48 K=48 padding=causal"
THREE = "forward", "input_grad", "weight_grad"
COMPARED = set()
"""Cells by their id, and numbers of sentences by page and place: those that `same` and `says` held against a record."""


@functools.cache
def runs(gpu):
    files = sorted((ROOT / "dwlab/records").glob("*.jsonl.xz"))
    found = [json.loads(line) for file in files for line in lzma.open(file)]
    here = (run for run in found if run["environment"]["gpu"] == gpu)
    return sorted(here, key=lambda run: run["environment"]["date"])


def rows(gpu, part):
    """(place of the run, row) of a section, oldest first."""
    return [(place, row) for place, run in enumerate(runs(gpu)) for row in run.get(part) or ()]


@functools.cache
def tables(page):
    """Name -> rows, each a dictionary by the head; of a head that stands twice the second has "'" behind it."""
    found = {}
    for name, text in re.findall(r"<!-- begin:(\S+) -->\n(.*?)<!-- end", (ROOT / page).read_text(), re.S):
        lines = [
            [cell.strip() for cell in line.strip("|\n").split("|")] for line in text.splitlines() if line[:1] == "|"
        ]
        if lines:
            head = [one + "'" * lines[0][:place].count(one) for place, one in enumerate(lines[0])]
            found[name] = [dict(zip(head, line, strict=True)) for line in lines[2:]]
    return found


def numbers(text):
    return [float(one.replace(",", "")) for one in re.findall(r"-?[\d,]*\.?\d+", text)]


def same(shown, *values):
    """Each number that is shown is the value, rounded to as many digits."""
    found = re.findall(r"-?[\d,]*\.?\d+", shown)
    assert len(found) == len(values), (shown, values)
    for text, value in zip(found, values, strict=True):
        unit = 10.0 ** -len(text.partition(".")[2])
        assert abs(float(text.replace(",", "")) - value) <= 0.5001 * unit, (shown, value)
    COMPARED.add(id(shown))


def says(page, pattern, *values):
    """What the pattern's groups find on a page are these numbers."""
    found = re.search(pattern, (ROOT / page).read_text())
    for place, value in enumerate(values, 1):
        same(found[place], value)
        COMPARED.add((page, found.start(place)))


def shape(problem):
    return " ".join(f"{name}={value}" for name, value in problem.items() if name != "dtype")


def calm(row):
    low, time, high = (row.get(name) for name in ("p10_us", "time_us", "p90_us"))
    return not (low and time and high) or (high - low) / time < 0.05


def mean(ratios):
    return math.exp(statistics.mean(map(math.log, ratios)))


@functools.cache
def peers(gpu):
    """(path, type, problem) -> {way: least µs of PyTorch in any run}; "" is what a row of ours was compared with."""
    best = defaultdict(dict)

    def put(path, dtype, problem, way, us):
        known = best[path, dtype, shape(problem)]
        known[way] = min(us, known.get(way, us))

    for _, one in rows(gpu, "peers"):
        if one.get("time") and one.get("shape"):
            way, us = one["way"].split(":")[0], one["time"]["median_us"]
            put(one["path"], one.get("dtype", "float32"), one["shape"], way, us)
    for part in ("measurements", "grid", "shapes", "layers"):
        for _, row in rows(gpu, part):
            if row.get("peer_time_us"):
                put(row["path"], row["dtype"], row["problem"], "", row["peer_time_us"])
    return best


def papers(gpu, kinds=None):
    """Path -> µs of PyTorch's fastest way, of these kinds, at the paper's shape."""
    found = {}
    for path in (*THREE, "backward"):
        ways = peers(gpu)[path, "float32", PAPER]
        found[path] = min(us for way, us in ways.items() if kinds is None or way.startswith(kinds))
    return found


@functools.cache
def newest_stages(gpu, paths):
    """Path -> stage -> row of the newest run that has all these paths at the paper's shape."""
    for run in reversed(runs(gpu)):
        found = defaultdict(dict)
        for row in run.get("measurements") or ():
            if (row["op"], row["dtype"], shape(row["problem"])) == ("depthwise1d", "float32", PAPER):
                found[row["path"]][row["stage"]] = row
        if all(path in found for path in paths):
            return found
    raise AssertionError(f"no run on {gpu} has {paths}")


@pytest.mark.parametrize("page, name, gpu", [("depthwise1d", "", H200), ("h100", "h100/", H100)])
def test_the_papers_table(page, name, gpu):
    page = f"docs/results/{page}.md"
    found, total = newest_stages(gpu, THREE), {}
    us = {stage: {path: found[path][stage]["time_us"] for path in THREE}
          for stage in found["forward"] if all(stage in found[path] for path in THREE)}  # fmt: skip
    every = {path: min(row["time_us"] for row in some.values()) for path, some in found.items()}
    for label, times in {"best": every, "PyTorch, conv1d/conv2d/FFT": papers(gpu, ("conv1d", "conv2d", "FFT")),
                         "PyTorch, any way": papers(gpu)}.items():  # fmt: skip
        us[label] = {path: times[path] for path in THREE}
        us[f"{label}, fused backward"] = {path: times[path] for path in ("forward", "backward")}
    shown = {row["variant"]: row for row in tables(page)[f"{name}depthwise1d/total"]}
    assert set(shown) == set(us)
    for variant, times in us.items():
        total[variant] = sum(times.values())
        for path, one in times.items():
            same(shown[variant][f"{path} (ms)"], one / 1e3)
        same(shown[variant]["total (ms)"], total[variant] / 1e3)
        same(shown[variant]["× naive"], total["naive"] / total[variant])
        if shown[variant]["total (ms)'"]:  # the paper's own
            theirs = [numbers(shown[one]["total (ms)'"])[0] for one in ("naive", variant)]
            same(shown[variant]["× naive'"], theirs[0] / theirs[1])
    for label, other in {"the naive ones": "naive", "PyTorch's best of": "PyTorch, conv1d/conv2d/FFT",
                         "the best of all": "PyTorch, any way"}.items():  # fmt: skip
        least = min(total[other], total.get(f"{other}, fused backward", math.inf))
        says(page, rf"together ([\d.]+) times as fast as {label}.* fused backward ([\d.]+) times",
             total[other] / total["best"], least / total["best, fused backward"])  # fmt: skip


def test_the_ladder_of_stages():
    for row in tables("docs/results/depthwise1d.md")["depthwise1d"]:
        path, stage = row["path"], row["stage"]
        theirs = papers(H200)[path]
        if stage.startswith("baseline"):
            same(row["time (µs)"], theirs)
            continue
        here = newest_stages(H200, (path,))[path]
        same(row["time (µs)"], here[stage]["time_us"])
        same(row["× naive"], here["naive"]["time_us"] / here[stage]["time_us"])
        same(row["× baseline"], theirs / here[stage]["time_us"])
        same(row["effective GB/s"], here[stage]["compulsory_bytes"] / here[stage]["time_us"] / 1e3)
        same(row["of copy"], 100 * here[stage]["fraction_of_copy"])
        assert ("slower" in row["× baseline"]) == (theirs < here[stage]["time_us"])


def newest(gpu, part, key):
    """The newest calm row of each key."""
    found = {}
    for place, row in rows(gpu, part):
        if calm(row):
            found[key(row)] = place, row
    return found


def where(row):
    return row["path"], row["dtype"], shape(row["problem"])


def moved(row):
    """The bytes that the 1-D convolution must move at least."""
    B, H, L, K, arrays = *(row["problem"][name] for name in "BHLK"), 3 if row["path"] == "backward" else 2
    return (4 if row["dtype"] == "float32" else 2) * arrays * B * H * L + 4 * (arrays - 1) * H * K


def copied(size):
    """µs of a copy of so many bytes, by the newest run with copies, linear between two; 0 below the smallest."""
    *_, timed = (run["copies"] for run in runs(H200) if run.get("copies"))
    known = sorted((row["bytes"], row["time_us"]) for row in timed)
    for (less, below), (more, above) in itertools.pairwise(known):
        if less <= size <= more:
            return below + (size - less) / (more - less) * (above - below)
    return size / known[-1][0] * known[-1][1] if size > known[-1][0] else 0


def share(shown, ones):
    ones = [*ones]
    same(shown, *(sum(ones), len(ones)) if ones else ())


def test_the_grid_of_shapes():
    found = newest(H200, "grid", where)
    for row in tables("docs/results/depthwise1d.md")["depthwise1d/grid"]:
        here = [(key, one) for key, (_, one) in found.items() if key[0] == row["path"]]
        ratios = [min(peers(H200)[key].values()) / one["time_us"] for key, one in here]
        same(row["shapes"], len(here))
        same(row["faster than the baseline"], sum(ratio >= 1 for ratio in ratios))
        same(row["slower"], sum(ratio < 1 for ratio in ratios))
        same(row["× baseline, least"], min(ratios))
        same(row["median"], statistics.median(ratios))
        bounds = [max(one["copy_bound_us"], one.get("fma_bound_us") or 0) / one["time_us"] for _, one in here]
        same(row["of bound, median"], 100 * statistics.median(bounds))
        large = [one for _, one in here if one["copy_bound_us"] >= max(20, 0.85 * (one.get("fma_bound_us") or 0))]
        share(row["large launches at 85 % of copy"], (one["copy_bound_us"] / one["time_us"] >= 0.85 for one in large))
        share(row["of a copy as large"], (copied(moved(one)) / one["time_us"] >= 0.85 for one in large))


def test_short_convolutions():
    shown = {tuple(row[name] for name in ("B, H, L, K", "dtype", "layout", "path")): row
             for row in tables("docs/results/depthwise1d.md")["depthwise1d/short"]}  # fmt: skip
    for place, one in newest(H200, "short", lambda one: (where(one), one["layout"], one["form"])).values():
        sizes = ", ".join(f"{one['problem'][name]:,}" for name in "BHLK")
        path = f"{one['path']} with {one['form']}" if one["form"] else one["path"]
        row, us = shown.pop((sizes, one["dtype"], one["layout"], path)), one["time_us"]
        same(row["time (µs)"], us)
        same(row["of copy"], moved(one) / us / 10 / runs(H200)[place]["ceilings"]["copy_gbps"])
        theirs = [one["peer_time_us"]] if "peer_time_us" in one else []  # in float16 a sum may be beyond its range
        same(row["baseline (µs)"], *theirs)
        same(row["× baseline"], *(peer / us for peer in theirs))
    assert not shown


def test_what_was_tried():
    shown, found = tables("docs/results/depthwise1d.md")["ablations"], defaultdict(dict)
    for place, one in rows(H200, "tries"):
        found[one["group"]].setdefault(place, {})[one["name"], one["note"]] = one
    for row in shown:
        _, here = max(found[row["what was varied"]].items())
        one = here[row["variant"], row["how"]]
        same(row["time (µs)"], one["time_us"])
        same(row["GB/s"], one["bytes"] / one["time_us"] / 1e3)
        same(row["of the fastest"], 100 * min(other["time_us"] for other in here.values()) / one["time_us"])


def test_ceilings():
    (row,) = tables("docs/results/README.md")["ceilings"]
    names = {"copy (GB/s)": "copy_gbps", "L2 read (GB/s)": "l2_gbps", "FP32 FMA (TFLOP/s)": "fma_tflops",
             "plain launch (µs)": "launch_us"}  # fmt: skip
    *_, last = (one["ceilings"] for one in runs(H200) if None not in map(one["ceilings"].get, names.values()))
    for head, name in names.items():
        same(row[head], last[name])


def test_the_drawn_shapes():
    found, fastest = {}, {}  # the newest row of a shape; PyTorch's least time of it in any, and by what
    for _, row in rows(H200, "shapes"):
        key = row["path"], row["dtype"], shape(row["problem"])
        found |= {key: row} if row["times"] else {}
        if row.get("peer"):
            fastest[key] = min((row["peer_time_us"], row["peer"]), fastest.get(key, (math.inf, "")))
    mirror = {"forward": "input_grad", "input_grad": "forward"}

    def chosen(key):
        """µs of the stage that is the fastest by the times of the path and of its mirror."""
        (path, *where), own = key, found[key]["times"]
        there = found.get((mirror.get(path), *where), {"times": {}})["times"]
        return own[min(own, key=lambda id: own[id] * there.get(id.replace(path, mirror.get(path, path)), own[id]))]

    shown = tables("docs/results/depthwise1d.md")["depthwise1d/drawn"]
    assert sorted(numbers(row["most'"]) for row in shown)[-2] < [2]  # one of 5 µs takes 2.4 times the least
    for row in shown:
        here = {key: chosen(key) for key in found if key[:2] == (row["path"], row["dtype"])}
        over = [us / min(found[key]["times"].values()) for key, us in here.items()]
        same(row["shapes"], len(here))
        same(row["choice over the fastest stage, mean"], mean(over))
        same(row["most"], max(over))
        both = {key: (us, min(peers(H200)[key].values())) for key, us in here.items() if peers(H200)[key]}
        ratios = [theirs / us for us, theirs in both.values()]
        same(row["PyTorch's best over the choice, mean"], mean(ratios))
        same(row["least"], min(ratios))
        same(row["slower than PyTorch"], sum(ratio < 1 for ratio in ratios))
        slow = [fastest[key][1] for key, (us, theirs) in both.items() if theirs < 0.95 * us and us - theirs >= 0.5]
        same(row["by 0.5 µs and 5 % or more"], len(slow))
        same(row["of these by L × L matrices made before"], sum("bmm" in way for way in slow))


# -------------------------------------------------------------------------------------------------- layers and networks


def layer(row, name="problem"):
    """What a row computes and its type, without layout and what int8 adds: pairs are stored as text."""
    words = []
    for key, value in row[name].items():
        if key in ("first", "second"):
            kept = [w for w in value.split() if w not in ("NHWC", "NCHW", "float16", "float32", "int8")]
            words += [key, *(w for w in kept if not w.startswith(("zero_", "m_r=")))]
        elif key != "layout" and not key.startswith(("zero_", "m_r")):
            words.append(f"{key}={value}")
    return row["path"], row["dtype"], " ".join(words)


@functools.cache
def layers(networks=True):
    """(op and path, type, batch) -> [(row of our fastest stage, least µs of PyTorch)], one of each layer of networks,
    or of none."""
    theirs, compiled = defaultdict(lambda: math.inf), set()
    for _, one in rows(H200, "peers"):
        if one.get("time") and one.get("shape") and one.get("dtype"):
            key = layer(one, "shape")
            theirs[key] = min(theirs[key], one["time"]["median_us"])
            if one["way"].startswith("compile"):
                compiled.add(key)
    timed = {}  # of each stage and problem, when it was last timed and calm
    for place, row in rows(H200, "measurements"):
        if calm(row):
            timed[row["op"], row["path"], row["stage"], row["dtype"], json.dumps(row["problem"])] = place
    candidates = newest(H200, "layers", lambda row: tuple(
        row.get(name) for name in ("op", "path", "layer", "batch", "dtype", "stage", "layout")))  # fmt: skip
    found = defaultdict(list)
    for place, row in candidates.values():
        if (row["networks"] != "no network") != networks:
            continue
        key = row["op"], row["path"], row.get("stage"), row["dtype"], json.dumps(row["problem"])
        # A stage that was timed again since, without a row of its own, was not the fastest then.
        known = row.get("time_us") and timed.get(key, -1) <= place
        found[tuple(row[name] for name in ("op", "path", "layer", "dtype", "batch"))].append((not known, -place, row))
    made = defaultdict(list)
    for (op, path, _, dtype, batch), some in found.items():
        known = [row for unknown, _, row in some if not unknown]
        row = min(known, key=lambda one: one["time_us"]) if known else min(some, key=lambda one: one[:2])[2]
        beside = (row, {**row, "dtype": "float16"}) if dtype == "int8" else (row,)
        best = min(*(theirs[layer(one)] for one in beside), row.get("peer_time_us") or math.inf)
        row = row | {"compiled": any(layer(one) in compiled for one in beside)}
        made[op if path == "forward" else f"{op}/{path}", dtype, batch].append((row, best))
    return made


def test_layers():
    page = "docs/results/layers.md"
    shown, many, lost = tables(page)["layers"], sum(map(len, layers().values())), []
    assert len(shown) == len(layers())
    for row in shown:
        here = layers()[row["layers of"], row["dtype"], int(row["batch"])]
        timed = [(one, theirs / one["time_us"]) for one, theirs in here if one.get("time_us") and theirs < math.inf]
        lost += [(ratio, one["layer"], row["dtype"], row["batch"]) for one, ratio in timed if ratio < 1]
        ratios = [ratio for _, ratio in timed]
        if mean(ratios) < 1:
            says("README.md", rf"{row['layers of'][6:].upper()} pairs in one kernel in [^;]*?{row['dtype']} batch "
                 rf"{row['batch']} \(([\d.]+) ×", mean(ratios))  # fmt: skip
        same(row["layers"], len(here))
        same(row["× baseline, geometric mean"], mean(ratios))
        same(row["least"], min(ratios))
        same(row["slower"], sum(ratio < 1 for ratio in ratios))
        same(row["of copy, median"], 100 * statistics.median(one["fraction_of_copy"] for one, _ in timed))
        large = [one for one, _ in timed if one["copy_bound_us"] >= 20]
        parts = [one["fraction_of_copy"] for one in large]
        same(row["large layers: median"], *[100 * statistics.median(parts)] if parts else [])
        share(row["at 85 % of copy"], (one >= 0.85 for one in parts))
        share(row["of a copy as large"], (copied(one["compulsory_bytes"]) / one["time_us"] >= 0.85 for one in large))
        if own := [one["speedup_vs_apart"] for one, _ in here if one.get("speedup_vs_apart")]:
            same(row["× unfused, geometric mean"], mean(own))
            share(row["slower'"], (ratio < 1 for ratio in own))
    for file, what in ((page, "the baseline"), ("README.md", "PyTorch's best way")):
        says(file, rf"Slower than {what}: (\d+) of (\d+)", len(lost), many)
    compiled = sum(one["compiled"] for here in layers().values() for one, _ in here)
    says(page, r"among them for (\d+) of (\d+) rows", compiled, many)
    for ratio, name, dtype, batch in sorted(lost)[:5]:
        says(page, rf"{re.escape(name)} \({dtype}, batch {batch}\) ([\d.]+\d)", ratio)


def test_layers_of_no_network():
    page, every = "docs/results/layers.md", []
    shown = {(row["layer"], row["dtype"], row["batch"]): row for row in tables(page)["layers/others"]}
    for (op, dtype, batch), here in layers(networks=False).items():
        ratios = [theirs / one["time_us"] for one, theirs in here]
        every += ratios
        if op == "depthwise2d":
            for (one, _), ratio in zip(here, ratios, strict=True):
                row = shown.pop((one["layer"], dtype, str(batch)))
                same(row["µs"], one["time_us"])
                same(row["× baseline"], ratio)
        else:
            says(page, rf"(\d+) drawn layers of {op}, {dtype}, batch {batch}: × baseline ([\d.]+), geometric mean; "
                 r"([\d.]+), the least; below 1: (\d+), below 0.9: (\d+)", len(ratios), mean(ratios), min(ratios),
                 sum(one < 1 for one in ratios), sum(one < 0.9 for one in ratios))  # fmt: skip
    assert not shown
    says("README.md", r"(\d+) of (\d+) of no network", sum(one < 1 for one in every), len(every))


def test_counters():
    names, page, found = ("op", "path", "stage", "layer", "layout", "batch", "dtype"), "docs/results/counters.md", {}
    for _, one in newest(H200, "layer_counters", lambda row: tuple(row[name] for name in names)).values():
        name = "/".join(one[part] for part in names[:3] if one[part] != "forward")
        found.setdefault((name, one["dtype"]), []).append(one)
    says(page, r"(\d+) launches\.", sum(map(len, found.values())))
    for row in tables(page)["layers/counters"]:
        here = found.pop((row["stage"], row["dtype"]))
        same(row["launches"], len(here))
        for what in ("requests", "sectors"):
            names = [f"{kind}_{what}" for kind in ("load", "store")]
            known = [one for one in here if None not in map(one.get, names)]
            share(row[f"{what} as the formula says"],
                  (all(one[name] == one[f"predicted_{name}"] for name in names) for one in known))  # fmt: skip
        ratios = [one["load_sectors"] / one["predicted_load_sectors"] for one in here if one.get("load_sectors")]
        cell, ends = row["load sectors / formula"], (min(ratios), max(ratios))
        for shown in [ends] if " to " in cell else zip(ends):
            same(cell, *shown)
        asked = [(one["planned_asked_bytes"], 32 * (one["load_sectors"] + one["store_sectors"]))
                 for one in here if one.get("planned_asked_bytes")]  # fmt: skip
        share(row["planner within 10 %"], (abs(size / of - 1) <= 0.1 for size, of in asked))
    assert not found


def test_pairs():
    alone = {(one["layer"], key[1], key[2]): one.get("time_us")
             for key, here in layers().items() for one, _ in here if one["op"] != "fused"}  # fmt: skip
    page, slower = "docs/results/layers.md", defaultdict(list)
    for row in tables(page)["pairs"]:
        dtype, batch = row["dtype"], int(row["batch"])
        both, kernels, fusion = [], [], []
        for one, theirs in layers()[f"fused/{row['module'].lower()}", dtype, batch]:
            two = [alone.get((name, dtype, batch)) for name in one["layer"].split(" + ")]
            unfused = one.get("apart_time_us") or (sum(two) if None not in two else None)
            if unfused and one.get("time_us") and theirs < math.inf:
                kernels.append(theirs / unfused)
                fusion.append(unfused / one["time_us"])
                both.append(theirs / one["time_us"])
        every = sum(bool(one.get("time_us")) for one, _ in layers()[f"fused/{row['module'].lower()}", dtype, batch])
        same(row["pairs"], *dict.fromkeys((len(both), every)))
        for head, ratios in (("kernels: × PyTorch layer by layer", kernels), ("fusion: × layer by layer", fusion),
                             ("both: × PyTorch", both)):  # fmt: skip
            same(row[head], mean(ratios))
            assert ("slower" in row[head]) == (mean(ratios) < 1)
        share(row["faster fused"], (ratio > 1 for ratio in fusion))
        slower[dtype, batch] += [ratio < 1 for ratio in fusion]
    for (dtype, batch), ones in slower.items():
        if 2 * sum(ones) > len(ones):
            says("README.md", rf"{dtype} batch {batch} \((\d+) of (\d+)\)", sum(ones), len(ones))
    means = [["slower" in row[head] for head in row if "fusion" in head] for row in tables(page)["pairs"]]
    won, lost = sum(not any(one) for one in means), sum(map(all, means))
    says(page, r"in (\d+) of (\d+) rows[^.]*\. It loses, however it is measured, in (\d+):", won, len(means), lost)
    assert 0 < won < lost  # as README says


def networks(gpu):
    """(network, type, batch) -> (newest row, least µs and joules of PyTorch, our newest joules), of an image."""
    found = newest(gpu, "networks", lambda row: (row["network"], row["dtype"], row["batch"]))
    theirs, spent, ours = defaultdict(lambda: math.inf), defaultdict(lambda: math.inf), {}
    for _, row in rows(gpu, "networks"):
        key = row["network"], row.get("peer_dtype") or row["dtype"], row["batch"]
        theirs[key] = min(theirs[key], row.get("peer_time_us") or math.inf)
        spent[key] = min(spent[key], row.get("peer_joules") or math.inf)
        if row.get("joules"):
            ours[row["network"], row["dtype"], row["batch"]] = row["joules"]
    made = {}
    for (name, dtype, batch), (_, row) in found.items():
        key = name, "float16" if dtype == "int8" else dtype, batch
        made[name, dtype, batch] = row, theirs[key], spent[key], row.get("joules") or ours.get((name, dtype, batch))
    return made


@pytest.mark.parametrize("page, name, gpu", [("networks", "networks", H200), ("h100", "h100/networks", H100)])
def test_networks(page, name, gpu):
    recorded, factors, page = networks(gpu), defaultdict(list), f"docs/results/{page}.md"
    for row in tables(page)[name]:
        key = row["network"], row["dtype"], int(row["batch"])
        one, theirs, spent, joules = recorded[key]
        alone, fused = one["apart_us"], one.get("fused_us")
        same(row["PyTorch's best (µs)"], theirs)
        same(row["layer by layer (µs)"], alone)
        same(row["kernels: × PyTorch"], theirs / alone)
        same(row["both: × PyTorch"], theirs / min(alone, fused or math.inf))
        if row["fusion: × layer by layer"]:
            same(row["fused (µs)"], fused)
            same(row["fusion: × layer by layer"], alone / fused)
        if row["mJ an image"]:
            same(row["mJ an image"], joules * 1e3)
            same(row["PyTorch's"], spent * 1e3)
            same(row["× PyTorch"], spent / joules)
        if key[0] in ("mobilenet_v1", "mobilenet_v2", "xception", "proxylessnas"):
            factors[key[1:]].append((theirs / alone, max(1.0, alone / (fused or math.inf))))
    for (dtype, batch), here in factors.items():
        says(page, rf"{dtype} batch {batch}: kernels ([\d.]+), fusion ([\d.]+\d)", *map(mean, zip(*here, strict=True)))
        assert all(kernels > fusion for kernels, fusion in here)  # as README says
    fusion = {key: one["apart_us"] / one["fused_us"] for key, (one, *_) in recorded.items() if one.get("fused_us")}
    slower = {key: ratio for key, ratio in fusion.items() if ratio < 1}
    says(page, r"run layer by layer, (\d+) of (\d+)", len(slower), len(recorded))
    for (network, dtype, batch), ratio in slower.items():
        says(page, rf"{network} \({dtype}, batch {batch}\) ([\d.]+\d)", ratio)
    among = []
    for way in (" torch.compile, ", " max-autotune with freezing, "):
        tried = {(one["shape"]["network"], one["dtype"], one["shape"]["N"]) for _, one in rows(gpu, "peers")
                 if one.get("time") and way in one["way"]}  # fmt: skip
        among.append(sum((name, dtype.replace("int8", "float16"), batch) in tried for name, dtype, batch in recorded))
    says(page, r"as it comes for (\d+) of (\d+) rows, .* weights for (\d+)", among[0], len(recorded), among[1])


def test_models_of_ones_own():
    shown, found = tables("docs/results/networks.md")["networks/own"], {}
    for _, row in rows(H200, "own"):
        found[row["network"].removeprefix("torchvision "), row["dtype"], str(row["batch"])] = row
    assert len(shown) == len(found)
    ratios = defaultdict(list)
    for line in shown:
        row = found[line["network"], line["dtype"], line["batch"]]
        same(line["× PyTorch"], row["peer_time_us"] / row["time_us"])
        ratios[f"{line['dtype']} batch {line['batch']}"].append(row["peer_time_us"] / row["time_us"])
    for which, values in ratios.items():
        pattern = rf"× PyTorch, geometric means: .*{which} ([\d.]+)"
        says("docs/results/networks.md", pattern, statistics.geometric_mean(values))


def test_the_readmes_table():
    recorded = networks(H200)
    behind = sum(min(one["apart_us"], one.get("fused_us") or math.inf) > us for one, us, *_ in recorded.values())
    says("README.md", r"best as a whole: (\d+) of (\d+) networks", behind, len(recorded))
    for row in tables("README.md")["headline"]:
        if found := re.match(r"MobileNetV2, (\w+), (\d+) image", row[""]):
            one, theirs, *_ = recorded["mobilenet_v2", found[1], int(found[2])]
            alone, fused = one["apart_us"], one["fused_us"]
            same(row["by fusion"], alone / fused)
        else:
            theirs = papers(H200)["forward"]
            alone = fused = min(one["time_us"] for one in newest_stages(H200, THREE)["forward"].values())
        same(row["PyTorch's best (µs)"], theirs)
        same(row["by the kernels"], theirs / alone)
        same(row["in all"], theirs / min(alone, fused))


# --------------------------------------------------------------------------------------------------------------- sparse


def test_sparse_filters():
    stages = newest(H200, "sparse", lambda row: (
        row["layer"], row["batch"], row["problem"]["layout"], row["dtype"], row["pattern"], row["stage"]))  # fmt: skip
    fastest = {}
    for key, (_, row) in stages.items():
        if row["time_us"] and row["time_us"] < fastest.get(key[:-1], {"time_us": math.inf})["time_us"]:
            fastest[key[:-1]] = row
    theirs = defaultdict(dict)
    for _, row in rows(H200, "sparse"):
        key = row["layer"], row["batch"], row["problem"]["layout"], row["dtype"], row["pattern"]
        theirs[key] |= {name: min(us, theirs[key].get(name, us)) for name, us in row["peers"].items()}
    fastest, shown = {key: {**row, "peers": theirs[key]} for key, row in fastest.items()}, defaultdict(dict)
    for row in tables("docs/results/sparse.md")["sparse"]:
        kind = row["layers"] == "the source's", row["layout"], row["pattern"]
        here = [one for key, one in fastest.items()
                if (one["networks"] == "shapes of the source", key[2], key[4]) == kind]  # fmt: skip
        assert len(here) == int(row["number"])
        for head, text in row.items():
            if head.startswith("× "):
                ratios = [min(one["dense"].values(), default=0) if "ours" in head else one["peers"].get(head[2:], 0)
                          for one in here]  # fmt: skip
                ratios = [us / one["time_us"] for us, one in zip(ratios, here, strict=True) if us]
                same(text, mean(ratios), min(ratios), max(ratios))
                shown[kind][head] = mean(ratios)
    # What the page and lesson 42 say: goals, "a tenth", "nearly twice".
    for form, goal, many in (("64:2:16", 1.3, 18), ("64:2:32", 2.0, 13)):
        met = [one["problem"]["C"] * one["problem"]["F"] > 1024 * 1024 for key, one in fastest.items()
               if (one["networks"], key[2], key[4]) == ("shapes of the source", "NCHW", form)
               and one["peers"]["cuBLAS"] >= goal * one["time_us"]]  # fmt: skip
        assert (len(met), sum(met)) == (many, 12)
    for two in (shown[True, layout, "2:4"] for layout in ("NCHW", "NHWC")):
        assert two["× cuSPARSELt search"] >= 0.9 and 1.05 <= two["× cuBLAS"] < 1.2
    assert 1.75 <= shown[True, "NCHW", "64:2:16"]["× cuBLAS"] < 2
    few, some, half, most = (shown[True, "NHWC", form]["× cuBLAS"] for form in ("64:2:8", "64:2:16", "2:4", "64:2:32"))
    assert max(few, some) < 1 < half < most


# ---------------------------------------------------------------------------------------------------------- the others


def test_errors_of_predicted_times():
    shown = tables("docs/results/model.md")["predicted"]
    errors = []
    for row in shown:
        path, stage = row["stage"].split("/")
        (predicted,), measured = numbers(row["predicted (µs)"]), newest_stages(H200, (path,))[path][stage]["time_us"]
        same(row["measured (µs)"], measured)
        same(row["error"], 100 * (predicted / measured - 1))
        errors.append((abs(predicted / measured - 1), measured, predicted))
    _, *both = zip(*errors, strict=True)
    ranks = [[sorted(one).index(value) for value in one] for one in both]
    apart, many = sum((a - b) ** 2 for a, b in zip(*ranks, strict=True)), len(errors)
    says("docs/results/model.md", r"(\d+) compared: rank correlation ([\d.]+), median error (\d+) %", many,
         1 - 6 * apart / (many**3 - many), 100 * statistics.median(one for one, *_ in errors))  # fmt: skip


def test_predictions_of_another_gpu():
    folder = ROOT / "dwlab/records/predictions"
    (file,) = folder.glob("*.json.xz")
    predicted, taken = json.loads(lzma.open(file).read())["stages"], {}
    later = [json.loads(line) for one in sorted(folder.glob("*.jsonl.xz")) for line in lzma.open(one)]
    for run in (*runs(H200), *runs(H100), *later):
        for row in run.get("measurements") or ():
            if row["dtype"] == "float32":
                key = f"{row['op']}/{row['path']}/{row['stage']}", shape(row["problem"]), run["environment"]["gpu"]
                taken[key] = row["time_us"], "warm" if row["cold"].startswith("warm") else "cold"
    found = defaultdict(list)
    for row in predicted:
        before, after = (taken.get((row["stage"], shape(row["problem"]), gpu)) for gpu in (H200, H100))
        if before and after:
            state, change = after[1], after[0] / before[0]
            new, old = (row["gpus"][gpu] for gpu in (H100, H200))
            kind = "device memory" if new[f"bound_{state}"] == "dram" else "something else"
            found[kind].append((change, new[f"{state}_us"] / old[f"{state}_us"]))
    for row in tables("docs/results/model.md")["predicted/another"]:
        here = found[row["predicted to be bound by"]]
        model, carried = ([abs(guess / change - 1) for change, guess in some]
                          for some in (here, [(change, 1) for change, _ in here]))  # fmt: skip
        same(row["rows"], len(here))
        same(row["measured change, median"], statistics.median(change for change, _ in here))
        for mark, errors in (("", model), ("'", carried)):
            median = row["carried over: error, median" if mark else "the model's error, median"]
            same(median, 100 * statistics.median(errors))
            same(row[f"within 10 %{mark}"], sum(error <= 0.1 for error in errors))
        if row["predicted to be bound by"] == "device memory":  # the model foresees the change, carrying over does not
            assert int(row["within 10 %"]) >= 0.75 * len(here) > int(row["within 10 %'"])
    says("docs/results/model.md", r"(\d+) of (\d+) predicted", sum(map(len, found.values())), len(predicted))
    assert PAPER not in (ROOT / "docs/results/model.md").read_text().split("the shapes of the rest")[1]


def test_the_planners_decisions():
    shown = tables("docs/results/planner.md")["planner"]
    right, measured = (sum(int(row[head]) for row in shown) for head in ("right", "pairs measured"))
    assert all(int(row["right"]) + int(row["fused, but slower"]) + int(row["unfused, but slower"])
               == int(row["pairs measured"]) for row in shown)  # fmt: skip
    says("docs/results/planner.md", r"In all (\d+) of (\d+) decisions are right \((\d+)%\)", right, measured,
         100 * right / measured)  # fmt: skip


def test_a_search_by_several_gpus():
    runs = [json.load(lzma.open(one)) for one in sorted((ROOT / "dwlab/records/gpus").glob("*.xz"))]
    shown = iter(tables("docs/tune.md")["tuning-gpus"])
    for made in runs:
        for way in made["ways"]:
            row = next(shown)
            same(row["times as fast as one GPU"], made["ways"][0]["first_s"] / way["first_s"])
            same(row["a process's seconds a candidate"], way["first_s"] * way["processes"] / way["candidates"])
        assert made["killed"]["answered"] == made["killed"]["candidates"]
    assert not [*shown]
    middles, ends = ([of(one) for one in made["rounds"].values()]
                     for of in (statistics.median, lambda one: statistics.quantiles(one, n=10)))  # fmt: skip
    says("docs/tune.md",
         r"([\d.]+) and ([\d.]+) µs, which differ by ([\d.]+)%; 80 % of a GPU's rounds lie within ([\d.]+)%", *middles,
         100 * max(middles) / min(middles) - 100, max(100 * one[-1] / one[0] - 100 for one in ends))  # fmt: skip


def test_launches_after_a_search():
    found = {}
    for _, row in rows(H200, "tuned"):
        found[row["op"], row["path"], row["dtype"], str(row["problem"])] = row
    timed = [row for row in found.values() if row.get("before_us")]
    for line in tables("docs/tune.md")["tuning-launches"]:
        here = [row for row in timed if (row["op"], row["dtype"]) == (line["op"], line["dtype"])]
        ratios = [row["before_us"] / row["after_us"] for row in here if row.get("after_us")]
        assert (line["problems"], line["launched otherwise"]) == (f"{len(here)}", f"{len(ratios)}")
        if ratios:
            for name, value in (("× before, geometric mean", statistics.geometric_mean(ratios)),
                                ("most", max(ratios)), ("least", min(ratios))):  # fmt: skip
                same(line[name], value)
        same(line["seconds of a search, median"], statistics.median(row["seconds"] for row in here))
    slower = [row for row in timed if row.get("after_us", 0) > 1.02 * row["before_us"]]
    says("docs/tune.md", r"Of (\d+) drawn problems (\d+) are slower", len(timed), len(slower))
    for row in slower:
        pattern = rf"F={row['problem']['F']} .*?: ([\d.]+) to ([\d.]+) µs"
        says("docs/tune.md", pattern, row["before_us"], row["after_us"])


def test_what_optuna_loses():
    kept = json.loads(lzma.open(ROOT / "dwlab/records/tuning/optuna.json.xz").read())
    lost, of = kept["sweeps"], kept["of"]
    groups = {
        "all": [*lost.values()],
        "of 100": [one for name, one in lost.items() if of[name][1] >= 100],
        "sparse": [one for name, one in lost.items() if of[name][0].startswith("sparse/")],
    }
    ways = {"Optuna": "optuna", "Optuna after the five of *no near layer*": "optuna+far"}
    shown = tables("docs/results/tuning.md")["tuning-claims"]
    assert {row["search"] for row in shown} >= {*ways}
    for row in shown:
        (here,) = (each for group, each in groups.items() if row["sweeps"].startswith(group))
        same(row["sweeps"].removeprefix("of 100 "), len(here))
        if way := ways.get(row["search"]):
            for place, most in enumerate((5, 10, 20)):
                each = sorted(100 * one[way][place] for one in here)
                ninety = each[math.ceil(0.9 * len(each)) - 1]
                same(row[f"{most} candidates"], statistics.mean(each), statistics.median(each), ninety, each[-1])


def test_options_that_won():
    options = ("max_registers", "min_blocks", "fastmath", "half_k", "load_hint", "store_hint")
    won, plain = {}, {}
    with lzma.open(ROOT / "dwlab/records/tuning/nvidia-h200.jsonl.xz", "rt") as lines:
        for one in (json.loads(line)["line"] for line in lines):
            its = one["key"]
            if its["subject"].endswith("@options") and one["times_us"]:
                layer, dtype = its["problem"].replace(f" {its['dtype']}", ""), its["dtype"]
                of = its["subject"].removesuffix("@options"), layer, dtype
                plain |= {of: one["times_us"]} if not any(one["candidate"].get(name) for name in options) else {}
                won |= {of: one["times_us"]} if one["won"] else {}
    shown = tables("docs/tune.md")["tuning-options"]
    assert len({row["in force"] for row in shown}) > 5 and any(row["in force"] == "as it is" for row in shown)
    for row in shown:
        dtype = next(one for one in ("float16", "float32") if one in row["layer"])
        of = row["stage"], row["layer"].replace(f" {dtype}", ""), dtype
        before, after = (statistics.median(one[of][3:]) for one in (plain, won))
        same(row["without (µs)"], before), same(row["with (µs)"], after), same(row["times as fast"], before / after)


def test_a_job_step_by_step():
    file = max((ROOT / "dwlab/records/working_method").glob("*-method.json.xz"))
    steps = json.loads(lzma.open(file).read())["steps"]
    job, (whole,) = ([one for one in steps if one["scope"] == scope] for scope in ("job", "whole job"))
    for row, one in zip(tables("docs/profile.md")["method/job"], job, strict=True):
        same(row["expected"], one["expected"])
        same(row["measured"], one["before"]["median_us"] / one["after"]["median_us"])
        same(row["accuracy"], 100 * one["accuracy"])
        same(row["classes as in float64"], 100 * one["agreement"])
    gain = whole["before"]["median_us"] / whole["after"]["median_us"]
    kept = sum(one["kept"] for one in job)
    says("docs/profile.md", r"([\d.]+) times as fast by (\d+) of (\d+) changes", gain, kept, len(job))


def test_the_simulators_seconds():
    page, record = "docs/simulator.md", json.loads((ROOT / "docs/tables/simulator.json").read_text())
    both = [one["seconds"] for one in record["clients"] if not one["note"]]
    says(page, r"Geometric mean of what both run: ([\d.]+) times", mean(one["numba"] / one["simt"] for one in both))
    for row, one in zip(tables(page)["simulator/kernels"], record["kernels"].values(), strict=True):
        work = (one["counted"]["size"] / one["numba"]["size"]) ** one["power"]
        same(row["times as long, scaled"], one["numba"]["seconds"] * work / one["counted"]["seconds"])


# ------------------------------------------------------------------------------------------------------ that it is all

LEFT = {
    "depthwise1d/drawn": {"had the shape not been timed, mean", "most'"},
    "pairs": {"fusion in a network: × layer by layer", "faster fused'"},
    "planner": {"mean regret", "largest", "whole plan over the best"},
    "tuning-claims": {f"{most} candidates" for most in (5, 10, 20)},
}
"""Columns that also need code: what dispatch would choose, which pairs of networks are alike, what the planner fuses,
which tile ships, with which a search begins; Optuna's regrets are recorded, and compared."""


def test_each_ratio_of_a_page_is_compared_here():
    for name, check in [*globals().items()]:
        if name.startswith("test_") and not name.endswith("here"):
            for given in check.pytestmark[0].args[1] if hasattr(check, "pytestmark") else [()]:
                check(*given)
    absolute = re.compile(r"µs|\((ms|s)\)|GB/s|FLOP|^(input|weight)_grad|^P100|mJ|PyTorch's$|seconds |to 90 %")
    cells = re.compile(r"([-+×] ?)?([\d,]*\.\d+|\d+(?= ?%)) ?[%×]?( to .*| ?\(.*\))?|\d+ of \d+")
    skipped = r"^\|.*|(?:Measured|P100:|Seconds of).*"
    texts = re.compile(rf"{skipped}|(?<![\d.])(?<!below )(\d+\.\d+(?![\d.]*\d)|\d+ of \d+)(?! µs)", re.M)
    left, pages = defaultdict(set), [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for file in (one for one in pages if one.stem not in ("architecture", "instructions", "parts", "teaching")):
        page, text = file.relative_to(ROOT).as_posix(), file.read_text()
        for name, found in tables(page).items():
            for head, cell in itertools.chain(*map(dict.items, found)):
                if cells.fullmatch(cell) and not absolute.search(head) and id(cell) not in COMPARED:
                    left[name].add(head)
        for region in re.finditer(r"<!-- begin:(\S+) -->\n(?!```)(.*?)<!-- end", text, re.S):
            for one in texts.finditer(text, *region.span(2)):
                if one[1] and (page, one.start()) not in COMPARED:
                    left[region[1]].add(text[one.start() - 40 : one.end()])
    assert left == LEFT
