"""Lessons and widgets in JupyterLab itself, in Chromium: run, worked by mouse and keyboard, and looked at by axe-core.

Skipped where there is no Chromium, Playwright or axe-core (`pip install -e ".[browser]"`). A run takes the widgets and
a drawn part of the lessons; `--whole` takes every lesson. Each is looked at in all layouts.
"""

import contextlib
import io
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import lab
import nbformat
import numpy as np
import pytest
from PIL import Image

from dwlab.widgets import workbook

sync_api = pytest.importorskip("playwright.sync_api", reason="no Playwright: JupyterLab is not tried in a browser")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe-core: install the extra `browser`")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = os.environ.get("DWLAB_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
if CHROMIUM is None:
    pytest.skip("no Chromium: JupyterLab is not tried in a browser", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
LAYOUTS = {f"{width} {theme}": (width, f"JupyterLab {theme}") for width in (1280, 800) for theme in ("Light", "Dark")}
START_S, ANSWER_S = 120, 30

# Cells that are out of sight have no place on the page otherwise, and nothing looks at them.
SETTINGS = {"@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"}, **lab._OVERRIDES}

WIDGETS = """\
import numpy as np
from dwlab import banner, cuda, roofline_explorer, stepper, traffic_calculator, warp_viewer, xray
from dwlab.widgets import drawings, fuse_planner
from dwlab.problems import DepthwiseConv1d

@cuda.jit
def halves(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[(2 * i) % x.size]
banner()
# ---
roofline_explorer()
# ---
warp_viewer("lane * 2 + 1")
# ---
traffic_calculator(DepthwiseConv1d(8, 16, 256, 15), 64)
# ---
fuse_planner()
# ---
stepper(halves, 2, 32, np.arange(60, dtype=np.float32), np.zeros(60, np.float32))
# ---
xray(halves, 2, 32, np.arange(60, dtype=np.float32), np.zeros(60, np.float32))
"""
FIRST_FACE, LAST_FACE, STEPPER = 1, 4, 5


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of JupyterLab, started as `make lab` starts it but on copies: the lessons, and a page of widgets."""
    root = tmp_path_factory.mktemp("workbook")
    for folder in ("notebooks", "exercises"):
        (root / folder).mkdir()
        for file in (ROOT / folder).glob("*.ipynb"):
            shutil.copy(file, root / folder)
    cells = [nbformat.v4.new_code_cell(text) for text in WIDGETS.split("# ---\n")]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), root / "widgets.ipynb")
    settings = tmp_path_factory.mktemp("settings")
    (settings / "overrides.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    superuser = hasattr(os, "geteuid") and os.geteuid() == 0
    arguments = workbook.jupyter_arguments(root, sys.platform, {}, superuser=superuser, wsl=False, snap=False)
    arguments = [one for one in arguments if one != "--no-browser"]
    arguments += [
        f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1", "--no-browser",
        f"--IdentityProvider.token={token}", f"--LabApp.app_settings_dir={settings}",
        f"--LabApp.workspaces_dir={settings}", "--LabApp.expose_app_in_browser=True",
    ]  # fmt: skip
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    variables = {**os.environ, "JUPYTER_PREFER_ENV_PATH": "1", "PYTHONPATH": path, "DWLAB_TARGET": "simulated"}
    log = settings / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *arguments], cwd=root, env=variables, stdout=output, stderr=output
        )
    try:
        address = f"http://127.0.0.1:{port}"
        until = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/api?token={token}", timeout=5).close()
                break
            assert process.poll() is None and time.monotonic() < until, log.read_text(encoding="utf-8")[-2000:]
            time.sleep(0.2)
        yield address, token
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        # Scroll bars take room, and are hidden from Playwright's own browser.
        opened = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], ignore_default_args=["--hide-scrollbars"]
        )
        yield opened
        opened.close()


class Notebook:
    """A notebook that is open in JupyterLab."""

    def __init__(self, page):
        self.page = page

    def lay_out(self, layout):
        """Another width and theme; on a small page the list of files would leave no room."""
        width, theme = LAYOUTS[layout]
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.evaluate("(theme) => jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
        self.page.evaluate("(small) => jupyterapp.shell[small ? 'collapseLeft' : 'expandLeft']()", width < 1000)
        self.page.wait_for_timeout(500)

    def run_all(self):
        """Runs all cells; the last outputs stand on the page afterwards."""
        self.page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")
        self.page.wait_for_timeout(500)

    def cells(self):
        """Its cells as nbformat has them, with what they show now."""
        return self.page.evaluate("() => jupyterapp.shell.currentWidget.context.model.toJSON().cells")

    def serious(self):
        """What axe-core finds serious or critical in texts and outputs: JupyterLab's own parts are not ours."""
        context = {"include": [[".jp-OutputArea-output"], [".jp-RenderedMarkdown"]]}
        # The rules of whole pages, and what JupyterLab does to every text that scrolls and every heading's link.
        off = ("region", "scrollable-region-focusable", "frame-title")
        options = {"resultTypes": ["violations"], "rules": {one: {"enabled": False} for one in off}}
        if not self.page.locator(".jp-OutputArea-output").count():
            context["include"].pop(0)
        found = axe.Axe().run(self.page, context=context, options=options).response["violations"]
        return [
            f"{one['id']}: {one['help']}: {node['html'][:200]}"
            for one in found
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"][:3]
        ]

    def too_wide(self):
        """Widgets whose parts do not fit into them, and a page into its window: a scroll bar would stand below."""
        return self.page.evaluate(
            """() => [...document.querySelectorAll(".dwlab-face, .dwlab-face > *, .jp-WindowedPanel-outer")]
                .filter((one) => one.scrollWidth > one.clientWidth + 1)
                .map((one) => `${one.className}: ${one.scrollWidth} of ${one.clientWidth} pixels`)"""
        )

    def white(self):
        """Pictures that are mostly white: blocks, on a dark page."""
        pictures = self.page.locator(".jp-OutputArea-output :is(img, svg[role=img]):visible").all()
        seen = {one: np.asarray(Image.open(io.BytesIO(one.screenshot())).convert("L")) > 240 for one in pictures}
        return [one.evaluate("(one) => one.alt || one.textContent") for one in pictures if seen[one].mean() > 0.5]

    def findings(self, layout):
        self.lay_out(layout)
        return self.too_wide() + self.serious() + (self.white() if "Dark" in layout else [])


@pytest.fixture
def opened(server, browser):
    """opened(path, layout): a notebook in a page of its own, whose kernel answers."""
    address, token = server
    pages = []

    def one(path, layout="1280 Light"):
        page = browser.new_page()
        pages.append(page)
        page.set_default_timeout(1000 * ANSWER_S)
        page.goto(f"{address}/lab/workspaces/{secrets.token_hex(4)}/tree/{path}?token={token}")
        page.wait_for_function(
            """(path) => window.jupyterapp?.shell.currentWidget?.context?.path === path
                && jupyterapp.shell.currentWidget.context.isReady
                && jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === "idle" """,
            arg=path,
        )
        notebook = Notebook(page)
        notebook.lay_out(layout)
        return notebook

    yield one
    for page in pages:
        with contextlib.suppress(sync_api.Error):
            page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.shutdown()")
        page.close()


@contextlib.contextmanager
def changed(place):
    """Waits until a place of the page shows something else than before."""
    before = place.inner_html()
    yield
    place.page.wait_for_function("([one, before]) => one.innerHTML !== before", arg=[place.element_handle(), before])


@pytest.mark.family(0.5)
@pytest.mark.parametrize("layout", ["1280 Light", "800 Dark"])
def test_widgets_by_mouse_and_keyboard(opened, layout):
    notebook = opened("widgets.ipynb", layout)
    notebook.run_all()
    wrong = [one for cell in notebook.cells() for one in cell["outputs"] if one["output_type"] == "error"]
    assert not wrong
    for cell in range(FIRST_FACE, LAST_FACE + 1):
        face = notebook.page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".dwlab-face")
        shown = face.locator(".widget-html-content").last  # below the controls; the first is the heading
        handle = face.locator("[role=slider]").first
        name = handle.get_attribute("aria-label") or ""
        assert name, f"cell {cell}: a slider without a name"
        with changed(shown):
            handle.focus()
            notebook.page.keyboard.press("ArrowRight")
        with changed(shown):
            track = face.locator(".noUi-base, .slider-container").first.bounding_box()
            box = handle.bounding_box()
            notebook.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            notebook.page.mouse.down()
            notebook.page.mouse.move(track["x"] + 0.7 * track["width"], track["y"] + track["height"] / 2, steps=5)
            notebook.page.mouse.up()
        assert track["width"] > 40, f"cell {cell}: no room to drag {name}"
    stepper = notebook.page.locator(".dwlab-stepper")
    said = stepper.locator(".said")
    with changed(said):
        stepper.get_by_role("button", name="one step on").click()
    with changed(said):
        stepper.get_by_role("slider").focus()
        notebook.page.keyboard.press("ArrowRight")
    with changed(said):
        stepper.get_by_role("button", name="first step").focus()
        notebook.page.keyboard.press("Enter")
    assert notebook.findings(layout) == []


@pytest.mark.family(0.05, by=["none"])
@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_runs_from_top_to_bottom(opened, lesson):
    notebook = opened(f"notebooks/{lesson}.ipynb")
    notebook.run_all()
    code = [cell for cell in notebook.cells() if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        if "raises-exception" not in cell["metadata"].get("tags", []):
            wrong = [one for one in cell["outputs"] if one["output_type"] == "error"]
            assert not wrong, cell["source"]
    assert {layout: found for layout in LAYOUTS if (found := notebook.findings(layout))} == {}


@pytest.mark.parametrize("lesson", ["02_the_machine", "16_as_fast_as_a_copy"])
def test_stored_drawings_are_shown_before_anything_runs(opened, lesson):
    """JupyterLab strips those of a notebook that it does not trust to their labels, all in a row."""
    notebook = opened(f"notebooks/{lesson}.ipynb")
    stored = [output for cell in notebook.cells() for output in cell.get("outputs", ())]
    drawn = sum("".join(one.get("data", {}).get("text/html", "")).count("<svg role") for one in stored)
    assert drawn >= 2, "a lesson with nothing drawn tells nothing"
    assert notebook.page.locator(".jp-OutputArea-output svg[role=img]").count() == drawn


def test_a_students_copy_asks_for_the_predictions_first(opened):
    notebook = opened(workbook.FIRST_LESSON)
    notebook.run_all()
    code = [cell for cell in notebook.cells() if cell["cell_type"] == "code"]
    (stopped,) = [cell for cell in code for one in cell["outputs"] if one["output_type"] == "error"]
    assert "predicted_" in stopped["source"]
    assert stopped["outputs"][-1]["evalue"] == "write your prediction down first"
    assert all(cell["execution_count"] is None for cell in code[code.index(stopped) + 1 :])
    assert notebook.serious() == []
