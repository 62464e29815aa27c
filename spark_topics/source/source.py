# SPDX-License-Identifier: Apache-2.0
"""What Spark's readers require of a messaging system."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_topics.source.stream.batch_ends import StreamLimits
    from spark_topics.source.stream.planner import StreamPlanner

#: What a task reads; travels to executors.
R = TypeVar("R")


class Source(Protocol[R]):
    """The topics that a query's options name. Travels to executors."""

    @property
    def limits(self) -> StreamLimits:
        """Return the limits of a stream's micro-batches."""

    @property
    def must_stop(self) -> bool:
        """Return whether a stream leaves traces without ``StreamPlanner.stop``."""

    def plan(self) -> Sequence[R]:
        """Return what the tasks of a batch read are to read. On the driver.

        Raises:
            TopicsError: Options do not fit the topics, rows are gone, or the
                cluster does not answer, or refuses.
        """

    def plan_stream(self) -> StreamPlanner[Any, Any, R]:
        """Return what plans the micro-batches of a stream. On the driver."""

    def read(
        self, task: R | None, schema: pa.Schema, *, streaming: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, in order. On an executor.

        Args:
            task: One of those planned; None for the task of an empty plan.
            schema: The columns wanted.
            streaming: Whether it is one of a stream.

        Raises:
            TopicsError: Rows are gone or damaged, or the cluster does not answer,
                or refuses.
        """
