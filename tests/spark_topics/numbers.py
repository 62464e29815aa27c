# SPDX-License-Identifier: Apache-2.0
"""A third messaging system, as small as can be: what it hands in to what is shared."""

from __future__ import annotations

from spark_topics import errors
from spark_topics.source.stream.checkpoint import (
    OffsetForm,
    PartitionNames,
    StreamOffset,
)
from spark_topics.system import System


class NumbersError(errors.TopicsError):
    """Root of its errors."""

    condition = "NUMBERS"


class OptionError(NumbersError, errors.OptionError):
    """Options that cannot work."""

    condition = "NUMBERS_OPTION"


class SchemaError(NumbersError, errors.SchemaError):
    """Columns that it does not have."""

    condition = "NUMBERS_SCHEMA"


class CheckpointError(NumbersError, errors.CheckpointError):
    """Offsets that are not its own."""

    condition = "NUMBERS_CHECKPOINT"


class DataLossError(NumbersError, errors.DataLossError):
    """Rows that are gone."""

    condition = "NUMBERS_DATA_LOSS"


class TransportError(NumbersError, errors.TransportError):
    """Nobody is there."""

    condition = "NUMBERS_CONNECTION"


class TlsError(TransportError, errors.TlsError):
    """Nobody who can be trusted is there."""

    condition = "NUMBERS_TLS"


NUMBERS = System(
    name="Numbers",
    distribution="numbers-spark",
    package="numbers_spark",
    option_error=OptionError,
    schema_error=SchemaError,
    checkpoint_error=CheckpointError,
    data_loss_error=DataLossError,
    transport_error=TransportError,
    tls_error=TlsError,
)


class Offset(int):
    """The number of the entry that was read last."""

    def next(self) -> int:
        """The first one to read."""
        return self + 1


def split(name: str) -> tuple[str, str | None]:
    """Return topic and partition of ``topic/partition``."""
    topic, slash, partition = name.partition("/")
    return topic, partition if slash else None


def join(topic: str, partition: str | None) -> str:
    """Return the name of a topic partition."""
    return topic if partition is None else f"{topic}/{partition}"


NAMES = PartitionNames(split, join)


class NumberOffset(StreamOffset[Offset]):
    """How far numbers have been read."""

    form = OffsetForm(NUMBERS, NAMES, Offset)
