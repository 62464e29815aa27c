# SPDX-License-Identifier: Apache-2.0
"""Checksums of stored bytes: CRC-32 without the highest bit.

Source: InLong 2.4, CheckSum.
"""

from __future__ import annotations

from tubemq_spark.loops.messages import CHECKSUM_MASK

try:  # the extra `tubemq`: by the processor's own instructions, in a tenth of the time
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["checksum", "crc32"]


def checksum(data: bytes) -> int:
    """Return the checksum of stored bytes."""
    return crc32(data) & CHECKSUM_MASK
