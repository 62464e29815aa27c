# SPDX-License-Identifier: Apache-2.0
"""Reads of random ranges of all layouts, while chance makes the server fail."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from siblings.tubemq.tests.scripted_server import (
    BROKER_ID,
    ENTRY,
    Action,
    ScriptedServer,
    and_restart,
    cut,
    passing,
    refuse,
    silence,
    store_silently,
    throw,
    twice,
)
from tubemq_spark.arrow.decode import Decoder
from tubemq_spark.options import ReadOptions
from tubemq_spark.options.patience import Patience
from tubemq_spark.source.batch_plan import ReadTask
from tubemq_spark.source.range_reader import RangeReader
from tubemq_spark.source.ranges import PartitionRange
from tubemq_spark.wire.attributes import Body, encode_body
from tubemq_spark.wire.metadata import STORE_STEP, Partition

#: Partitions of each store.
LAYOUTS = {"dense": [1, 1], "shared": [3], "mixed": [2, 2]}

TYPES = (None, "A", "Aa", "BB")

#: Without the pauses that servers need and tests do not.
QUICK = Patience(first_pause_s=0.001, max_pause_s=0.01, occupied_pause_s=0.01)

#: What may happen to a request, and how often in a hundred. After silence a second
#: passes, and after a reply that is lost.
FAULTS: dict[str, list[tuple[int, Action]]] = {
    "register": [
        (4, refuse(503)),
        (2, refuse(500)),
        (6, refuse(410)),
        (4, cut),
        (2, throw("ServerNotReadyException", 2)),
        (2, and_restart),
    ],
    "get": [
        (6, refuse(404)),
        (2, refuse(452)),
        (4, refuse(503)),
        (4, refuse(411)),
        (6, cut),
        (2, twice),
        (2, throw("ServiceStoppingException")),
        (4, and_restart),
    ],
    "commit": [(4, refuse(401)), (4, cut), (2, twice), (2, and_restart)],
}
SLOW = {method: [(1, silence), (1, store_silently)] for method in FAULTS}


def actions(
    chance: random.Random, some: list[tuple[int, Action]], count: int
) -> list[Action]:
    weights = [weight for weight, _ in some]
    every = [action for _, action in some]
    return chance.choices([*every, passing], [*weights, 100 - sum(weights)], k=count)


def read_randomly(seed: int, layout: str, rounds: int, *, slow: bool) -> None:
    """Read random ranges, and compare each with what was stored."""
    chance = random.Random(f"{layout} {seed}")
    stores = LAYOUTS[layout]
    with ScriptedServer(
        {"t": stores}, half=chance.random() < 0.5, per_get=chance.choice([1, 5, 12, 40])
    ) as server:
        ids = [
            store * STORE_STEP + index
            for store, count in enumerate(stores)
            for index in range(count)
        ]
        truth: dict[int, list[tuple[int, bytes, str | None]]] = {n: [] for n in ids}
        for number in range(120):
            partition_id, type_ = chance.choice(ids), chance.choice(TYPES)
            value = b"%d" % number
            stored = encode_body(Body(value, type_))
            offset = server.store("t", partition_id, stored, type_ or "")
            truth[partition_id].append((offset, value, type_))
        for _ in range(rounds):
            for method, some in FAULTS.items():
                every = some + (SLOW[method] if slow else [])
                server.script(method, *actions(chance, every, 10))
            partition_id = chance.choice(ids)
            entries = len(server.stores["t", partition_id // STORE_STEP].entries)
            start, end = sorted(chance.sample(range(entries + 1), 2))
            filters = chance.choice([None, ("A",), ("Aa",), ("A", "BB")])
            range_ = PartitionRange(
                Partition("t", BROKER_ID, partition_id),
                start * ENTRY,
                end * ENTRY,
                server.address,
                layout == "dense",
            )
            wanted = [
                value
                for offset, value, type_ in truth[partition_id]
                if start * ENTRY <= offset < end * ENTRY
                and (filters is None or type_ in filters)
            ]
            assert read(server, range_, filters) == wanted, (seed, range_, filters)


def read(
    server: ScriptedServer, range_: PartitionRange, filters: tuple[str, ...] | None
) -> list[bytes]:
    options = ReadOptions(
        client=replace(
            server.options,
            rpc_timeout_s=0.2,
            operation_timeout_s=30.0,
            patience=QUICK,
        ),
        topics=("t",),
        filters=filters,
        not_found_pause_s=0.001,
        read_timeout_s=30.0,
    )
    decoder = Decoder(
        pa.schema([("value", pa.binary())]), range_.partition, filters or ()
    )
    reader = RangeReader(server.pool, ReadTask(range_, "g", None), options)
    return [
        value
        for piece in reader.pieces()
        for value in decoder.decode(*piece).column("value").to_pylist()
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(3))
def test_random_reads_are_exact(seed: int, layout: str):
    read_randomly(seed, layout, 8, slow=False)


@pytest.mark.soak
@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_random_reads_are_exact(layout: str):
    for seed in range(100, 150):
        read_randomly(seed, layout, 20, slow=False)
        read_randomly(seed, layout, 1, slow=True)
