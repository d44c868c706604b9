"""Sliders and text fields over a function that makes a Panel: the one file here that needs ipywidgets."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Control:
    """A labelled input. widget: its value is passed to the panel's function under the control's name."""

    label: str
    widget: Any
    wide: bool = False


class Face:
    """A live panel. Display it, or read `panel` (what it shows now) and `controls` (name -> ipywidget).

    In a front end without widgets, and in a saved notebook read without a kernel, the picture and the tables of the
    values it was made with are shown.
    """

    def __init__(self, title: str, controls: dict[str, Control], show: Callable[..., Panel]) -> None:
        w = widgets()
        self.controls = {name: control.widget for name, control in controls.items()}
        self._show = show
        self.output = w.HTML(layout=w.Layout(width="100%"))
        for control in controls.values():
            # The label lies beside its input and is tied to it, so that a screen reader says it.
            control.widget.description = control.label
            control.widget.style.description_width = "initial"
            basis = "460px" if control.wide else "300px"
            control.widget.layout = w.Layout(flex=f"1 1 {basis}", width="auto", min_width="0", max_width="560px")
            control.widget.observe(self._changed, names="value")
        row = w.Box(
            list(self.controls.values()),
            layout=w.Layout(display="flex", flex_flow="row wrap", align_items="center", width="100%"),
        )
        heading = w.HTML(f"<b>{html.escape(title)}</b>")
        self.widget = w.VBox([heading, row, self.output], layout=w.Layout(width="100%"))
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


def face(title: str, controls: dict[str, Control], show: Callable[..., Panel]) -> Face:
    """A Face; see there."""
    return Face(title, controls, show)
