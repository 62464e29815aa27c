# SPDX-License-Identifier: Apache-2.0
"""Pairs of keys that are replaced while messages are on their way: no row is lost."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.errors import OptionError
from spark_topics.client import settling
from tests.broker.test_encryption import ACTION, produce
from tests.broker.test_write import write
from tests.support import reading
from tests.support.fixtures import FileClock
from tests.support.key_pairs import SavedPair, ec_pair, rsa_pair
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pulsar_spark.testing.admin import Admin


def pairs(folder: Path, name: str = "ours") -> list[SavedPair]:
    """Two pairs for one name, one after the other: files of the first are in use."""
    return [
        rsa_pair(number).save(_made(folder / f"{number}"), name) for number in (0, 1)
    ]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def rename(old: Path, new: Path) -> None:
    """Replaces a file at once, as one should."""
    copy = old.with_suffix(".new")
    copy.write_bytes(new.read_bytes())
    copy.replace(old)


class InPlace(FileClock):
    """A file is written part by part: the first one is there, others while tasks wait.

    Args:
        file: The file.
        parts: What is in the file, one after the other.
    """

    def __init__(self, file: Path, parts: Sequence[bytes]) -> None:
        super().__init__()
        file.write_bytes(parts[0])
        self._file = file
        self._rest = list(parts[1:])

    def sleep(self, seconds: float) -> None:
        """The next part comes before the pause ends."""
        super().sleep(seconds)
        if self._rest:
            self._file.write_bytes(self._rest.pop(0))


def values(numbers: range) -> list[Any]:
    """Numbers as values of messages."""
    return [str(number).encode() for number in numbers]


def read_slowly(
    service_url: str, options: dict[str, str], act: Callable[[], None]
) -> list[int]:
    """The numbers that one task finds; something happens when it has the first ones."""
    slow = {"rowsPerArrowBatch": "50", "pulsar.reader.receiverQueueSize": "5"}
    reader = reading.reader_of(service_url, {**options, **slow})
    (part,) = reader.partitions()
    found: list[int] = []
    for batch in reader.read(part):
        if not found:
            act()
        found += [int(row.value or b"") for row in reading.to_rows(batch)]
    return found


@pytest.mark.parametrize("action", ["FAIL", "DISCARD"])
def test_a_private_key_is_replaced_under_a_read(
    service_url: str, topic: str, tmp_path: Path, action: str
) -> None:
    """Of the same name: what both were used for is read by one task, and nothing lost.

    Not even where a message is left out that no key opens.
    """
    old, new = pairs(tmp_path)
    for pair, numbers in ((old, range(1000)), (new, range(1000, 2000)), (old, [2000])):
        produce(service_url, topic, pair, values(numbers), batch=10)  # type: ignore[arg-type]
    options = {"topic": topic, **old.for_reads, ACTION: action}
    found = read_slowly(service_url, options, lambda: rename(old.private, new.private))
    assert found == list(range(2001))


def test_a_private_key_is_removed_under_a_read(
    service_url: str, topic: str, tmp_path: Path
) -> None:
    """A task has it; the next one names the file that it lacks, and gives no row."""
    (old, _) = pairs(tmp_path)
    produce(service_url, topic, old, values(range(1000)), batch=10)
    options = {"topic": topic, **old.for_reads, ACTION: "DISCARD"}
    assert read_slowly(service_url, options, old.private.unlink) == list(range(1000))
    with pytest.raises(OptionError, match=str(old.private)):
        reading.read(service_url, options)


def test_a_pair_of_another_name(service_url: str, topic: str, tmp_path: Path) -> None:
    """Named before it is there: it is needed from its first message on, no sooner."""
    old = rsa_pair(0).save(tmp_path, "first")
    new = rsa_pair(1).save(_made(tmp_path / "new"), "second")
    at = tmp_path / "second.pem"
    places = {"first": f"file:{old.private}", "second": f"file:{at}"}
    options = {"topic": topic, "encryption.privateKeys": json.dumps(places)}
    produce(service_url, topic, old, values(range(1000)), batch=10)
    assert len(reading.read(service_url, options)) == 1000
    produce(service_url, topic, new, values(range(1000, 2000)), batch=10)
    with pytest.raises(OptionError, match=str(at)):
        reading.read(service_url, options)
    found = read_slowly(
        service_url, options, lambda: at.write_bytes(new.private.read_bytes())
    )
    assert found == list(range(2000))


def halves(new: bytes, old: bytes, how: str) -> list[bytes]:
    """A file's contents, one after the other, while another one is written into it."""
    half = len(new) // 2
    if how == "emptied":
        return [b"", new[:half], new]
    return [new[:half] + old[half:], new]


@pytest.mark.parametrize("how", ["emptied", "written over"])
@pytest.mark.parametrize("kind", ["RSA", "EC"])
def test_keys_that_are_written_in_place(
    service_url: str,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    kind: str,
) -> None:
    """Half a key is waited for; half of one and half of another is no third one."""
    old, new = pairs(tmp_path)
    if kind == "EC":
        old = ec_pair().save(_made(tmp_path / "ec"), "ours")
        new = ec_pair(number=1).save(_made(tmp_path / "ec-new"), "ours")
    whole = new.public.read_bytes()
    parts = halves(whole, old.public.read_bytes(), how)
    monkeypatch.setattr(settling, "time", InPlace(old.public, parts))
    write(service_url, topic, {"value": values(range(10))}, **old.for_writes)
    assert old.public.read_bytes() == whole
    given = {"topic": topic, ACTION: "DISCARD", **new.for_reads}
    assert len(reading.read(service_url, given)) == 10, "who has the new key reads it"
    whole = new.private.read_bytes()
    parts = halves(whole, old.private.read_bytes(), how)
    monkeypatch.setattr(settling, "time", InPlace(old.private, parts))
    given = {"topic": topic, ACTION: "DISCARD", **old.for_reads}
    assert len(reading.read(service_url, given)) == 10


def test_a_stream_whose_keys_are_replaced(
    service_url: str, admin: Admin, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    """From topic to topic, exactly once, and each side by keys that change.

    Names change, and what is behind a name.
    """
    sink = f"{topic}-sink"
    admin.create_topic(sink)
    first, second = (
        rsa_pair(n).save(_made(tmp_path / name), name)
        for n, name in enumerate(("first", "second"))
    )
    old, new = pairs(tmp_path)
    at = tmp_path / "second.pem"
    places = {"first": f"file:{first.private}", "second": f"file:{at}"}
    url = {"service.url": service_url}

    def started(**trigger: Any) -> StreamingQuery:
        writer = (
            spark.readStream.format("pulsar")
            .options(topic=topic, startingOffsets="earliest", **url)
            .option("encryption.privateKeys", json.dumps(places))
            .load()
            .select("value")
            .writeStream.format("pulsar")
            .options(topic=sink, deliveryGuarantee="exactly-once", **url)
            .options(**old.for_writes)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        return (writer.trigger(**trigger) if trigger else writer).start()

    query = started()
    sent = 0

    def feed(pair: SavedPair) -> None:
        nonlocal sent
        produce(service_url, topic, pair, values(range(sent, sent + 300)), batch=10)
        sent += 300

    def come(*having: SavedPair) -> list[int]:
        """What is in the sink for whoever has these."""
        found: list[int] = []
        for pair in having:
            given = {"topic": sink, ACTION: "DISCARD", **pair.for_reads}
            found += [int(row.value or b"") for row in reading.read(service_url, given)]
        return found

    # The files of the pair in use change; these two stay what they are.
    seal_old, seal_new = (
        rsa_pair(n).save(_made(tmp_path / f"seal-{n}"), "ours") for n in (0, 1)
    )

    def is_copied() -> bool:
        assert query.isActive, query.exception()
        return len(come(seal_old, seal_new)) >= sent

    try:
        feed(first)
        await_true(is_copied, "rows", pause=0.5)
        at.write_bytes(second.private.read_bytes())
        feed(first)
        feed(second)
        rename(old.public, new.public)
        feed(first)
        await_true(is_copied, "rows by the second key", pause=0.5)
        first.private.unlink()
        feed(second)
        await_true(is_copied, "rows without the first key", pause=0.5)
        feed(first)  # for which there is no key any more
        await_true(lambda: not query.isActive, "the end of the query")
        assert "PULSAR_OPTION" in str(query.exception())
        assert str(first.private) in str(query.exception())
    finally:
        query.stop()
    assert Counter(come(seal_old, seal_new)) == Counter(range(sent - 300))
    assert come(seal_new), "the new key was used"
    first.private.write_text(rsa_pair(0).private)
    assert started(availableNow=True).awaitTermination(240)
    assert Counter(come(seal_old, seal_new)) == Counter(range(sent))
