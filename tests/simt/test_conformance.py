"""Numba's own CUDA tests on the interpreter, those of short modules: all pass but for what has a reason."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
spec = importlib.util.spec_from_file_location("conformance", ROOT / "benchmarks" / "conformance.py")
conformance = importlib.util.module_from_spec(spec)
spec.loader.exec_module(conformance)

# Module -> how many of its tests pass, at the least.
SHORT = {
    "cudapy.test_sync": 19, "cudapy.test_warp_ops": 15, "cudapy.test_exception": 6, "cudapy.test_recursion": 4,
    "cudapy.test_retrieve_autoconverted_arrays": 8, "cudapy.test_cooperative_groups": 7, "cudapy.test_forall": 4,
    "cudapy.test_cuda_array_interface": 20, "cudapy.test_vectorize_decor": 7, "cudapy.test_record_dtype": 41,
    "cudasim.test_cudasim_issues": 4, "cudadrv.test_array_attr": 11, "cudapy.test_constmem": 8,
}  # fmt: skip


@pytest.mark.parametrize("module", SHORT)
def test_numbas_tests_pass(module):
    outcomes = conformance.run(f"numba.cuda.tests.{module}")
    assert conformance.unexplained(outcomes) == []
    assert sum(one[0] == "passed" for one in outcomes.values()) >= SHORT[module]


@pytest.mark.quick
def test_modules_are_found():
    assert {f"numba.cuda.tests.{one}" for one in SHORT} <= set(conformance.modules())


@pytest.mark.quick
def test_a_failure_without_a_reason_is_told():
    one = {
        "a.TestCMath.test_exp": ["failed", "t", 0, ""],
        "a.b": ["failed", "t", 0, ""],
        "a.c": ["failed", "", 0, "ptx"],
    }
    assert conformance.unexplained(one) == ["a.b: t"] and conformance.unexplained(one, {"a.c"}) == []
