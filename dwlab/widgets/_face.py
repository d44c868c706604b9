"""Sliders and text fields over a function that makes a Panel: the one file here that needs ipywidgets."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from dwlab.widgets._panel import Panel


def widgets() -> ModuleType:
    """ipywidgets. Raises ImportError that says what to do instead."""
    try:
        import ipywidgets
    except ImportError as error:
        raise ImportError(
            "ipywidgets is not installed, so there are no sliders here: python -m pip install ipywidgets. "
            "The pictures and tables need none: see the `view` functions in dwlab.widgets"
        ) from error
    return ipywidgets


# ipywidgets gives a slider's handle no name and the number beside it no hint; this does, once both are on the page.
_NAMES = """
<script>
(() => {
  const place = document.currentScript.parentElement;
  let tries = 0;
  const name = () => {
    const box = place.closest(".dwlab-face");
    const rows = box ? [...box.querySelectorAll(".widget-slider")] : [];
    for (const row of rows) {
      const label = row.querySelector(".widget-label").textContent;
      const handle = row.querySelector("[role=slider]");
      const number = row.querySelector(".widget-readout");
      if (handle) handle.setAttribute("aria-label", label);
      if (number && number.isContentEditable) {
        number.title = "type a number";
        number.setAttribute("role", "textbox");
        number.setAttribute("aria-label", label + ", type a number");
      }
    }
    const named = rows.length && rows.every((row) => row.querySelector("[role=slider][aria-label]"));
    if (!named && ++tries < 100) setTimeout(name, 200);
  };
  setTimeout(name, 0);
})();
</script>
"""
HOW = "Drag a slider, move it with the arrow keys, or type into the number beside it."
LEAST = 330  # pixels of a control: half of a notebook in a window of 800 pixels has no more


def slider(label: str, value: int, least: int, most: int, step: int = 1) -> Any:
    """A slider of whole numbers, which reaches as far as its first value."""
    return widgets().IntSlider(value=value, min=min(least, value), max=max(most, value), step=step, description=label)


def choice(label: str, options: Sequence[Any], value: Any) -> Any:
    """A list to choose from: values, or (text, value) each; the first value is one of them, or is added."""
    known = [one[1] if isinstance(one, tuple) else one for one in options]
    return widgets().Dropdown(options=[*options, *([] if value in known else [value])], value=value, description=label)


def field(label: str, value: str, example: str) -> Any:
    """A text field, which shows an example while it is empty."""
    return widgets().Text(value=value, continuous_update=True, placeholder=example, description=label)


# A margin beside a width of 100 % is wider than the place, and would put a scroll bar under everything.
_FULL = {"width": "100%", "margin": "0"}


def is_slider(widget: Any) -> bool:
    """Whether an ipywidget has a track and a handle."""
    return type(widget).__name__.endswith("Slider")


class Face:
    """A live panel. Display it, or read `panel` (what it shows now) and `controls` (name -> ipywidget).

    show: makes the panel of the controls' values, which it gets under their names.

    In a front end without widgets, and in a saved notebook read without a kernel, the picture and the tables of the
    values it was made with are shown.
    """

    def __init__(self, title: str, controls: dict[str, Any], show: Callable[..., Panel]) -> None:
        w = widgets()
        self.controls = controls
        self._show = show
        self.output = w.HTML(layout=w.Layout(**_FULL))
        for control in controls.values():
            # The label lies beside its input; that of a text field and of a list is tied to it (sliders: _NAMES).
            control.style.description_width = "initial"
            slides = is_slider(control)
            basis = "400px" if slides else "300px"
            least = f"min(100%, {LEAST}px)" if slides else "0"  # or a long label leaves no track
            control.layout = w.Layout(
                flex=f"1 1 {basis}", width="auto", min_width=least, max_width="560px", margin="2px 12px 2px 0"
            )
            control.observe(self._changed, names="value")
        row = w.Box(
            list(self.controls.values()),
            layout=w.Layout(display="flex", flex_flow="row wrap", align_items="center", **_FULL),
        )
        how = f" <small>{HOW}</small>" if any(map(is_slider, self.controls.values())) else ""
        heading = w.HTML(f"<b>{html.escape(title)}</b>{how}", layout=w.Layout(**_FULL))
        script = {"output_type": "display_data", "data": {"text/html": _NAMES}, "metadata": {}}
        names = w.Output(outputs=(script,), layout=w.Layout(height="0", overflow="hidden", **_FULL))
        self.widget = w.VBox([heading, row, self.output, names], layout=w.Layout(overflow="hidden", **_FULL))
        self.widget.add_class("dwlab-face")
        self.panel = Panel(title=title, alt="")
        self._drawn = ""
        self.update()

    def _changed(self, _change: Any) -> None:
        self.update()

    def update(self) -> None:
        """Shows the panel for the values that the controls have now. Nothing is raised into the page."""
        try:
            values = {name: control.value for name, control in self.controls.items()}
            self.panel = self._show(**values)
            shown = self.panel.html()
            if self.panel.draw:
                self._drawn = shown
            elif self._drawn:
                # While the reader is still typing, the page keeps its height and the picture its place.
                shown += f'<div style="opacity:0.3" aria-hidden="true">{self._drawn}</div>'
            self.output.value = shown
        except Exception as error:  # whatever the reader typed, the page stays usable
            text = f"{type(error).__name__}: {error}"
            self.panel = Panel(title="This could not be shown", alt="", problems=(text,))
            self.output.value = self.panel.html()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        live = self.widget._repr_mimebundle_(**options) or {}
        data = live[0] if isinstance(live, tuple) else live
        return {**data, "text/html": self.panel.html(), "text/plain": self.panel.text()}
