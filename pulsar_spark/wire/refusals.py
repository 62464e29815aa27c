# SPDX-License-Identifier: Apache-2.0
"""Refusals that share a code, told apart by the broker's sentence.

Several reasons share a code, and only the broker's sentence tells them apart. Each
predicate means one sentence, which is quoted with the version it was seen on.
"""

from __future__ import annotations

from pulsar_spark.errors import BrokerError


def has_durable_namesake(answer: object) -> bool:
    """Return whether SUBSCRIBE failed because a durable subscription has the name.

    4.0.7 answers SUBSCRIBE of one that is not durable by NotAllowedError: "Durable
    subscription with the same name already exists." In the opposite case the sentence
    begins with "NonDurable".

    Args:
        answer: To SUBSCRIBE: a reply or an error.
    """
    return _sentence(answer, "NotAllowedError").startswith("Durable")


def lacks_ledgers(answer: object) -> bool:
    """Return whether the answer to SUBSCRIBE is that of a topic without any ledger.

    Such a topic has no row, and was terminated before a broker loaded it again. Brokers
    of 2.10.5, 4.0.7 and 5.0.0-M1 refuse who subscribes at its beginning, and give no
    reason. They do not answer any more to the name of a durable subscription that was
    refused so.

    Args:
        answer: To SUBSCRIBE: a reply or an error.
    """
    return (
        isinstance(answer, BrokerError)
        and answer.code == "UnknownError"
        and not answer.server_message
    )


def has_passing_namesake(answer: object) -> bool:
    """Return whether SUBSCRIBE failed because a non-durable one has the name.

    4.0.7 answers SUBSCRIBE of a durable one by NotAllowedError: "NonDurable
    subscription with the same name already exists." It goes with its consumer.

    Args:
        answer: To SUBSCRIBE: a reply or an error.
    """
    return (
        isinstance(answer, BrokerError)
        and answer.code == "NotAllowedError"
        and answer.server_message.startswith("NonDurable")
    )


def is_of_another_type(answer: object) -> bool:
    """Return whether the subscription has consumers of another type.

    4.0.7 answers SUBSCRIBE by ConsumerBusy: "Subscription is of different type".
    Another consumer that has the subscription to itself has the same code.

    Args:
        answer: To SUBSCRIBE: a reply or an error.
    """
    return "different type" in _sentence(answer, "ConsumerBusy")


def is_of_ended_transaction(answer: object) -> bool:
    """Return whether an entry was refused because its transaction is over.

    5.0.0-M1 answers SEND to a segment by NotAllowedError: "Transaction (0,4) is already
    ABORTED — TxnConflict".

    Args:
        answer: To SEND.
    """
    return "TxnConflict" in _sentence(answer, "NotAllowedError")


def demands_encryption(answer: object) -> bool:
    """Return whether an unencrypted producer or entry was refused.

    4.0.7 answers by MetadataError: PRODUCER by "Encryption is required in TOPIC", SEND
    by "Messages must be encrypted".

    Args:
        answer: To PRODUCER or SEND: a reply or an error.
    """
    sentence = _sentence(answer, "MetadataError")
    return sentence.startswith(("Encryption is required", "Messages must be encrypted"))


def exceeds_limit_of_topic(answer: object) -> bool:
    """Return whether an entry is longer than the topic's own limit.

    4.0.7 answers SEND by NotAllowedError: "Exceed maximum message size". Only the
    policy ``maxMessageSize`` of a topic does that: the broker's own limit is in
    CONNECTED.

    Args:
        answer: To SEND: an error.
    """
    return "maximum message size" in _sentence(answer, "NotAllowedError")


def has_too_many_consumers(sentence: str) -> bool:
    """Return whether a policy limits the consumers of the topic.

    4.0.7 answers SUBSCRIBE by ConsumerBusy: "Topic reached max consumers limit", or
    "Subscription reached max consumers limit".

    Args:
        sentence: The broker's.
    """
    return "max consumers limit" in sentence


def has_too_many_producers(answer: object) -> bool:
    """Return whether a policy limits the producers of the topic.

    Brokers answer PRODUCER by ProducerBusy: "Topic TOPIC reached max producers limit",
    or "max same address producers limit".

    Args:
        answer: To PRODUCER: a reply or an error.
    """
    return _sentence(answer, "ProducerBusy").endswith("producers limit")


def has_exclusive_producer(answer: object) -> bool:
    """Return whether another producer has exclusive access to the topic.

    4.0.7 answers PRODUCER by ProducerBusy: "Topic has an existing exclusive producer:
    NAME". Another producer that has the same name has the same code.

    Args:
        answer: To PRODUCER: a reply or an error.
    """
    return "exclusive producer" in _sentence(answer, "ProducerBusy")


def has_broken_schema(answer: object) -> bool:
    """Return whether a broker cannot make out the schemas of a topic, now or ever.

    4.0.7 answers PRODUCER by UnknownError, with the name of an exception of AVRO's:
    "org.apache.avro.AvroTypeException: Invalid default for field a", of a schema that
    is registered already, or "org.apache.avro.SchemaParseException: ...".

    Args:
        answer: To PRODUCER: a reply or an error.
    """
    sentence = _sentence(answer, "UnknownError")
    return "org.apache.avro" in sentence or "SchemaParseException" in sentence


def lacks_schema(answer: object) -> bool:
    """Return whether a topic or namespace refuses producers without a schema.

    4.0.7 answers PRODUCER by IncompatibleSchema: "Producers cannot connect or send
    message without a schema to topics with a schemawhen SchemaValidationEnforced is
    enabled".

    Args:
        answer: To PRODUCER: a reply or an error.
    """
    return "without a schema" in _sentence(answer, "IncompatibleSchema")


def _sentence(answer: object, code: str) -> str:
    """Return the broker's sentence of a refusal with this code, else ""."""
    if isinstance(answer, BrokerError) and answer.code == code:
        return answer.server_message
    return ""
