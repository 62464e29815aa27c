# SPDX-License-Identifier: Apache-2.0
"""Measures TubeMQ's hops beside their limits: ``make bench-tubemq``.

python -m siblings.tubemq.tests.bench --rows 400000

The table is printed, and saved with every repeat as build/bench-tubemq.json.
"""

from __future__ import annotations

import argparse

from siblings.tubemq.tests.bench import bench_tubemq
from tests.bench.__main__ import machine
from tests.bench.cluster import ROOT, note, spark_session
from tests.bench.report import Case, Document, table


def main() -> None:
    """Measure all hops, print the table and save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="messages of a hop")
    parser.add_argument("--repeat", type=int, default=3, help="after a warm-up")
    arguments = parser.parse_args()
    facts = machine()
    cases: list[Case] = []
    try:
        cases.extend(bench_tubemq.run_decode(arguments.rows, arguments.repeat))
        with spark_session() as spark:
            cases.extend(bench_tubemq.run(spark, arguments.rows, arguments.repeat))
    finally:  # a failure leaves what was measured before
        print(table(cases))
        path = ROOT / "build" / "bench-tubemq.json"
        Document(facts, cases).write(path)
        note(f"saved {path}")


if __name__ == "__main__":
    main()
