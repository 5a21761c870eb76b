"""The figure of the README: ``python docs/readme_figure.py`` draws it anew (needs Chromium or Chrome).

Beside the picture lie the numbers it shows; a test computes them again and fails when they have moved.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import latency_model as lm

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

STATIC = Path(__file__).parent / "static"
PICTURE = STATIC / "speedup.png"
NUMBERS = STATIC / "speedup.json"
WIDTH, HEIGHT = 800, 400  # pixels
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

CASE: dict[str, Any] = {
    "model": ["Qwen3-30B-A3B", "Qwen3-8B"],
    "hardware": "h100-sxm",
    "acceptance": lm.Acceptance.conditional([0.70, 0.62, 0.60, 0.58]),
    "draft_length": range(9),
    "batch": [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
    "context": 512,
}


def figure() -> Figure:
    """Speedup against batch at the best draft length, a mixture of experts beside a dense model.

    Title, notes and buttons stay out: the README says what the picture shows, and a picture has no use for buttons.
    """
    drawn: Figure = lm.figures.speedup(CASE["model"], **{name: CASE[name] for name in CASE if name != "model"})
    drawn.layout.updatemenus = []
    drawn.layout.annotations = [note for note in drawn.layout.annotations if note.name != "footer"]
    return drawn.update_layout(
        title=None,
        width=WIDTH,
        height=HEIGHT,
        margin={"l": 60, "r": 20, "t": 15, "b": 85},
        legend={"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top"},
    )


def numbers(drawn: Figure) -> dict[str, list[float]]:
    """What is drawn: the vertical position of every point of every line."""
    lines = [trace for trace in drawn.data if trace.y is not None and None not in trace.y]
    return {
        f"{number} {trace.name or 'interval'}": [round(float(y), 4) for y in trace.y]
        for number, trace in enumerate(lines)
    }


def draw(drawn: Figure) -> None:
    """Take the picture in a browser without a window."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"none of {', '.join(BROWSERS)} is installed")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        text = drawn.to_html(config={"staticPlot": True})
        page.write_text(text.replace("<body>", '<body style="margin: 0">'), encoding="utf-8")
        switches = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000"]
        place = [f"--user-data-dir={folder}/profile", f"--screenshot={PICTURE}", f"--window-size={WIDTH},{HEIGHT}"]
        subprocess.run([browser, *switches, *place, page.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    drawn = figure()
    draw(drawn)
    NUMBERS.write_text(json.dumps(numbers(drawn), indent=1) + "\n", encoding="utf-8")
