# SPDX-License-Identifier: Apache-2.0
"""The schema of a stream: the one it began with, across restarts.

The columns of a query are fixed when it is loaded, before Spark shows its checkpoint.
So they are compared with what the checkpoint says that the stream began with::

    loaded with        the checkpoint's schema      rows become
    -----------------------------------------------------------------------
    no schema          gives the same columns       columns of that one
                       gives others                 an error that names both
    .schema(...)       has these columns            columns of that one
                       does not                     columns of the latest
    schemaVersion      whatever it is               columns of that version
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable

import pyarrow as pa

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.schemas import SchemaLookup
from pulsar_spark.errors import SchemaError
from pulsar_spark.options import ReadOptions
from pulsar_spark.options.read import LATEST_SCHEMA
from pulsar_spark.schemas.compare import says_the_same
from pulsar_spark.schemas.info import SchemaInfo, version_bytes, version_number
from pulsar_spark.source.query_schema import (
    QuerySchema,
    changes,
    reader_schema,
    settled_schema,
    value_columns_of,
)
from pulsar_spark.source.stream.checkpoint import SchemaPin
from pulsar_spark.topics import topic_of

logger = logging.getLogger("pulsar_spark.source")

_NEW_ONES = (
    "to take the new ones, use a new checkpoint location, or set `schemaVersion` to "
    "latest"
)


class StreamSchema:
    """Decides with which schema a stream goes on.

    Args:
        pool: The cluster's connections.
        options: What to read.
        columns: The query's columns.
        found: The schema of the topics when the query was loaded, whose columns these
            are; None where the user chose them.

    Attributes:
        info: The schema; None where values are bytes.
        pin: What the checkpoint keeps of it; None for nothing.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        options: ReadOptions,
        columns: pa.Schema,
        found: QuerySchema | None,
    ) -> None:
        self._lookup = SchemaLookup(pool, patience_s=options.patience_s)
        self._pool = pool
        self._options = options
        self._columns = columns
        self._found = found
        self._is_known = False
        self._warned: set[tuple[str, bytes]] = set()
        self.info: SchemaInfo | None = None
        self.pin: SchemaPin | None = None

    def begin(self) -> None:
        """Take the schema of now, as a new query does.

        Raises:
            SchemaError: The topics have no such columns.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        self._use(settled_schema(self._pool, self._options, self._found))

    def go_on(self, pin: SchemaPin | None) -> None:
        """Take the schema that a recorded offset names; without one as ``begin`` does.

        Raises:
            SchemaError: The topics have moved on to other columns, or the schema is no
                longer known.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        if self._is_known and pin in (None, self.pin):
            return
        if pin is None or self._options.schema_version is not None:
            self.begin()
            return
        began = self._resolved(pin)
        if self._found is None:
            self._go_on_with_given(began)
        elif began is None:
            raise SchemaError(
                f"The stream began with version {pin.version} of the schema of "
                f"{pin.topic}, {pin.type}, which the cluster does not know any more: "
                "it was deleted, or the topic was created again. Choose the columns by "
                f"`.schema(...)`; or, {_NEW_ONES}."
            )
        else:
            self._check_columns(began, self._found)
            self._use(began)

    def _go_on_with_given(self, began: QuerySchema | None) -> None:
        if began is not None:
            try:
                self._use(began)
            except SchemaError:
                pass  # columns that it does not have, but a later one may
            else:
                return
        self.begin()

    def _use(self, found: QuerySchema) -> None:
        is_given = self._found is None
        self.info = reader_schema(
            found, self._columns, self._options, is_given=is_given
        )
        is_pinned = self.info is not None or (
            not is_given and not self._options.allow_different_topic_schemas
        )
        self.pin = pin_of(found) if is_pinned else None
        self._is_known = True

    def _resolved(self, pin: SchemaPin) -> QuerySchema | None:
        """Return the pinned schema; None where the registry no longer has it."""
        if not pin.hash:
            return QuerySchema()
        for version in (version_bytes(pin.version), b""):
            info = self._lookup.find({pin.topic: version})[pin.topic]
            # Numbers begin again with a new topic, so that the text has to be the same.
            if info is not None and hash_of(info) == pin.hash:
                return QuerySchema(pin.topic, info)
        return None

    @staticmethod
    def _check_columns(began: QuerySchema, found: QuerySchema) -> None:
        changed = changes(value_columns_of(began), value_columns_of(found))
        if not changed:
            return
        if began.info is None:
            cure = '`.schema("value BINARY, ...")`'
        else:
            cure = f"`schemaVersion` {version_number(began.info.version)}"
        raise SchemaError(
            f"The stream began with {began}, and the topics have moved on to {found}: "
            f"{changed}. Set {cure} to go on with the columns that it began with; or, "
            f"{_NEW_ONES}."
        )

    def look(self, topic_partitions: Iterable[str]) -> None:
        """Warn, once for each version, where topics have moved on to another schema.

        Raises:
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        is_latest = self._options.schema_version in (None, LATEST_SCHEMA)
        if self.info is None or not is_latest:
            return
        topics = {topic_of(name) for name in topic_partitions}
        for topic, info in self._lookup.latest(sorted(topics)).items():
            if info is not None and says_the_same(info, self.info):
                continue
            known = (topic, b"" if info is None else info.version)
            if known in self._warned:
                continue
            self._warned.add(known)
            logger.warning(
                "%s has moved on to %s%s. The stream goes on with the columns that it "
                "began with, and reads what it can as these.",
                topic,
                self._described(topic, info),
                self._changes(topic, info),
            )

    @staticmethod
    def _described(topic: str, info: SchemaInfo | None) -> str:
        is_typed = info is not None and info.is_typed
        return str(QuerySchema(topic, info if is_typed else None))

    def _changes(self, topic: str, info: SchemaInfo | None) -> str:
        if info is None or not info.is_typed:
            return ""
        try:
            changed = changes(
                value_columns_of(QuerySchema(topic, self.info)),
                value_columns_of(QuerySchema(topic, info)),
            )
        except SchemaError as error:
            changed = error.message
        return f" ({changed})" if changed else ""


def pin_of(found: QuerySchema) -> SchemaPin:
    """Return what the checkpoint keeps of a schema."""
    if found.info is None:
        return SchemaPin("NONE")
    number = version_number(found.info.version)
    assert number is not None
    return SchemaPin(found.info.type_name, found.topic, number, hash_of(found.info))


def hash_of(info: SchemaInfo) -> str:
    """Return digits that two schemas share only if they are the same."""
    parts = [str(int(info.type)).encode(), info.data]
    parts += [
        f"{key}={value}".encode() for key, value in sorted(info.properties.items())
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
