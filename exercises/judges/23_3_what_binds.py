"""The judge of exercise 23_3, and its hints."""

import math

from dwlab.judge.tools import Wrong, drawn, function, pair, real


def binds(work, gpu):
    # Your code here.
    raise NotImplementedError("23_3 is not solved yet: replace this line with your code")


HINTS = (
    "Five times in µs, then the greatest of them: `max(us, key=us.get)`.",
    "1 GB/s is 1e3 bytes in a microsecond, 1 TFLOP/s is 1e6 FLOPs. A multiprocessor has mhz clocks in a microsecond.",
    "wavefronts / (sms * mhz); instructions / (4 * sms * mhz); 2 * fmas / fma_tflops / 1e6; bytes / gbps / 1e3.",
)

BIG = {"copy_gbps": 4000.0, "l2_gbps": 9000.0, "sms": 132, "mhz": 1980.0, "fma_tflops": 60.0}
SHEET = {"copy_gbps": 320.0, "l2_gbps": None, "sms": 40, "mhz": 1582.0, "fma_tflops": 8.1}
ODD = {"copy_gbps": 900.0, "l2_gbps": 1000.0, "sms": 7, "mhz": 1111.0, "fma_tflops": 3.0}
LITTLE = {"memory_bytes": 8e6, "l2_sectors": 2.5e5, "wavefronts": 1e4, "instructions": 1e4, "fmas": 1e6}
CASES = (
    ("a copy", BIG, LITTLE | {"memory_bytes": 8.05e8, "l2_sectors": 2.6e7}, "memory"),
    ("rows read again from the L2", BIG, LITTLE | {"l2_sectors": 4e8}, "l2"),
    ("a tile in shared memory", BIG, LITTLE | {"wavefronts": 3e8, "instructions": 1.1e9}, "wavefronts"),
    ("many tests and addresses", BIG, LITTLE | {"wavefronts": 2e8, "instructions": 3e9}, "instructions"),
    ("long filters in registers", BIG, LITTLE | {"fmas": 3e10, "instructions": 9e8}, "fma"),
    ("the L2's bandwidth not known", SHEET, LITTLE | {"l2_sectors": 4e8, "memory_bytes": 9e7}, "memory"),
    ("few multiprocessors", ODD, LITTLE | {"wavefronts": 9e6, "memory_bytes": 9e8}, "wavefronts"),
)


def judge(answer):
    """Every resource binds once, one is not known, and some drawn ones; name and time to one part in a million."""
    binds = function(answer, "binds")
    for what, gpu, work, name in (*CASES, *(_drawn(answer) for _ in range(20))):
        found = binds(dict(work), dict(gpu))
        got = pair(found)
        if got is None or not isinstance(got[0], str) or not real(got[1]):
            raise Wrong(f"{what}: `binds` returns {found!r:.80}; it must be a pair of a name and µs.", HINTS)
        every = _every(work, gpu)
        if got[0] not in every:
            raise Wrong(f"{what}: the resource is {got[0]!r}; here there are {', '.join(every)}.", HINTS)
        if got[0] != name:
            raise Wrong(
                f"{what}: you say that {got[0]} binds, with {got[1]:,.6g} µs. It needs {every[got[0]]:,.6g} µs, and "
                f"{name} {every[name]:,.6g}.",
                HINTS,
            )
        if not math.isclose(got[1], every[name], rel_tol=1e-6):
            why = ""
            if math.isclose(got[1], sum(every.values()), rel_tol=1e-6):
                why = " A sum would be right if they worked one after the other."
            elif math.isclose(got[1] / every[name], gpu["sms"], rel_tol=1e-6):
                why = " There is more than one multiprocessor."
            elif name == "l2" and math.isclose(every[name] / got[1], 32, rel_tol=1e-6):
                why = " A sector has 32 bytes."
            raise Wrong(f"{what}: {name} binds, with {got[1]:,.6g} µs; {every[name]:,.6g} is right.{why}", HINTS)
    return f"Right for {len(CASES) + 20} kernels; each resource binds at least once."


def _drawn(answer):
    """A GPU and a kernel with drawn numbers, and what binds there."""

    def size(least, most):
        return float(math.exp(answer.random.uniform(math.log(least), math.log(most))))

    gpu = {"copy_gbps": size(100, 5000), "l2_gbps": size(300, 10_000), "sms": drawn(answer, (1, 200))[0],
           "mhz": size(800, 2500), "fma_tflops": size(1, 80)}  # fmt: skip
    if answer.random.random() < 0.3:
        gpu["l2_gbps"] = None
    scale = {"memory_bytes": 1e8, "l2_sectors": 6e6, "wavefronts": 6e6, "instructions": 3e7, "fmas": 6e8}
    work = {name: one * size(0.1, 30) for name, one in scale.items()}
    every = _every(work, gpu)
    return "drawn numbers", gpu, work, max(every, key=every.get)


def _every(work, gpu):
    """Resource -> µs."""
    us = {
        "memory": 1e-3 * work["memory_bytes"] / gpu["copy_gbps"],
        "l2": 32e-3 * work["l2_sectors"] / (gpu["l2_gbps"] or math.inf),
        "wavefronts": work["wavefronts"] / gpu["sms"] / gpu["mhz"],
        "instructions": work["instructions"] / gpu["sms"] / gpu["mhz"] / 4,
        "fma": 2e-6 * work["fmas"] / gpu["fma_tflops"],
    }
    if gpu["l2_gbps"] is None:
        del us["l2"]
    return us
