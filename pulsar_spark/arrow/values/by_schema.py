# SPDX-License-Identifier: Apache-2.0
"""Values by the schema that each was written with, as columns of the query's schema.

A message names its schema by a version of its topic. Nothing else is ever taken for it:
neither the latest one nor the query's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.values import (
    Decoded,
    ValueRun,
    ValueSettings,
    VersionDecoder,
    kinds,
)
from pulsar_spark.arrow.values.added import MAX_ROW_BYTES, Added, added, item_width
from pulsar_spark.arrow.values.together import completed
from pulsar_spark.schemas.info import (
    InvalidSchemaError,
    SchemaInfo,
    version_number,
)
from pulsar_spark.schemas.key_value import parse_key_value

#: After so many versions that the cluster does not know, no others are asked for: a
#: producer may make one up for each message.
_MOST_UNKNOWN = 100

#: Returns the schema of a version, of 8 bytes; None where there is none.
Fetch = Callable[[bytes], SchemaInfo | None]


class SchemaDecoder:
    """Makes the columns of a topic's values.

    Each version is asked for once. Messages whose schema is not known, or cannot be
    read as the query's, are bad.

    Args:
        reader: The topic's schema in the query.
        wanted: The columns of values that the query has. Those that the topic does not
            have are NULL.
        settings: How to decode.
        fetch: Asks for the schema of a version.
    """

    by_version = True

    def __init__(
        self,
        reader: SchemaInfo,
        wanted: pa.Schema,
        settings: ValueSettings,
        fetch: Fetch,
    ) -> None:
        self.columns = tuple(wanted.names)
        self.needs_keys = kinds.needs_keys(reader, wanted)
        self._reader = reader
        self._wanted = wanted
        self._own = kinds.own_columns(reader, wanted)
        self._settings = settings
        self._fetch = fetch
        # By version: a decoder, or what is wrong with its messages.
        self._decoders: dict[bytes, VersionDecoder | str] = {}
        self._unknown = 0
        self._added = Added()
        self._has_keys = False
        with contextlib.suppress(InvalidSchemaError):  # each version says what is wrong
            self._has_keys = self.needs_keys and parse_key_value(reader).is_separated
            self._added = added(reader, self._own)
        width = item_width(pa.struct(list(self._own)))
        self._added = self._added._replace(item_width=width)

    def added_bytes(self, rows: int, size_bytes: int) -> int:
        """Return the bytes that the schema may add to the rows."""
        return self._added.of(rows, size_bytes)

    def decode(self, run: ValueRun) -> Decoded:
        """Return the columns of a run of messages with the same schema version."""
        version = run.schema_version
        decoder = self._decoders.get(version)
        if decoder is None:
            # Not kept: a producer may make up another one for each message.
            decoder = self._unasked(version)
        if decoder is None:
            decoder = self._decoders[version] = self._decoder(version)
        if isinstance(decoder, str):
            return self._all_bad(run, decoder)
        decoded = self._completed(decoder.decode(run.values, run.keys), len(run.values))
        if not len(decoded.bad):
            return decoded
        reason = f"of version {version_number(version)}: {decoded.reason}"
        return decoded._replace(reason=reason)

    def _completed(self, decoded: Decoded, rows: int) -> Decoded:
        """Add NULLs for the columns, and fields, that the topic does not have."""
        if self._own == self._wanted:
            return decoded
        arrays = dict(zip(self._own.names, decoded.columns, strict=True))
        return decoded._replace(
            columns=[
                completed(arrays[field.name], field.type)
                if field.name in arrays
                else pa.nulls(rows, field.type)
                for field in self._wanted
            ]
        )

    def _unasked(self, version: bytes) -> str | None:
        """Return why a version is not looked up; None for a version to look up."""
        if not version:
            return "it was sent without a schema"
        number = version_number(version)
        if number is None:
            return f"it names its schema by {len(version)} bytes, and not by 8"
        if self._unknown >= _MOST_UNKNOWN:
            return (
                f"it names version {number}, and the cluster did not know "
                f"{self._unknown} others, so that it was not asked"
            )
        return None

    def _decoder(self, version: bytes) -> VersionDecoder | str:
        number = version_number(version)
        writer = self._fetch(version)
        if writer is None:
            self._unknown += 1
            return (
                f"version {number} is not known to the cluster: it was deleted, or "
                "never registered"
            )
        if not writer.is_typed:
            return f"version {number} is the mark of a schema that was deleted"
        if self._added.row_bytes > MAX_ROW_BYTES:
            return (
                f"version {number} cannot be read: the defaults and names of enums of "
                f"the query's schema may add {self._added.row_bytes:,} bytes to a row, "
                f"and {MAX_ROW_BYTES:,} are allowed. Select fewer columns, or register "
                "a schema with shorter ones"
            )
        try:
            return kinds.decoder(writer, self._reader, self._own, self._settings)
        except InvalidSchemaError as error:
            return (
                f"version {number}, {writer.type_name}, cannot be read as the query's "
                f"schema: {error}"
            )

    def _all_bad(self, run: ValueRun, reason: str) -> Decoded:
        """Return NULL for all; rows without value and such a key are not bad."""
        columns = [pa.nulls(len(run.values), field.type) for field in self._wanted]
        present = run.values.is_valid()
        if self._has_keys:
            assert run.keys is not None
            present = pc.or_(present, run.keys.is_valid())
        bad = pc.indices_nonzero(present).to_pylist()
        return Decoded(columns, bad, reason if bad else "")
