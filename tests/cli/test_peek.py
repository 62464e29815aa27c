# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.cli.peek`: the last messages, decoded."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.message_id import TxnId
from pulsar_spark.schemas.info import SchemaType
from tests.support.scripted_broker import LEDGER, ScriptedBroker, batch, single

if TYPE_CHECKING:
    from tests.cli.conftest import Run

T = "persistent://public/default/t"


@pytest.mark.parametrize("count", [1, 2, 5, 1000])
def test_the_last_ones(scripted: ScriptedBroker, run: Run, count: int) -> None:
    """Also out of the middle of a batch, and all where there are fewer."""
    scripted.add_topic(T, [single(b"0"), batch([b"1", b"2"]), batch([b"3", b"4"])])
    given = ("-o", f"service.url={scripted.url}", "-o", "topic=t")
    code, printed = run("peek", *given, "-n", str(count), "--json")
    assert code == 0
    values = [row["value"] for row in json.loads(printed)]
    assert values == ["0", "1", "2", "3", "4"][-count:]
    assert not scripted.durable(T)


def test_table(scripted: ScriptedBroker, run: Run) -> None:
    """Text is shown as text, other bytes as digits, and nothing controls a terminal."""
    long = b"x" * 1000
    messages = [b"caf\xc3\xa9", b"\xff\x00", b"a\x1b[2J", long]
    scripted.add_topic(T, [single(message) for message in messages])
    given = ("-o", f"service.url={scripted.url}", "-o", "topic=t")
    code, printed = run("peek", *given)
    assert code == 0
    head, *lines = printed.splitlines()
    assert head.split() == ["__position", "__publishTime", "__key", "value"]
    shown = [line.split()[-1] for line in lines]
    assert shown[:3] == ["caf\u00e9", "0xff00", "0x611b5b324a"]
    assert shown[3] == "x" * 57 + "..."
    assert [line.split()[0] for line in lines] == [f"{LEDGER}:{n}" for n in range(4)]


def test_nothing(scripted: ScriptedBroker, run: Run) -> None:
    """A topic without messages is no mistake; a wrong number is one."""
    scripted.add_topic(T, [])
    given = ("-o", f"service.url={scripted.url}", "-o", "topic=t")
    assert run("peek", *given) == (0, "No message.\n")
    assert run("peek", *given, "-n", "0")[0] == 2


def peeked(run: Run, *given: str) -> list[str]:
    """The values that the command shows."""
    code, printed = run("peek", *given, "--json")
    assert code == 0, printed
    return [row["value"] for row in json.loads(printed)]


@pytest.mark.parametrize(
    "option",
    ["maxPartitions=1", "minPartitions=4", "maxRecordsPerPartition=3", "mode=FAILFAST"],
)
def test_options_that_divide_tasks(
    scripted: ScriptedBroker, run: Run, option: str
) -> None:
    """Each topic partition has its own last messages, whatever tasks a job has."""
    for name in "tu":
        scripted.add_topic(
            f"persistent://public/default/{name}",
            [single(b"%s%d" % (name.encode(), number)) for number in range(9)],
        )
    given = ("-o", f"service.url={scripted.url}", "-o", "topics=t,u", "-n", "2")
    assert peeked(run, *given, "-o", option) == ["t7", "t8", "u7", "u8"]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_entries_without_a_message_of_their_own(
    scripted: ScriptedBroker, run: Run, count: int
) -> None:
    """Chunks and aborted messages take none of the places."""
    aborted = TxnId(0, 1)
    scripted.aborted.add(aborted)
    gone = {"txnid_most_bits": 0, "txnid_least_bits": 1}
    chunks = [
        single(
            b"abcd"[i : i + 1],
            uuid="u",
            num_chunks_from_msg=4,
            chunk_id=i,
            total_chunk_msg_size=4,
        )
        for i in range(4)
    ]
    entries = [
        *(single(b"%d" % number) for number in range(9)),
        *chunks[:2],
        batch([b"x", b"y"]),
        *chunks[2:],
        *(single(b"", **gone) for _ in range(20)),
        single(b"z"),
    ]
    scripted.add_topic(T, entries)
    given = ("-o", f"service.url={scripted.url}", "-o", "topic=t", "-n", str(count))
    everything = [*map(str, range(9)), "x", "y", "abcd", "z"]
    assert peeked(run, *given) == everything[-count:]


def test_a_field_with_the_name_of_another_column(
    scripted: ScriptedBroker, run: Run
) -> None:
    """It has its value: the command has no column of bad values."""
    fields = [{"name": "_corrupt_record", "type": "int"}]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    version = scripted.add_schema(T, SchemaType.AVRO, schema).version
    scripted.add_topic(T, [single(b"\x02", schema_version=version)])
    given = ("-o", f"service.url={scripted.url}", "-o", "topic=t", "--json")
    code, printed = run("peek", *given)
    assert (code, json.loads(printed)[0]["_corrupt_record"]) == (0, 1)


def test_numbers_that_json_does_not_have(scripted: ScriptedBroker, run: Run) -> None:
    """They are texts, as in Spark's JSON, wherever they stand."""
    many = {"type": "array", "items": "double"}
    fields = [{"name": "f", "type": "double"}, {"name": "many", "type": many}]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    version = scripted.add_schema(T, SchemaType.AVRO, schema).version
    nan, infinity = struct.pack("<d", math.nan), struct.pack("<d", -math.inf)
    value = nan + b"\x02" + infinity + b"\x00"
    scripted.add_topic(T, [single(value, schema_version=version)])
    given = ("-o", f"service.url={scripted.url}", "-o", "topic=t", "--json")
    code, printed = run("peek", *given)
    (row,) = json.loads(printed, parse_constant=pytest.fail)
    assert (code, row["f"], row["many"]) == (0, "NaN", ["-Infinity"])
