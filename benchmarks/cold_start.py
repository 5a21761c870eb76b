"""How long a person waits for a command in a fresh process, beside Python's own start: medians of wall time.

Run with ``python benchmarks/cold_start.py``.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 11
#: Arguments of ``latency-model`` and the seconds they may take on two cores.
BUDGETS = {("--help",): 0.25, ("optimize", "--help"): 0.25, ("optimize",): 0.4, ("explain",): 0.4, ("experts",): 0.4}


def seconds(command: list[str]) -> float:
    """Median wall time of a process [s]."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Print one line a command."""
    sys.stdout.write(f"{'python -c pass':32} {seconds([sys.executable, '-c', 'pass']):6.3f} s\n")
    for arguments, budget in BUDGETS.items():
        took = seconds([sys.executable, "-m", "latency_model", *arguments])
        sys.stdout.write(f"{'latency-model ' + ' '.join(arguments):32} {took:6.3f} s of {budget:.2f} s\n")


if __name__ == "__main__":
    main()
