# SPDX-License-Identifier: Apache-2.0
"""What a coordinator has written of a transaction, from the files of the bookie.

A broker that was killed may come back with a transaction open that it had committed,
see docs/guarantees.md, "A broker that forgets". No client can tell, but the record of
the commit is still on the disk. Each change of a transaction is an entry of the
coordinator's log::

    08 03  10 <least>  18 <most>  20 <status before>  28 <status after>  ...
    update
"""

from __future__ import annotations

import re
from pathlib import Path

#: By their numbers in the protocol.
STATUSES = ("OPEN", "COMMITTING", "COMMITTED", "ABORTING", "ABORTED")
COMMITTED = "COMMITTED"

_ID = re.compile(r"\((\d+),\s*(\d+)\)")


def statuses(store: Path, txn: str) -> list[str]:
    """Return what a transaction has become, as far as the files still tell.

    Args:
        store: Folder of the bookie's files.
        txn: Its id as brokers name it, ``(<most>,<least>)``.

    Raises:
        ValueError: This is no id.
    """
    found = _ID.search(txn)
    if found is None:
        raise ValueError(f"{txn} is no id of a transaction")
    most, least = (int(part) for part in found.groups())
    change = b"\x08\x03\x10" + _varint(least) + b"\x18" + _varint(most) + b"\x20"
    pattern = re.compile(
        re.escape(change) + rb"[\x00-\x04]\x28([\x00-\x04])", re.DOTALL
    )
    numbers = {
        match[1][0]
        for file in sorted((*store.rglob("*.txn"), *store.rglob("*.log")))
        for match in pattern.finditer(file.read_bytes())
    }
    return [STATUSES[number] for number in sorted(numbers)]


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
