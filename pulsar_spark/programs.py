# SPDX-License-Identifier: Apache-2.0
"""What programs of users take from the package besides the source and the errors.

Each process of a query imports the package and needs none of these names. So the
package imports this module when a program asks for the first of them.
"""

from __future__ import annotations

from pulsar_spark.builders import ClientOptions, ReadOptions, WriteOptions
from pulsar_spark.loops.messages import KERNEL as kernel  # noqa: N811 - as users know it
from pulsar_spark.message_id import MessageId, decode_message_id, encode_message_id
from pulsar_spark.options.offsets import dump_offsets
from pulsar_spark.source.plan.topic_ends import EndOffsets, end_offsets
from pulsar_spark.spark.functions import position_after, position_of, position_text
from pulsar_spark.spark.lag import PartitionLag, PulsarLagListener, StreamLag, lag_of
from pulsar_spark.spark.progress import progress
from pulsar_spark.spark.sessions import session, use

__all__ = [
    "ClientOptions",
    "EndOffsets",
    "MessageId",
    "PartitionLag",
    "PulsarLagListener",
    "ReadOptions",
    "StreamLag",
    "WriteOptions",
    "decode_message_id",
    "dump_offsets",
    "encode_message_id",
    "end_offsets",
    "kernel",
    "lag_of",
    "position_after",
    "position_of",
    "position_text",
    "progress",
    "session",
    "use",
]
