"""Numba's own CUDA tests on the interpreter, those of short modules: all pass but for what has a reason; others'."""

import collections
import json

import pytest

from tests.fakes import script

conformance, simulators = script("conformance"), script("simulators")

# Module -> how many of its tests pass, at the least.
SHORT = {
    "cudapy.test_sync": 19, "cudapy.test_warp_ops": 15, "cudapy.test_exception": 6, "cudapy.test_recursion": 4,
    "cudapy.test_retrieve_autoconverted_arrays": 8, "cudapy.test_cooperative_groups": 7, "cudapy.test_forall": 4,
    "cudapy.test_cuda_array_interface": 20, "cudapy.test_vectorize_decor": 7, "cudapy.test_record_dtype": 41,
    "cudasim.test_cudasim_issues": 4, "cudadrv.test_array_attr": 11, "cudapy.test_constmem": 8,
    "cudadrv.test_cuda_ndarray": 49, "cudadrv.test_cuda_array_slicing": 29, "cudadrv.test_streams": 6,
    "cudapy.test_array": 19, "cudadrv.test_pinned": 2, "cudapy.test_reduction": 7,
}  # fmt: skip


def test_numbas_tests_pass():
    outcomes = conformance.run("simt", *(f"numba.cuda.tests.{module}" for module in SHORT))
    assert conformance.unexplained(outcomes) == []
    passed = collections.Counter(
        module for test, one in outcomes.items() for module in SHORT if f".{module}." in test and one[0] == "passed"
    )
    assert {module: (passed[module], least) for module, least in SHORT.items() if passed[module] < least} == {}


@pytest.mark.quick
def test_modules_are_found():
    assert {f"numba.cuda.tests.{one}" for one in SHORT} <= set(conformance.modules())


@pytest.mark.quick
def test_a_failure_without_a_reason_is_told():
    one = {
        "a.TestCMath.test_exp": ["failed", "t", ""],
        "a.b": ["failed", "t", ""],
        "a.c": ["failed", "", "ptx"],
    }
    assert conformance.unexplained(one) == ["a.b: t"] and conformance.unexplained(one, {"a.c"}) == []


@pytest.mark.quick
def test_projects_that_were_run_lost_no_test_and_each_hazard_has_a_word():
    record = json.loads(simulators.RECORD.read_text(encoding="utf-8"))
    assert len(record["clients"]) == len(simulators.CLIENTS) and set(record["kernels"]) == set(simulators.SIZES)
    for row in record["clients"]:
        assert not row["lost"] and all(row["hazards"].values()) and row["passed"]["simt"] > 0, row


@pytest.mark.quick
def test_outcomes_and_hazards_of_two_runs_are_compared(tmp_path):
    file = tmp_path / "o.xml"
    case = '<testcase classname="c" name="{}">{}</testcase>'
    cases = [case.format("a", ""), case.format("b", "<failure/>"), case.format("d", "<skipped/>")]
    file.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    here = simulators.outcomes(file)
    assert here == {"c::a": "passed", "c::b": "failed", "c::d": "skipped"}
    there, rest = dict.fromkeys(here, "passed"), {"seconds": 1.0, "hazards": ["f.py:1: race: x", "f.py:2: other: y"]}
    client = simulators.Client("p", "1", hazards=(("race", "real"),))
    row = simulators.compared(client, {"outcomes": there} | rest, {"outcomes": here} | rest)
    assert row["lost"] == ["c::b"] and row["passed"] == {"numba": 3, "simt": 1}
    assert list(row["hazards"].values()) == ["real", ""]


@pytest.mark.quick
def test_a_port_changes_the_imports_alone(tmp_path):
    file = tmp_path / "a.py"
    file.write_bytes(b"from numba import cuda, njit\r\nimport numba.cuda.args  # numba\n")
    simulators.port(file, file)
    new = b"from numba_cuda_mlir import cuda\nfrom numba import njit\r\nimport numba_cuda_mlir.cuda.args  # numba\n"
    assert file.read_bytes() == new
