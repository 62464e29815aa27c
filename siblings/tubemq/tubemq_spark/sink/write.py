# SPDX-License-Identifier: Apache-2.0
"""The life of a write, from checks to end.

Rows are in the topic as soon as they are sent.
The same for a batch and a stream, see `spark_topics.sink.write`: there is nothing to
commit, and nothing that could be taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_topics.sink.write import Task
from tubemq_spark.client.brokers import shared_pool
from tubemq_spark.client.masters import Masters, Producer
from tubemq_spark.options import WriteOptions
from tubemq_spark.sink.rows import rows_of
from tubemq_spark.sink.sender import Sender, Sent
from tubemq_spark.system import SYSTEM

logger = SYSTEM.logger("spark")


@dataclass(frozen=True)
class TubeMQWrite:
    """A write. Travels to executors.

    Attributes:
        options: Where to, and how.
    """

    options: WriteOptions

    def prepare(self) -> None:
        """See that the topic can be written, before any task begins.

        Raises:
            TopicNotPublishableError: It is not open for writing.
            TubeMQError: The masters do not answer, or refuse.
        """
        if not self.options.topic:
            return
        with Masters(self.options.client) as masters:
            producer = Producer(masters, self.options.topic)
            producer.wait_for(self.options.client.operation_timeout_s)
            producer.close()

    def begin_micro_batch(self) -> None:
        """Do nothing: a micro-batch begins with its first row."""

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Sent:
        """Write the rows of a task.

        Raises:
            TubeMQError: Not all of them could be written. Some may be: a task that
                runs again writes them again.
        """
        sender = Sender(shared_pool(self.options.client), self.options, task.number)
        try:
            first = 0
            for batch in batches:
                sender.send(rows_of(batch, self.options, first))
                first += batch.num_rows
            return sender.finish()
        finally:
            sender.close()

    def commit(
        self, results: Sequence[Sent], tasks: int = 0, batch_id: int = 0
    ) -> None:
        """Log what was written."""
        logger.info(
            "wrote %d messages, %d bytes; %d were sent again",
            sum(result.messages for result in results),
            sum(result.size_bytes for result in results),
            sum(result.resent for result in results),
        )

    def abort(self, results: Sequence[Sent], batch_id: int = 0) -> None:
        """Log that what was written stays: topics only grow."""
        logger.warning(
            "a write failed; the %d messages of tasks that had finished stay, and so "
            "do some of the others",
            sum(result.messages for result in results),
        )
