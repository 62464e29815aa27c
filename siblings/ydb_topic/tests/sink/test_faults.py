# SPDX-License-Identifier: Apache-2.0
"""Every fault with every guarantee, codec, partitioning and size of rows, by chance."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import Any

import grpc
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from siblings.ydb_topic.tests.sink.tables import table, writer
from siblings.ydb_topic.tests.support.faults import Acks, At, Fault, When
from siblings.ydb_topic.tests.support.service import TopicService
from ydb_spark.client.channel import Channel
from ydb_spark.errors import YdbError
from ydb_spark.options.write import Partitioning
from ydb_spark.wire.codecs import CODECS, decode

#: What ends a stream, and what may help after it, or may not.
ENDS: list[dict[str, Any]] = [
    *({"status": status} for status in (400050, 400100, 400150, 400160, 400040)),
    *({"status": status} for status in (400060, 400080, 400090, 400120, 400070)),
    {"grpc": grpc.StatusCode.UNAVAILABLE},
    {"grpc": grpc.StatusCode.INTERNAL},
    {"cuts": True},
]
SPOILT: list[dict[str, Any]] = [
    {"acks": Acks.SHORT},
    {"acks": Acks.REPEATED},
    {"acks": Acks.REVERSED},
    {"delay_s": 0.01},
]

FAULTS = st.builds(
    lambda at, when, how, skip: Fault(at, when, skip=skip, **how),
    st.sampled_from([At.WRITE, At.WRITE, At.WRITE, At.WRITE_INIT]),
    st.sampled_from(When),
    st.sampled_from(ENDS + SPOILT),
    st.integers(0, 5),
)


@dataclass(frozen=True)
class Write:
    """How rows are written.

    Attributes:
        is_idempotent: Or at least once.
        codec: Its number.
        partitioning: Which partition a row goes to.
        sizes: Of the rows.
        request_bytes: How requests are cut.
    """

    is_idempotent: bool
    codec: int
    partitioning: Partitioning
    sizes: list[int]
    request_bytes: int


WRITES = st.builds(
    Write,
    st.booleans(),
    st.sampled_from([*CODECS.values()]),
    st.sampled_from([p for p in Partitioning if p is not Partitioning.KEY]),
    st.lists(st.sampled_from([0, 1, 20, 300, 5000]), min_size=1, max_size=30),
    st.sampled_from([1, 200, 4000, 100_000]),
).filter(
    lambda how: (
        (how.is_idempotent, how.partitioning) != (True, Partitioning.MESSAGE_GROUP_ID)
    )
)


def rows_of(how: Write) -> pa.RecordBatch:
    """Rows that differ, of these sizes."""
    bodies: list[bytes | None] = [
        b"%d " % n + bytes(size) for n, size in enumerate(how.sizes)
    ]
    names = [n % 2 for n in range(len(bodies))]
    if how.partitioning is Partitioning.PARTITION_ID:
        return table(bodies, partition_id=pa.array(names, pa.int32()))
    if how.partitioning is Partitioning.MESSAGE_GROUP_ID:
        return table(bodies, message_group_id=pa.array(map(str, names), pa.string()))
    return table(bodies)


@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@given(how=WRITES, attempts=st.lists(st.lists(FAULTS, max_size=3), max_size=3))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_row_is_lost(
    service: TopicService,
    channel: Channel,
    how: Write,
    attempts: list[list[Fault]],
):
    """None ever; and none is stored twice, or out of order, where that is promised."""
    service.store.create("t", partitions=2, codecs=[*CODECS.values()])
    rows = rows_of(how)
    for faults in (*attempts, []):
        for fault in faults:
            service.faults.add(fault)
        one = writer(
            channel,
            id_="q" if how.is_idempotent else None,
            codec=how.codec,
            partitioning=how.partitioning,
            max_request_bytes=how.request_bytes,
            max_inflight_bytes=2000,
        )
        with contextlib.suppress(YdbError) if faults else contextlib.nullcontext():
            summary = one.write([rows.slice(0, 7), rows.slice(7)])
            assert summary.rows == rows.num_rows
        service.faults.clear()
    expected = rows.column("data").to_pylist()
    stored = [
        [decode(m.codec, m.data) for m in service.store.stored("t", number)]
        for number in (0, 1)
    ]
    if how.partitioning is Partitioning.MESSAGE_GROUP_ID:
        for group in ("0", "1"):
            found = [
                decode(m.codec, m.data)
                for m in service.store.stored("t")
                if m.producer_id == group
            ]
            # Some twice; but none before those that are before it in its group.
            assert [*dict.fromkeys(found)] == expected[int(group) :: 2]
    elif not how.is_idempotent:
        assert {*stored[0], *stored[1]} == {*expected}
    elif how.partitioning is Partitioning.PARTITION_ID:
        assert stored == [expected[::2], expected[1::2]]
    else:
        assert sorted(stored) == [[], expected]
    if how.is_idempotent:
        assert max(Counter(stored[0] + stored[1]).values()) == 1
