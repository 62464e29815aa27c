"""Whether a broker finds duplicates: it is tried out."""

from __future__ import annotations

import pytest

from pulsar_spark.client.deduplication import require_deduplication
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import BrokerError, DeduplicationOffError
from pulsar_spark.wire.commands import ProducerAccessMode
from tests.client.scripted_broker import (
    ScriptedBroker,
    cut,
    let_go,
    refuse,
    refuse_entry,
    usual,
    usual_then_cut,
)

TOPIC = "persistent://public/default/t-partition-3"


def test_a_broker_that_drops_the_second(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """One entry is left, which says that it is a marker, and that it stays here."""
    scripted.deduplicates = True
    require_deduplication(pool, TOPIC, "probe")
    (entry,) = scripted.topics[TOPIC]
    assert entry.metadata.marker_type == 99
    assert list(entry.metadata.replicate_to) == ["__local__"]
    assert entry.metadata.producer_name == "probe"
    assert entry.payload == b""
    assert not scripted.producers


def test_the_next_time_needs_no_entry(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """A broker that deduplicates remembers the name."""
    scripted.deduplicates = True
    for _ in range(3):
        require_deduplication(pool, TOPIC, "probe")
    assert scripted.requests["SEND"] == 2
    assert not scripted.producers


def test_a_broker_that_stores_both(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """The error names the topic, not the partition, and how to switch it on."""
    with pytest.raises(DeduplicationOffError) as caught:
        require_deduplication(pool, TOPIC, "probe")
    assert caught.value.topic == "persistent://public/default/t"
    assert "set-deduplication public/default --enable" in str(caught.value)
    assert not scripted.producers


@pytest.mark.parametrize(
    "fault", [cut, usual_then_cut, let_go], ids=lambda fault: fault.__name__
)
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("deduplicates", [True, False])
def test_faults_do_not_change_the_answer(
    scripted: ScriptedBroker,
    pool: ConnectionPool,
    fault: object,
    at: int,
    deduplicates: bool,
) -> None:
    """A marker that was sent again for want of a receipt is not taken for proof."""
    scripted.deduplicates = deduplicates
    scripted.script("SEND", *[usual] * at, fault)  # type: ignore[arg-type]
    if deduplicates:
        require_deduplication(pool, TOPIC, "probe")
        assert len(scripted.topics[TOPIC]) == 1
    else:
        with pytest.raises(DeduplicationOffError):
            require_deduplication(pool, TOPIC, "probe")


def test_others_who_ask_at_the_same_time(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """A name that is taken for a moment is waited for."""
    scripted.deduplicates = True
    scripted.script("PRODUCER", refuse("ProducerBusy"), refuse("ProducerBusy"))
    require_deduplication(pool, TOPIC, "probe")
    assert scripted.requests["PRODUCER"] == 3
    assert [body.producer_name for body in scripted.bodies["PRODUCER"]] == ["probe"] * 3
    assert len(scripted.topics[TOPIC]) == 1
    assert not scripted.producers


def test_a_broker_that_refuses(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """That is no answer; nothing stays attached."""
    scripted.script("SEND", refuse_entry("NotAllowedError"))
    with pytest.raises(BrokerError, match="NotAllowedError"):
        require_deduplication(pool, TOPIC, "probe")
    assert not scripted.producers


def test_it_shares_the_topic(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Whoever writes there already is left alone."""
    scripted.deduplicates = True
    require_deduplication(pool, TOPIC, "probe")
    (body,) = scripted.bodies["PRODUCER"]
    assert body.producer_access_mode == ProducerAccessMode.SHARED
