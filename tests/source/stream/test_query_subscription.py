# SPDX-License-Identifier: Apache-2.0
"""What streams over a scripted broker leave there."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_spark.errors import (
    AuthError,
)
from tests.source.stream.queries import (
    P0,
    P1,
    all_rows,
)
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    refuse,
    single,
)

pytestmark = pytest.mark.usefixtures("short_waits")


class TestStop:
    def test_the_subscription_stays(self, two: ScriptedBroker, queries: Any) -> None:
        """Without a consumer; a second stop does nothing."""
        query = queries()
        query.drain()
        query.planner.stop()
        query.planner.stop()
        assert two.consumers == []
        assert [len(two.durable(name)) for name in (P0, P1)] == [1, 1]

    def test_it_is_deleted_if_that_is_wanted(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """Of all topic partitions."""
        query = queries(deleteSubscriptionOnStop="true")
        query.drain()
        query.planner.stop()
        assert two.subscriptions == {}

    def test_it_is_deleted_by_a_restart_that_cannot_plan(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """It was made by the run before, which was killed; others' stay."""
        query = queries(deleteSubscriptionOnStop="true")
        query.drain()
        query.kill()
        two.script("PARTITIONED_METADATA", refuse("AuthorizationError"))
        with pytest.raises(AuthError):
            query.trigger()
        query.planner.stop()
        assert two.subscriptions == {}

    def test_it_stays_where_the_options_no_longer_name_the_topic(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """Whoever reads the others leaves it alone, also when it is deleted there."""
        query = queries(deleteSubscriptionOnStop="true", failOnDataLoss="false")
        query.drain()
        query.kill()
        query.options["topic"] = P0
        query.trigger()
        query.planner.stop()
        assert [len(two.durable(name)) for name in (P0, P1)] == [0, 1]

    def test_it_stays_where_the_pattern_no_longer_matches(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """The same by `topicsPattern`."""
        names = [f"persistent://public/default/{letter}" for letter in "abc"]
        for name in names:
            scripted.add_topic(name, [single(b"a")])
        query = queries(deleteSubscriptionOnStop="true", failOnDataLoss="false")
        del query.options["topic"]
        query.options["topicsPattern"] = "public/default/[ab]"
        query.drain()
        assert all_rows(query) == [(name, LEDGER, 0, 0) for name in names[:2]]
        query.kill()
        query.options["topicsPattern"] = "public/default/[ac]"
        query.trigger()
        query.planner.stop()
        assert [len(scripted.durable(name)) for name in names] == [0, 1, 0]

    def test_before_anything_was_asked(self, two: ScriptedBroker, queries: Any) -> None:
        """There is nothing to let go of."""
        queries().planner.stop()
        assert two.connections == 0
