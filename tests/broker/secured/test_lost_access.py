# SPDX-License-Identifier: Apache-2.0
"""A stream from topic to topic that loses what lets it in, and gets it back.

A permission is taken away, or a token expires that nobody renews, while rows are on
their way. The query ends with an error that says what to do, and started again, when
that is done, it has each row once.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pulsar_spark import AuthError
from pulsar_spark.client.pool import shared_pool
from tests.broker.secured.test_authentication import (
    PARAMS,
    PLUGIN,
    is_allowed,
    publish,
    slow_reader,
    token,
    values_in,
)
from tests.broker.test_write import table, write
from tests.support import reading
from tests.support.secured import RenewedFile, SecuredBroker
from tests.support.waiting import await_true, join

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Seconds that a token lives where it is to expire.
LIFE_S = 5

#: Within so many seconds a query ends that is not let in any more. Brokers look each
#: second for tokens that have expired, and tell of permissions at once.
DEADLINE_S = 60.0


#: What each role needs in its namespace.
ACTIONS = {"source": ["consume"], "sink": ["produce", "consume"]}


class Copy:
    """A stream from topic to topic, exactly once, by a role for each of them.

    As a context manager it is fed with numbers, fewer in a second than it can take.

    Args:
        spark: Runs it.
        secured: Has the topics, in a namespace of its own each.
        folder: For its checkpoint, and its tokens.

    Attributes:
        namespaces: Of source and sink.
        source, sink: The topics.
        options: Who connects to each.
        sent: How many numbers are stored.
    """

    def __init__(
        self, spark: SparkSession, secured: SecuredBroker, folder: Path
    ) -> None:
        self._spark = spark
        self._secured = secured
        self._folder = folder
        self.sent = 0
        self.namespaces: dict[str, str] = {}
        self.options: dict[str, dict[str, str]] = {}
        for role, actions in ACTIONS.items():
            namespace = f"public/{role}-{uuid.uuid4().hex[:8]}"
            self.namespaces[role] = namespace
            secured.admin.create_namespace(namespace, keep=True)
            self.allow(role, *actions)
            (folder / role).write_text(secured.signer.token(role))
            self.options[role] = {PLUGIN: "token", PARAMS: f"file:{folder / role}"}
        self.source, self.sink = (
            f"persistent://{namespace}/rows" for namespace in self.namespaces.values()
        )
        for topic in (self.source, self.sink):
            secured.admin.create_topic(topic)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def allow(self, role: str, *actions: str) -> None:
        """Let a role do this in its namespace, and nothing else."""
        admin, namespace = self._secured.admin, self.namespaces[role]
        admin.grant(namespace, "writer", "produce")
        admin.grant(namespace, "reader", "consume")
        admin.grant(namespace, role, *actions)

    def __enter__(self) -> Copy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        join(self._thread, "the feeder")

    def _feed(self) -> None:
        while not self._over.wait(0.4):
            more = range(self.sent, self.sent + 50)
            publish(self._secured, self.source, [str(number) for number in more])
            self.sent = more.stop

    @contextlib.contextmanager
    def run(self, guarantee: str = "exactly-once") -> Iterator[StreamingQuery]:
        """Start it, or go on with it."""
        url = {"service.url": self._secured.service_url}
        query = (
            self._spark.readStream.format("pulsar")
            .options(topic=self.source, startingOffsets="earliest", **url)
            .options(**self.options["source"])
            .load()
            .select("value")
            .writeStream.format("pulsar")
            .options(topic=self.sink, deliveryGuarantee=guarantee, **url)
            .options(**self.options["sink"])
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .start()
        )
        try:
            yield query
        finally:
            query.stop()

    def written(self) -> Counter[int]:
        """The numbers in the sink."""
        return Counter(map(int, values_in(self._secured, self.sink)))

    def await_rows(self, query: StreamingQuery) -> None:
        """Wait until it copies what is sent now."""
        sent = self.sent

        def has_come() -> bool:
            assert query.isActive, query.exception()
            return self.sent > sent + 100 and len(self.written()) > sent

        await_true(has_come, "rows", pause=0.5)

    def await_end(self, query: StreamingQuery) -> str:
        """Return what it ends with, within the time it has for that."""
        await_true(lambda: not query.isActive, "the end of the query", DEADLINE_S)
        return str(query.exception())

    def finish(self) -> None:
        """Go on with it, and see that each number is there once."""
        with self.run() as query:
            self.await_rows(query)
            self.__exit__()
            query.processAllAvailable()
        assert self.written() == Counter(range(self.sent))


def own_topic(secured: SecuredBroker, role: str, rows: int) -> tuple[str, list[str]]:
    """A topic with numbers that a role may read, and the numbers."""
    namespace = f"public/own-{uuid.uuid4().hex[:8]}"
    secured.admin.create_namespace(namespace, keep=True)
    secured.admin.grant(namespace, "writer", "produce")
    secured.admin.grant(namespace, "reader", "consume")
    topic = f"persistent://{namespace}/rows"
    secured.admin.create_topic(topic)
    secured.admin.grant(topic, role, "consume")
    values = [str(number) for number in range(rows)]
    publish(secured, topic, values)
    return topic, values


@pytest.mark.parametrize(
    ("role", "left", "action"),
    [
        ("source", ["produce"], "the action consume"),
        pytest.param(
            *("sink", ["consume"], "the action produce"), marks=pytest.mark.matrix
        ),
        pytest.param(
            *("sink", [], "both consume and produce"), marks=pytest.mark.matrix
        ),
    ],
)
def test_a_permission_is_taken_away_and_given_back(
    secured: SecuredBroker,
    spark: SparkSession,
    tmp_path: Path,
    role: str,
    left: list[str],
    action: str,
) -> None:
    """Brokers let go of who may not stay; the error has role, topic and command."""
    with Copy(spark, secured, tmp_path) as copy:
        namespace = copy.namespaces[role]
        with copy.run() as query:
            copy.await_rows(query)
            copy.allow(role, *left)
            text = copy.await_end(query)
        assert "PULSAR_AUTH" in text
        # Of the sink, it may be the log of its commits.
        what = f"The role '{role}' lacks {action} on the topic persistent://{namespace}"
        assert what in text
        command = f"namespaces grant-permission {namespace} --role {role} --actions"
        assert f"`pulsar-admin {command}" in text
        before = copy.written()
        assert set(before.values()) == {1}
        copy.allow(role, *ACTIONS[role])
        copy.finish()
        assert before <= copy.written()


def test_a_task_that_reads_loses_its_permission(secured: SecuredBroker) -> None:
    """In the middle of a topic: what came is what there was, and no row twice."""
    topic, values = own_topic(secured, "source", 3000)
    found: list[str] = []

    def read_on() -> None:
        place = f"token:{secured.signer.token('source')}"
        reader = slow_reader(secured.service_url, topic, place)
        (part,) = reader.partitions()
        for batch in reader.read(part):
            if not found:
                secured.admin.grant(topic, "source", "produce")
            found.extend((row.value or b"").decode() for row in reading.to_rows(batch))

    with pytest.raises(AuthError, match="'source' lacks the action consume") as caught:
        read_on()
    assert not caught.value.retriable
    assert 0 < len(found) < len(values)
    assert found == values[: len(found)]
    secured.admin.grant(topic, "source", "consume")
    await_true(lambda: is_allowed(secured, topic, "source"), "the permission")


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_task_that_writes_loses_its_permission(
    secured: SecuredBroker, guarantee: str
) -> None:
    """In the middle of its rows: it sends no more, and none of them twice."""
    topic, _ = own_topic(secured, "sink", 0)
    secured.admin.grant(topic, "sink", "produce", "consume")
    admin = secured.admin

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, 3000, 100):
            yield table({"value": [str(first + n) for n in range(100)]})
            if first == 1000:
                await_true(lambda: bool(admin.stats(topic)["publishers"]), "a producer")
                admin.grant(topic, "sink", "consume")
                await_true(
                    lambda: not admin.stats(topic)["publishers"], "its producers' end"
                )

    options = {**token(secured, "sink"), "deliveryGuarantee": guarantee}
    with pytest.raises(AuthError) as caught:
        write(secured.service_url, topic, batches(), **options)
    assert f"'sink' lacks the action produce on the topic {topic}." in str(caught.value)
    assert not caught.value.retriable
    stored = values_in(secured, topic)
    assert stored == [str(number) for number in range(len(stored))]
    assert len(stored) <= 1100


def test_a_token_of_another_role(secured: SecuredBroker, tmp_path: Path) -> None:
    """A broker lets nobody become another one on a connection: the read has a new one.

    It goes on where it was, by what the new role may do.
    """
    topic, values = own_topic(secured, "source", 3000)
    secured.admin.grant(topic, "other", "consume")
    path, new = tmp_path / "token", tmp_path / "new"
    path.write_text(secured.signer.token("source", LIFE_S))
    reader = slow_reader(secured.service_url, topic, f"file:{path}")
    (part,) = reader.partitions()
    connection = shared_pool(reader._source.options.client).service()
    found: list[str] = []
    for batch in reader.read(part):
        if not found:
            new.write_text(secured.signer.token("other"))
            new.replace(path)
            await_true(lambda: not connection.is_open, "the end of the connection")
        found += [(row.value or b"").decode() for row in reading.to_rows(batch)]
    assert found == values


@pytest.mark.parametrize(
    "role", ["source", pytest.param("sink", marks=pytest.mark.matrix)]
)
def test_a_token_expires_and_is_renewed_too_late(
    secured: SecuredBroker, spark: SparkSession, tmp_path: Path, role: str
) -> None:
    """The error says whose token has expired, when and where; it never shows it."""
    copy = Copy(spark, secured, tmp_path)
    file = RenewedFile(tmp_path / role, secured.signer, role, LIFE_S)
    with file, copy:
        with copy.run() as query:
            copy.await_rows(query)
            file.rest()
            token = file.path.read_text()
            text = copy.await_end(query)
        assert "PULSAR_AUTH" in text
        assert f"The token of the role '{role}' in the file {file.path} on " in text
        assert " expired at 20" in text
        assert token not in text
        assert token.rpartition(".")[2] not in text
        assert set(copy.written().values()) == {1}
        file.resume()
        copy.finish()
