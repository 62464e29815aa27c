# SPDX-License-Identifier: Apache-2.0
"""What is said of a producer that a broker refuses, and whether it is tried again."""

from __future__ import annotations

import pytest

from pulsar_spark.client.producing.refusals import explained
from pulsar_spark.errors import BrokerError


@pytest.mark.parametrize(
    ("code", "sentence", "said", "is_final"),
    [
        ("MetadataError", "Encryption is required in t", "set `encryption.keys`", True),
        ("MetadataError", "Messages must be encrypted", "set `encryption.keys`", True),
        (
            "NotAllowedError",
            "Exceed maximum message size",
            "set `pulsar.producer.batchingMaxBytes` to half",
            True,
        ),
        ("UnknownError", "org.apache.avro.AvroTypeException: a", "Exception: a", True),
        ("ProducerBusy", "Producer with name 'n' is there", "name 'n' is held", False),
        (
            "ProducerBusy",
            "Topic has an existing exclusive producer: x",
            "end the other one, or wait for it by WaitForExclusive",
            False,
        ),
        (
            "ProducerBusy",
            "Topic 't' reached max producers limit",
            "limit. Raise `maxProducersPerTopic`",
            False,
        ),
        (
            "ProducerBusy",
            "Topic 't' reached max same address producers limit",
            "Raise `maxProducersPerTopic`",
            False,
        ),
        ("TopicTerminatedError", "It ended", "write to another topic", True),
        (
            "ProducerBlockedQuotaExceededException",
            "Full",
            "have reached the backlog quota",
            True,
        ),
    ],
)
def test_what_helps(code: str, sentence: str, said: str, is_final: bool) -> None:
    """The broker's words, and what to do; for good, or as a task is patient."""
    error = BrokerError(f"{sentence}.", code=code, server_message=sentence)
    found = explained(error, "n")
    assert found.message.startswith(sentence)
    assert said in found.message
    assert found.retriable is not is_final
    assert found.code == code


def test_what_nobody_can_explain() -> None:
    """Stays as it is."""
    error = BrokerError("because", code="NotAllowedError", broker="b")
    assert explained(error, "n") is error
