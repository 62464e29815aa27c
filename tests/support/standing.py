# SPDX-License-Identifier: Apache-2.0
"""The driver's commit of an exactly-once stream stands still where a test wants.

The commit runs in a Python process that Spark starts, so this comes into it by way of
``site/sitecustomize.py``. Places are named ``<when> <what>:<micro-batch>``::

    before prepared:3     the decision is not in the log
    after prepared:3      it is
    after first end:3     one of its transactions is committed
    after ends:3          all of them are
    before committed:3    and what lost is aborted
    after committed:3     the log says so
    after forgotten:3     and is shortened
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import ModuleType
from typing import Any

#: Holds ``<place>@<file>``: the file is made when the commit has come to the place, and
#: lets it go on when it is removed.
STAND = "PULSAR_SPARK_TEST_STAND"

#: Goes into PYTHONPATH.
SITE = Path(__file__).parent / "site"


def install(exactly_once: ModuleType) -> None:
    """Makes the commit of this process stand where it should."""
    from pulsar_spark.client.transactions import TransactionClient
    from pulsar_spark.message_id import MessageId
    from pulsar_spark.sink.journal import Journal
    from pulsar_spark.wire.commands import TxnAction

    place, _, file = os.environ[STAND].partition("@")
    deciding = -1

    def pass_by(what: str) -> None:
        if f"{what}:{deciding}" == place:
            Path(file).touch()
            while Path(file).exists():
                time.sleep(0.02)

    class StandingJournal(Journal):
        """Stands before or after a record."""

        def append(self, message: bytes) -> MessageId | None:
            """As the real one."""
            nonlocal deciding
            fields: Any = json.loads(message)
            kind = "committed"
            if "prepared" in fields:
                kind, deciding = "prepared", fields["prepared"]
            elif "committed" not in fields:
                return super().append(message)
            pass_by(f"before {kind}")
            message_id = super().append(message)
            pass_by(f"after {kind}")
            return message_id

        def forget(self, last: Any) -> None:
            """As the real one."""
            super().forget(last)
            pass_by("after forgotten")

    class StandingClient(TransactionClient):
        """Stands between transactions that are committed."""

        def end(self, txns: Any, action: Any) -> Any:
            """As the real one."""
            if action is not TxnAction.COMMIT:
                return super().end(txns, action)
            first, *others = txns
            outcomes = super().end([first], action)
            pass_by("after first end")
            outcomes |= super().end(others, action)
            pass_by("after ends")
            return outcomes

    vars(exactly_once).update(Journal=StandingJournal, TransactionClient=StandingClient)
