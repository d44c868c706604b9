"""The plugin of pytest that is there wherever dwlab is installed, and does nothing without `--simt` or DWLAB_SIMT=1.

With it the tests of a project written for Numba-CUDA run on the interpreter: see `dwlab.simulator.project`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simt", "kernels of Numba-CUDA without a GPU (dwlab.simt)")
    on = os.environ.get("DWLAB_SIMT", "") not in ("", "0")
    group.addoption("--simt", action="store_true", default=on, help="numba.cuda is dwlab.simt; also DWLAB_SIMT=1")
    group.addoption("--simt-hazards", choices=("warn", "error", "ignore"), default="warn", help="what a hazard does")
    group.addoption("--simt-count", choices=("on", "off"), default="on", help="count sectors of each line")
    group.addoption("--simt-report", metavar="FILE.html", help="a page with the X-ray of each kernel")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    given = early_config.known_args_namespace
    if given.simt:
        from dwlab.simulator import project

        early_config.simt = project.install(given.simt_hazards, given.simt_count == "on")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "simt_allow(kind, …): hazards that the test accepts; none named: any")
    pytest_load_initial_conftests(config)  # of a worker of pytest-xdist, too


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if item.config.option.simt:
        mark = item.get_closest_marker("simt_allow")
        item.config.simt.allowed = frozenset((mark.args or ("any",)) if mark else ())
    yield


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.simt and hasattr(session.config, "workeroutput"):
        session.config.workeroutput["simt"] = session.config.simt.to_dict()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if "simt" in getattr(node, "workeroutput", {}):
        node.config.simt.add(node.workeroutput["simt"])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.option.simt:
        terminalreporter.section("simt")
        for line in config.simt.summary():
            terminalreporter.write_line(line)
        if config.option.simt_report:
            terminalreporter.write_line(f"wrote {config.simt.save(config.option.simt_report)}")
