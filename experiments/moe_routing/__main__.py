"""``python -m moe_routing`` analyses the recorded routing anew; with ``--train`` it trains the models before."""

from __future__ import annotations

import argparse
import sys

import numpy as np

from moe_routing.analyse import analyse
from moe_routing.report import tables, write_csv
from moe_routing.runs import RUNS


def main() -> None:
    """Train if asked to, analyse every recorded run, write the CSV files and print the tables made of them."""
    parser = argparse.ArgumentParser(prog="python -m moe_routing", description=__doc__)
    parser.add_argument("--train", action="store_true", help="train and record first: needs torch, about half an hour")
    if parser.parse_args().train:
        from moe_routing.record import train_and_record

        for run in RUNS:
            sys.stderr.write(f"training {run.name}\n")
            np.savez_compressed(run.trace, **train_and_record(run))

    results: dict[str, list] = {"training": [], "fits": [], "unions": [], "overlaps": []}
    for run in RUNS:
        with np.load(run.trace) as file:
            recorded = {name: file[name] for name in file.files}
        ids, experts = recorded.pop("expert_ids"), int(recorded.pop("num_experts"))
        results["training"].append({"run": run.name, **{name: value.item() for name, value in recorded.items()}})
        for table, rows in analyse(ids, experts).items():
            results[table] += [{"run": run.name, "experts": experts, **row} for row in rows]
    for table, rows in results.items():
        write_csv(table, rows)
    for subject, table in tables().items():
        sys.stdout.write(f"{subject}\n\n{table}\n\n")


if __name__ == "__main__":
    main()
