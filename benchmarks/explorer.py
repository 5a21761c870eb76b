"""Processor time the server of `latency-model explore` takes for one change, the whole request included.

Run with `python benchmarks/explorer.py`; it needs the extra `explore`.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

from latency_model.views.explorer.app import build
from latency_model.views.explorer.controls import control_values
from latency_model.views.explorer.state import State

REPEATS = 15
CHANGES: dict[str, list[State]] = {
    "acceptance": [State(acceptance=f"{0.5 + step / 100}") for step in range(REPEATS)],
    "batch": [State(batch=1 + step) for step in range(REPEATS)],
    "context": [State(context=1000 + step) for step in range(REPEATS)],
    "routing": [State(persistence=step / 100) for step in range(REPEATS)],
    "tensor parallelism": [State(tp=2 ** (step % 4)) for step in range(REPEATS)],
    "dense model": [State(model="Qwen3-8B", batch=1 + step) for step in range(REPEATS)],
    "largest model": [State(model="DeepSeek-V3", hardware="h200-sxm", tp=8, batch=1 + step) for step in range(REPEATS)],
}


def main() -> None:
    """Print a line per kind of change."""
    client = build().server.test_client()
    callback = next(entry for entry in client.get("/_dash-dependencies").json if "drawn.data" in entry["output"])
    sys.stdout.write(f"{'change':20} {'fastest':>8} {'median':>8}\n")
    for name, states in CHANGES.items():
        ask(client, callback, states[0])
        seconds = [timed(client, callback, state) for state in states]
        sys.stdout.write(f"{name:20} {1e3 * min(seconds):5.0f} ms {1e3 * statistics.median(seconds):5.0f} ms\n")


def timed(client: Any, callback: dict[str, Any], state: State) -> float:
    """Processor seconds of one request, which other processes disturb little."""
    start = time.process_time()
    ask(client, callback, state)
    return time.process_time() - start


def ask(client: Any, callback: dict[str, Any], state: State) -> None:
    """Send what a browser sends when a control has changed."""
    values = control_values(state) | {"uploads": {"config": "", "device": ""}}
    inputs = [entry | {"value": values[entry["id"]]} for entry in callback["inputs"]]
    named = (output.split(".") for output in callback["output"].strip(".").split("..."))
    outputs = [{"id": name, "property": part} for name, part in named]
    body = {"output": callback["output"], "outputs": outputs, "inputs": inputs, "changedPropIds": ["batch.value"]}
    response = client.post("/_dash-update-component", json=body)
    if response.status_code != 200 or "drawn" not in response.json["response"]:
        raise SystemExit(f"{state}: {response.text[:500]}")


if __name__ == "__main__":
    main()
