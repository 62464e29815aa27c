# SPDX-License-Identifier: Apache-2.0
"""What to do about a broker's refusal of a producer or an entry.

The codes are those of Pulsar 4.0.7.
"""

from __future__ import annotations

from pulsar_spark.errors import BrokerError
from pulsar_spark.wire.refusals import (
    demands_encryption,
    exceeds_limit_of_topic,
    has_broken_schema,
    has_exclusive_producer,
    has_too_many_producers,
)

#: The code for an entry that arrived damaged. Attaching again may cure it, although the
#: code is a final one: the bytes we keep are right.
DAMAGED = "ChecksumError"
#: The code for a topic that has ended, or whose cluster is just being migrated.
TERMINATED = "TopicTerminatedError"

#: Another producer holds the name, or has the topic to itself: its sentence tells.
_BUSY = "ProducerBusy"

#: Another producer has exclusive access, or exclusive access was refused because others
#: are attached.
_FENCED = "ProducerFenced"

_QUOTA = (
    "The rows that its subscriptions have not acknowledged have reached the backlog "
    "quota: let these catch up, or raise the quota."
)

_ENCRYPTION = (
    "It takes encrypted messages only: set `encryption.keys` and "
    "`encryption.publicKeys`. The log of an exactly-once stream is never encrypted: "
    "let `commitTopic` name a topic of a namespace that does not demand it."
)

_LIMIT_OF_TOPIC = (
    "The topic has a limit of its own (`maxMessageSize`), which holds for a batch of "
    "rows, too, with its metadata. Where each row fits, set "
    "`pulsar.producer.batchingMaxBytes` to half of that limit; where rows are longer, "
    "set `pulsar.producer.chunkingEnabled` to true and "
    "`pulsar.producer.chunkMaxMessageSize` to less than the limit."
)

#: What to do about a refusal, by its code.
_CURES = {
    _FENCED: (
        "Only one producer at a time writes to a topic partition unless all of them "
        "set `pulsar.producer.accessMode` to Shared: end the other one, or wait for it "
        "by WaitForExclusive; and let a single task write."
    ),
    "TopicTerminatedError": "It takes no more rows, ever: write to another topic.",
    "ProducerBlockedQuotaExceededError": _QUOTA,
    "ProducerBlockedQuotaExceededException": _QUOTA,
}


def explained(error: BrokerError, name: str) -> BrokerError:
    """Return the error with its cure, if known.

    Args:
        error: A broker's refusal.
        name: The producer's.
    """
    if has_broken_schema(error):
        return error.saying(error.message, retriable=False)
    if demands_encryption(error):
        return error.saying(
            f"{error.message.rstrip('. ')}. {_ENCRYPTION}", retriable=False
        )
    if exceeds_limit_of_topic(error):
        return error.saying(f"{error.message.rstrip('. ')}. {_LIMIT_OF_TOPIC}")
    cure = _CURES.get(error.code)
    if has_exclusive_producer(error):
        cure = _CURES[_FENCED]
    elif has_too_many_producers(error):
        cure = (
            "Raise `maxProducersPerTopic`, or let fewer tasks write at a time: each is "
            "a producer, also where an exactly-once stream keeps its log."
        )
    elif error.code == _BUSY:
        cure = (
            f"The name {name!r} is held by another producer of this topic. Leave "
            "`spark.speculation` off: a copy of a task has the same name. Or end the "
            "other job that uses the name, or choose another `idempotenceId` or "
            "`pulsar.producer.producerName`. A name of your own serves one task at a "
            "time."
        )
    if cure is None:
        return error
    # A name, or a topic, may come free before the task's patience ends.
    return error.saying(
        f"{error.message.rstrip('. ')}. {cure}",
        retriable=error.retriable or error.code == _BUSY,
    )
