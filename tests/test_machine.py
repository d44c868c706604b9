"""Machines: what a device says of itself, what a datasheet claims, what an environment gives away."""

import dataclasses
import getpass
import json
import math
import platform
import subprocess

import numpy as np
import pytest

from dwlab import records, simt
from dwlab.gpu import machine, occupancy, provenance, target
from dwlab.gpu.machine import Ceilings, MachineError
from dwlab.measure import device, timing

H200 = {
    "MULTIPROCESSOR_COUNT": 132, "L2_CACHE_SIZE": 62_914_560, "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233_472,
    "MAX_SHARED_MEMORY_PER_BLOCK": 49_152, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232_448,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65_536, "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32, "CLOCK_RATE": 1_980_000, "MEMORY_CLOCK_RATE": 3_201_000,
    "GLOBAL_MEMORY_BUS_WIDTH": 6144,
}  # fmt: skip


def asked(attributes):
    def attribute(key):
        return attributes[key]

    return machine.from_attributes("NVIDIA H200", (9, 0), attribute, 150_754_820_096)


def test_a_machine_is_what_its_device_says():
    made = asked(H200)
    assert (made.sms, made.l2_bytes, made.shared_per_sm, made.shared_per_block) == (132, 62_914_560, 233_472, 232_448)
    assert (made.sm_mhz, made.memory_mhz, made.bus_bits) == (1980.0, 3201.0, 6144)
    assert made.ceilings is None
    json.dumps(made.to_dict(), allow_nan=False)
    old = asked(H200 | {"MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 0})
    assert old.shared_per_block == 49_152  # without an opt-in what each block gets


@pytest.mark.parametrize("missing", ["CLOCK_RATE", "MEMORY_CLOCK_RATE", "GLOBAL_MEMORY_BUS_WIDTH", "L2_CACHE_SIZE"])
def test_what_a_driver_leaves_out_is_unknown(missing):
    made = asked({key: value for key, value in H200.items() if key != missing})
    assert sum(value is None for value in made.to_dict().values()) == 1


@pytest.mark.skipif(target.mode == "gpu", reason="what simulated mode answers")
def test_in_simulated_mode_there_is_no_present_gpu_and_nothing_is_measured():
    with pytest.raises(MachineError, match=r"there is no GPU.*recorded\(\).*known\(\)"):
        machine.present()
    with pytest.raises(timing.TimingError, match="python -m dwlab records"):
        device.measure()


# Cores of one SM by compute capability: CUDA C++ Programming Guide, arithmetic instruction throughput, float32.
CORES = {(6, 0): 64, (7, 0): 64, (7, 5): 64, (8, 0): 64, (8, 6): 128, (8, 7): 128, (8, 9): 128, (9, 0): 128}


def test_every_known_gpu_says_where_its_numbers_come_from_and_they_fit_its_compute_capability():
    for name, known in machine.known().items():
        ceilings, limits = known.ceilings, occupancy.limits(known.compute_capability)
        assert name == known.name
        assert not ceilings.measured and ceilings.source.startswith("datasheet, not measured: NVIDIA ")
        assert ceilings.l2_gbps is None and ceilings.launch_us is None  # no datasheet has them
        ghz = ceilings.fma_tflops * 1e3 / (2 * CORES[known.compute_capability] * known.sms)
        assert 1.2 < ghz < 2.6, name  # a clock that a GPU has
        assert (known.shared_per_sm, known.threads_per_sm) == (limits.shared_per_sm, limits.threads_per_sm), name


@pytest.mark.parametrize(
    "drivers, ours",
    [
        ("NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("GeForce GTX 1660", "GeForce GTX 1660"),
        ("Tesla P100-PCIE-16GB", "Tesla P100 PCIe 16GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        *((name, None) for name in ("NVIDIA H100 PCIe", "GeForce GTX 1660 Ti", "H20", "")),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
    ],
)
def test_a_gpu_is_found_by_its_drivers_name_and_no_other_is_taken_for_it(drivers, ours):
    assert getattr(machine.datasheet(drivers), "name", None) == ours


def run(gpu="NVIDIA H200", date="2026-11-21T10:00:00+00:00", copy=4130.0, **more):
    made = dataclasses.replace(asked(H200), name=gpu)
    ceilings = Ceilings(copy, 6000.0, 60.0, 19.0, True, "measured; copy").to_dict()
    return records.Record("x.json", {"gpu": gpu, "date": date}, ceilings, (), machine=made.to_dict() | more)


def test_a_recorded_gpu_has_the_ceilings_of_its_newest_run():
    found = machine.recorded([run(copy=4000.0), run(copy=4130.0, date="2026-11-22T10:00:00+00:00"), run("Tesla T4")])
    assert set(found) == {"NVIDIA H200", "Tesla T4"}
    ceilings = found["NVIDIA H200"].ceilings
    assert ceilings.measured and ceilings.copy_gbps == 4130.0 and "2026-11-22" in ceilings.source
    assert found["NVIDIA H200"].compute_capability == (9, 0) and found["NVIDIA H200"].sms == 132


class Commands:
    """Stands for nvidia-smi and git: gives texts, or fails as they do where they are missing."""

    def __init__(self, **texts):
        self.texts, self.asked = texts, []

    def __call__(self, command):
        self.asked.append(list(command))
        for part, text in self.texts.items():
            if part in " ".join(command):
                if isinstance(text, Exception):
                    raise text
                return text
        raise FileNotFoundError(command[0])


def test_clocks_come_from_nvidia_smi():
    commands = Commands(nvidia="1980, 3201, 1980, 3201, 700.00, 41\n")
    assert provenance.clocks(run=commands, bus="00000000:01:00.0") == {
        "sm_mhz": 1980.0, "memory_mhz": 3201.0, "max_sm_mhz": 1980.0, "max_memory_mhz": 3201.0,
        "power_limit_w": 700.0, "temperature_c": 41.0,
    }  # fmt: skip
    assert commands.asked[0][-1] == "--id=00000000:01:00.0"


@pytest.mark.parametrize(
    "answer",
    [
        FileNotFoundError("nvidia-smi"),
        subprocess.CalledProcessError(6, "nvidia-smi"),
        subprocess.TimeoutExpired("nvidia-smi", 20),
        "",
    ],
)
def test_without_nvidia_smi_the_clocks_are_unknown(answer):
    clocks = provenance.clocks(run=Commands(nvidia=answer), bus="0")
    assert set(clocks.values()) == {None} and "sm_mhz" in clocks


def test_the_revision_is_gits_or_what_was_said(monkeypatch):
    monkeypatch.delenv(provenance.REVISION_VARIABLE, raising=False)
    found = provenance.revision(run=Commands(**{"rev-parse": "abc123\n", "status": " M machine.py\n"}))
    assert (found["git_revision"], found["git_dirty"]) == ("abc123", True)
    assert provenance.revision(run=Commands(**{"rev-parse": "abc123\n", "status": "\n"}))["git_dirty"] is False
    nothing = provenance.revision(run=Commands())
    assert (nothing["git_revision"], nothing["git_dirty"]) == (None, None)
    monkeypatch.setenv(provenance.REVISION_VARIABLE, "def456")
    assert provenance.revision(run=Commands())["git_revision"] == "def456"
    assert len(found["source_sha256"]) == 64 and found["source_sha256"] == nothing["source_sha256"]


def test_the_environment_is_plain_json_with_a_date_and_without_names():
    made = provenance.environment(asked(H200), run=Commands())
    text = json.dumps(made, allow_nan=False)
    assert made["gpu"] == "NVIDIA H200" and made["numpy"] and made["python"] == platform.python_version()
    assert made["date"].endswith("+00:00") and len(made["date"]) == 25
    for secret in (getpass.getuser(), platform.node()):
        assert len(secret) < 4 or f'"{secret}"' not in text
    assert "/" not in text.replace("+00:00", "")


def test_the_l2_reads_of_every_block_walk_through_all_chunks():
    for l2 in (1_572_864, 4_194_304, 6_291_456, 41_943_040, 52_428_800, 62_914_560, 75_497_472):
        chunks, stride = device.l2_walk(l2)
        assert chunks >= 1 and math.gcd(stride, chunks) == 1 or chunks == 1
        seen, at = set(), 0
        for _ in range(chunks):
            seen.add(at)
            at += stride
            if at >= chunks:
                at -= chunks
        assert seen == set(range(chunks))
        assert chunks * device.CHUNK_BYTES <= l2 / 4


needs_interpreter = pytest.mark.skipif(target.mode == "gpu", reason="there it is measured: tests/test_gpu.py")


@needs_interpreter
def test_the_l2_ceilings_kernel_reads_whole_chunks_that_do_not_overlap():
    """Its kernel, on the interpreter: the sums that the measurement demands, and as many bytes as it says."""
    made, threads, chunks, stride, repeats, blocks = device._kernels()["read_l2"], device._THREADS, 5, 2, 3, 4
    numbers = (np.arange(chunks * device._CHUNK) % 7).astype(np.float32)
    out = np.zeros(blocks * threads, np.float32)
    scalars = np.int32(chunks), np.int32(stride), np.int32(repeats)
    made[blocks, threads](numbers, out, *scalars)
    report = simt.xray(made, blocks, threads, numbers, out, *scalars)
    assert np.array_equal(out, device.l2_sums(numbers, blocks, stride, repeats)) and not report.hazards
    assert report.array("source", "load").sectors * 32 == blocks * repeats * device.CHUNK_BYTES


@needs_interpreter
def test_the_shared_memory_ceilings_kernel_reads_every_word_without_a_conflict():
    """Its kernel, on the interpreter: the sums that the measurement demands, and one pass for every 128 bytes."""
    made = device._kernels()["read_shared"]
    threads, words, repeats = device._THREADS, device._SHARED_WORDS, device._THREADS
    out = np.zeros(2 * threads, np.float32)
    made[2, threads](out, np.int32(repeats))
    assert set(out) == {(np.arange(words) % 7).sum()}  # in 256 turns each thread reads every word once
    report = simt.xray(made, 2, threads, out, np.int32(repeats))
    assert report.totals.bank_conflicts == 0 and not report.hazards
    assert report.array("tile", "load").wavefronts == 2 * repeats * words // 32
