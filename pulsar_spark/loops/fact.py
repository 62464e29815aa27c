# SPDX-License-Identifier: Apache-2.0
"""The facts of an entry that arrived with others: the columns of ``Deliveries.facts``.

These are the columns of that table. ``fact.pxd`` has the same for C, where they must be
known when the loops are compiled; a test compares the two.
"""

from __future__ import annotations

#: How many numbers there are of an entry, all from 0 on but where it says otherwise.
#: Places are in ``Deliveries.data``.
PER_ENTRY = 27

(
    LEDGER_ID,
    ENTRY_ID,
    REDELIVERY_COUNT,
    START,  # place of what follows the command
    BROKER_METADATA,  # place of what the broker stamped on it, -1 for none
    BROKER_METADATA_END,
    CHECKSUM,
    CHECKED,  # place from which on it counts
    METADATA,  # place of the MessageMetadata
    PAYLOAD,  # place where that ends
    END,  # of the entry
    COUNT,  # of messages, 0 where it is no batch
    CODEC,
    UNPACKED_BYTES,
    PUBLISH_TIME,
    EVENT_TIME,
    SEQUENCE_ID,
    SEQUENCE_STEP,  # see MessageTable.append_batch
    KEY,  # place of the key, -1 for none
    KEY_END,
    ORDERING_KEY,  # likewise
    ORDERING_KEY_END,
    MARKS,  # KEY_IS_ENCODED, VALUE_IS_NULL
    HEAD_BYTES,  # of a single message: its metadata, were it in a batch
    SCHEMA_VERSION,  # place of the version, -1 for none
    SCHEMA_VERSION_END,
    LAST_ROW,  # filled in later: the row of a table that follows its own
) = range(PER_ENTRY)

# What MARKS says of a single message.
KEY_IS_ENCODED = 1
VALUE_IS_NULL = 2
