# SPDX-License-Identifier: Apache-2.0
"""Sentences of brokers that something depends on, as they were seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pulsar_spark.errors import BrokerError, TransportError
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.refusals import (
    demands_encryption,
    has_broken_schema,
    has_durable_namesake,
    has_exclusive_producer,
    has_passing_namesake,
    is_of_another_type,
    is_of_ended_transaction,
    lacks_schema,
)

if TYPE_CHECKING:
    from collections.abc import Callable

DURABLE = "Durable subscription with the same name already exists."
SHARED = "Subscription is of different type"
ENFORCED = (
    "Producers cannot connect or send message without a schema to topics with a "
    "schemawhen SchemaValidationEnforced is enabled"
)
EXCLUSIVE = "Topic has an existing exclusive producer: a-1"


def refusal(code: str, sentence: str) -> BrokerError:
    """What a broker says, in an error with a text of ours."""
    return BrokerError("The broker said no.", code=code, server_message=sentence)


@pytest.mark.parametrize(
    ("predicate", "code", "sentence"),
    [
        (has_durable_namesake, "NotAllowedError", DURABLE),
        (has_passing_namesake, "NotAllowedError", f"Non{DURABLE}"),
        (is_of_another_type, "ConsumerBusy", SHARED),
        (has_exclusive_producer, "ProducerBusy", EXCLUSIVE),
        (lacks_schema, "IncompatibleSchema", ENFORCED),
        (demands_encryption, "MetadataError", "Encryption is required in a/b/c"),
        (demands_encryption, "MetadataError", "Messages must be encrypted"),
        (
            is_of_ended_transaction,
            "NotAllowedError",
            "Transaction (0,4) is already ABORTED — TxnConflict",
        ),
    ],
)
def test_each_knows_its_own(
    predicate: Callable[[object], bool], code: str, sentence: str
) -> None:
    """The code and the sentence together, and nothing else."""
    error = refusal(code, sentence)
    assert predicate(error)
    assert predicate(error.about("persistent://public/default/t"))
    assert not predicate(refusal("UnknownError", sentence))
    assert not predicate(refusal(code, "something else"))
    assert not predicate(TransportError(sentence))
    assert not predicate(pb.CommandSuccess(request_id=1))


def test_a_namesake_that_is_not_durable() -> None:
    """Its sentence is nearly the same."""
    sentence = f"Non{DURABLE}"
    assert not has_durable_namesake(refusal("NotAllowedError", sentence))
    assert not has_passing_namesake(refusal("NotAllowedError", DURABLE))


def test_schemas_that_brokers_cannot_make_out() -> None:
    """Their code stands for anything; the name of an exception tells."""
    sentence = "org.apache.avro.AvroTypeException: Invalid default for field a"
    assert has_broken_schema(refusal("UnknownError", sentence))
    parsing = "SchemaParseException: Type not supported: object"
    assert has_broken_schema(refusal("UnknownError", parsing))
    assert not has_broken_schema(refusal("UnknownError", "the topic moves"))
    assert not has_broken_schema(refusal("IncompatibleSchema", sentence))
