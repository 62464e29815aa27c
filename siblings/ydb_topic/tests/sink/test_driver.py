# SPDX-License-Identifier: Apache-2.0
"""What the driver says of a write."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from siblings.ydb_topic.tests.sink.tables import OPTIONS, bodies, table
from siblings.ydb_topic.tests.support.faults import At, Fault, When
from siblings.ydb_topic.tests.support.service import TopicService
from spark_topics.sink.write import Task
from ydb_spark.errors import DataLossError, OptionError
from ydb_spark.options.connection import ConnectionOptions
from ydb_spark.options.write import DeliveryGuarantee
from ydb_spark.sink.driver import BatchWrite, StreamWrite


@pytest.fixture
def options(connection: ConnectionOptions) -> Any:
    """Options of an idempotent write, with lines on how it goes."""
    return replace(
        OPTIONS,
        connection=connection,
        guarantee=DeliveryGuarantee.IDEMPOTENT,
        stats_interval_s=60.0,
    )


def run(write: StreamWrite | BatchWrite, batch_id: int, rows: int) -> Any:
    """Write rows as task 0 does."""
    task = Task(0, batch_id=batch_id, query_id="query")
    return write.run(task, iter([table(bodies(rows))]))


def test_answers_are_counted_and_shown(
    service: TopicService, options: Any, caplog: pytest.LogCaptureFixture
):
    """What was written, skipped and written in a transaction, each by itself."""
    caplog.set_level(logging.INFO, "ydb_spark")
    write = StreamWrite(options)
    service.faults.add(Fault(At.WRITE, When.AFTER, status=400080))
    with pytest.raises(Exception, match="GENERIC_ERROR"):
        run(write, 7, 30)
    result = run(write, 7, 50)
    write.commit([result], 1, 7)
    lines = [record.getMessage() for record in caplog.records]
    (line,) = [line for line in lines if line.startswith("micro-batch 7:")]
    assert "50 rows" in line
    assert "20 written, 30 skipped, 0 written in a transaction" in line
    assert "quotas held them back for" in line


def test_topic_that_was_made_anew_between_tasks(service: TopicService, options: Any):
    """What the first one wrote is gone, which none of them can know."""
    for write in (BatchWrite(options), StreamWrite(options)):
        results = [run(write, 0, 10)]
        service.store.create("t")
        results.append(run(write, 0, 10))
        empty = run(write, 0, 0)
        more = (2, 0) if isinstance(write, StreamWrite) else ()
        with pytest.raises(DataLossError, match="t was dropped and made anew"):
            write.commit([*results, empty], *more)
        write.commit([results[1], empty], *more)


def test_batch_of_a_name(service: TopicService, options: Any):
    """A job that runs again under its id stores nothing again; without one it does."""
    named = replace(options, idempotence_id="job")
    for _ in range(2):
        assert run(BatchWrite(named), 0, 10).written.rows == 10
    assert len(service.store.stored("t")) == 10
    run(BatchWrite(options), 0, 10)
    assert len(service.store.stored("t")) == 20


def test_rows_that_a_first_attempt_skips(
    service: TopicService, options: Any, caplog: pytest.LogCaptureFixture
):
    """They may be others than those that the server has, which is for a user to say."""
    write = StreamWrite(options)
    for rows, attempt, is_said in ((3, 0, False), (5, 1, False), (5, 0, True)):
        caplog.clear()
        task = Task(0, attempt=attempt, batch_id=7, query_id="query")
        result = write.run(task, iter([table(bodies(rows))]))
        write.commit([result], 1, 7)
        said = "First attempts of the tasks of micro-batch 7 skipped 5 rows"
        assert (said in caplog.text) == is_said


def test_a_micro_batch_whose_number_is_not_told(
    service: TopicService, options: Any
) -> None:
    """A batch write with an id of the user's: by the id alone it would be a repeat."""
    unnumbered = Task(0, lacks_batch_id=True)
    rows = [table(bodies(3))]
    with pytest.raises(OptionError, match=r"foreachBatch.*job-\{batch_id\}"):
        BatchWrite(replace(options, idempotence_id="job")).run(unnumbered, iter(rows))
    for id_, task in [
        (None, unnumbered),
        ("job-1", unnumbered),
        ("job-2", unnumbered),
        ("job", Task(0)),
    ]:
        write = BatchWrite(replace(options, idempotence_id=id_))
        assert write.run(task, iter(rows)).written.written == 3
