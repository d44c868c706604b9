"""Ratios on the pages of results, computed anew from the packed records: all against a library, and most others.

Nothing here is shared with what builds the pages: tables are read as text, records as JSON lines.
"""

import functools
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


@functools.cache
def runs(gpu):
    files = sorted((ROOT / "dwlab/records").glob("*.jsonl.xz"))
    found = [json.loads(line) for file in files for line in lzma.open(file)]
    return sorted(
        (run for run in found if run["environment"]["gpu"] == gpu), key=lambda run: run["environment"]["date"]
    )


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


def same(shown, *values, scale=1.0):
    """Each number that is shown is the value, rounded to as many digits."""
    found = re.findall(r"-?[\d,]*\.?\d+", shown)
    assert len(found) == len(values), (shown, values)
    for text, value in zip(found, values, strict=True):
        digits = len(text.partition(".")[2])
        unit = max(10.0**-digits, 10 ** (math.floor(math.log10(abs(value * scale) or 1)) - 3) if "," in text else 0)
        assert abs(float(text.replace(",", "")) - value * scale) <= 0.5001 * unit, (shown, value * scale)


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
            put(
                one["path"],
                one.get("dtype", "float32"),
                one["shape"],
                one["way"].split(":")[0],
                one["time"]["median_us"],
            )
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
    sentences = re.findall(
        r"are together ([\d.,]+) times .*? with the fused backward ([\d.,]+) times", (ROOT / page).read_text()
    )
    assert len(sentences) == 3
    for (plain, fused), other in zip(
        sentences, ("naive", "PyTorch, conv1d/conv2d/FFT", "PyTorch, any way"), strict=True
    ):
        same(plain, total[other] / total["best"])
        least = min(total[other], total.get(f"{other}, fused backward", math.inf))
        same(fused, least / total["best, fused backward"])


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


def test_the_grid_of_shapes():
    found = newest(H200, "grid", lambda row: (row["path"], row["dtype"], shape(row["problem"])))
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


def test_the_drawn_shapes():
    found = {(row["path"], row["dtype"], shape(row["problem"])): row for _, row in rows(H200, "shapes") if row["times"]}
    mirror = {"forward": "input_grad", "input_grad": "forward"}

    def chosen(key):
        """µs of the stage that is the fastest by the times of the path and of its mirror."""
        (path, *where), own = key, found[key]["times"]
        there = found.get((mirror.get(path), *where), {"times": {}})["times"]
        return own[min(own, key=lambda id: own[id] * there.get(id.replace(path, mirror.get(path, path)), own[id]))]

    for row in tables("docs/results/depthwise1d.md")["depthwise1d/drawn"]:
        here = {key: chosen(key) for key in found if key[:2] == (row["path"], row["dtype"])}
        over = [us / min(found[key]["times"].values()) for key, us in here.items()]
        same(row["choice over the fastest stage, mean"], mean(over))
        same(row["most"], max(over))
        both = {key: (us, min(peers(H200)[key].values())) for key, us in here.items() if peers(H200)[key]}
        ratios = [theirs / us for us, theirs in both.values()]
        same(row["PyTorch's best over the choice, mean"], mean(ratios))
        same(row["least"], min(ratios))
        same(row["slower than PyTorch"], sum(ratio < 1 for ratio in ratios))
        slow = [found[key]["peer"] for key, (us, theirs) in both.items() if theirs < 0.95 * us and us - theirs >= 0.5]
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
    theirs = defaultdict(lambda: math.inf)
    for _, one in rows(H200, "peers"):
        if one.get("time") and one.get("shape") and one.get("dtype"):
            key = layer(one, "shape")
            theirs[key] = min(theirs[key], one["time"]["median_us"])
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
        made[op if path == "forward" else f"{op}/{path}", dtype, batch].append((row, best))
    return made


def test_layers():
    shown = tables("docs/results/layers.md")["layers"]
    assert len(shown) == len(layers())
    slower = 0
    for row in shown:
        here = layers()[row["layers of"], row["dtype"], int(row["batch"])]
        ratios = [theirs / one["time_us"] for one, theirs in here if one.get("time_us") and theirs < math.inf]
        slower += sum(ratio < 1 for ratio in ratios)
        same(row["layers"], len(here))
        same(row["× baseline, geometric mean"], mean(ratios))
        same(row["least"], min(ratios))
        same(row["slower"], sum(ratio < 1 for ratio in ratios))
        timed = [(one["fraction_of_copy"], one["copy_bound_us"]) for one, _ in here if one.get("fraction_of_copy")]
        same(row["of copy, median"], 100 * statistics.median(of for of, _ in timed))
        if large := [of for of, us in timed if us >= 20]:
            same(row["large layers: median"], 100 * statistics.median(large))
        if own := [one["speedup_vs_apart"] for one, _ in here if one.get("speedup_vs_apart")]:
            same(row["× unfused, geometric mean"].replace(" (slower)", ""), mean(own))
            same(row["slower'"], sum(ratio < 1 for ratio in own), len(own))
    for page, says in (("docs/results/layers.md", "the baseline:"), ("README.md", "PyTorch's best way:")):
        assert f"Slower than {says} {slower} of {sum(map(len, layers().values()))}" in (ROOT / page).read_text()


def test_layers_of_no_network():
    page = "docs/results/layers.md"
    lines = (ROOT / page).read_text()
    shown = {(row["layer"], row["dtype"], row["batch"]): row for row in tables(page)["layers/others"]}
    for (op, dtype, batch), here in layers(networks=False).items():
        ratios = [theirs / one["time_us"] for one, theirs in here]
        if op == "depthwise2d":
            for (one, _), ratio in zip(here, ratios, strict=True):
                row = shown.pop((one["layer"], dtype, str(batch)))
                same(row["µs"], one["time_us"])
                same(row["× baseline"], ratio)
        else:
            (line,) = (one for one in lines.splitlines() if f"layers of {op}, {dtype}, batch {batch}:" in one)
            same(line.split("baseline ")[1].split(",")[0], mean(ratios))
            same(line.split("mean; ")[1].split(",")[0], min(ratios))
            assert f"below 1: {sum(one < 1 for one in ratios)}, below 0.9: {sum(one < 0.9 for one in ratios)}." in line
    assert not shown


def test_pairs():
    alone = {(one["layer"], key[1], key[2]): one.get("time_us")
             for key, here in layers().items() for one, _ in here if one["op"] != "fused"}  # fmt: skip
    for row in tables("docs/results/layers.md")["pairs"]:
        dtype, batch = row["dtype"], int(row["batch"])
        both, kernels, fusion = [], [], []
        for one, theirs in layers()[f"fused/{row['module'].lower()}", dtype, batch]:
            two = [alone.get((name, dtype, batch)) for name in one["layer"].split(" + ")]
            unfused = one.get("apart_time_us") or (sum(two) if None not in two else None)
            if unfused and one.get("time_us") and theirs < math.inf:
                kernels.append(theirs / unfused)
                fusion.append(unfused / one["time_us"])
                both.append(theirs / one["time_us"])
        same(row["pairs"].split()[0], len(both))
        for head, ratios in (("kernels: × PyTorch layer by layer", kernels), ("fusion: × layer by layer", fusion),
                             ("both: × PyTorch", both)):  # fmt: skip
            same(row[head].replace(" (slower)", ""), mean(ratios))
            assert ("slower" in row[head]) == (mean(ratios) < 1)
        same(row["faster fused"], sum(ratio > 1 for ratio in fusion), len(fusion))


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
    recorded, factors = networks(gpu), defaultdict(list)
    for row in tables(f"docs/results/{page}.md")[name]:
        key = row["network"], row["dtype"], int(row["batch"])
        one, theirs, spent, joules = recorded[key]
        alone, fused = one["apart_us"], one.get("fused_us")
        same(row["PyTorch's best (µs)"], theirs)
        same(row["layer by layer (µs)"], alone)
        same(row["kernels: × PyTorch"].replace(" (slower)", ""), theirs / alone)
        same(row["both: × PyTorch"].replace(" (slower)", ""), theirs / min(alone, fused or math.inf))
        if row["fusion: × layer by layer"]:
            same(row["fused (µs)"], fused)
            same(row["fusion: × layer by layer"].replace(" (slower)", ""), alone / fused)
        if row["mJ an image"]:
            same(row["mJ an image"], joules * 1e3)
            same(row["PyTorch's"], spent * 1e3)
            same(row["× PyTorch"].replace(" (slower)", ""), spent / joules)
        if key[0] in ("mobilenet_v1", "mobilenet_v2", "xception", "proxylessnas"):
            factors[key[1:]].append((theirs / alone, max(1.0, alone / (fused or math.inf))))
    sentence = re.search(r"Geometric means over.*: kernels.*", (ROOT / f"docs/results/{page}.md").read_text())[0]
    for (dtype, batch), here in factors.items():
        kernels, fusion = re.search(rf"{dtype} batch {batch}: kernels ([\d.]+), fusion ([\d.]+\d)", sentence).groups()
        same(kernels, mean(one for one, _ in here))
        same(fusion, mean(one for _, one in here))


def test_the_readmes_table():
    recorded = networks(H200)
    behind = sum(min(one["apart_us"], one.get("fused_us") or math.inf) > us for one, us, *_ in recorded.values())
    assert f"best as a whole: {behind} of {len(recorded)} networks" in (ROOT / "README.md").read_text()
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
    fastest = {key: {**row, "peers": theirs[key]} for key, row in fastest.items()}
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
                same(re.sub(r" \(slower\)", "", text), mean(ratios), min(ratios), max(ratios))


# ---------------------------------------------------------------------------------------------------------- the others


def test_errors_of_predicted_times():
    shown = tables("docs/results/model.md")["predicted"]
    errors = []
    for row in shown:
        measured, predicted = (numbers(row[f"{head} (µs)"])[0] for head in ("measured", "predicted"))
        path, stage = row["stage"].split("/")
        same(row["measured (µs)"], newest_stages(H200, (path,))[path][stage]["time_us"])
        assert abs(numbers(row["error"])[0] - 100 * (predicted / measured - 1)) <= 0.6
        errors.append(abs(predicted / measured - 1))
    text = (ROOT / "docs/results/model.md").read_text()
    same(re.search(r"median error (\d+) %", text)[1], 100 * statistics.median(errors))


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
            same(
                row["carried over: error, median" if mark else "the model's error, median"],
                100 * statistics.median(errors),
            )
            same(row[f"within 10 %{mark}"], sum(error <= 0.1 for error in errors))
    text = (ROOT / "docs/results/model.md").read_text()
    assert f"{sum(map(len, found.values()))} of {len(predicted)} predicted" in text
    assert PAPER not in text.split("the shapes of the rest")[1]


def test_the_planners_decisions():
    shown = tables("docs/results/planner.md")["planner"]
    right, measured = (sum(int(row[head]) for row in shown) for head in ("right", "pairs measured"))
    assert all(int(row["right"]) + int(row["fused, but slower"]) + int(row["unfused, but slower"])
               == int(row["pairs measured"]) for row in shown)  # fmt: skip
    assert (
        f"In all {right} of {measured} decisions are right ({right / measured:.0%})"
        in (ROOT / "docs/results/planner.md").read_text()
    )


def test_a_search_by_several_gpus():
    runs = [json.load(lzma.open(one)) for one in sorted((ROOT / "dwlab/records/gpus").glob("*.xz"))]
    shown = iter(tables("docs/results/tuning.md")["tuning-gpus"])
    for made in runs:
        for way in made["ways"]:
            same(next(shown)["times as fast as one GPU"], made["ways"][0]["first_s"] / way["first_s"])
        assert made["killed"]["answered"] == made["killed"]["candidates"]
    assert not [*shown]
