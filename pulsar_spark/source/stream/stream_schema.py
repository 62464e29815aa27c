# SPDX-License-Identifier: Apache-2.0
"""The schemas of a stream: the schemas of the query's first start, across restarts.

The columns of a query are fixed when it is loaded, before Spark shows its checkpoint.
So they are compared with the columns of the schemas that the checkpoint names::

    loaded with        the checkpoint's schemas     rows are read by
    -----------------------------------------------------------------------
    no schema          give the same columns        the checkpoint's schemas
                       give some of the columns     an error that names both; with
                                                    schemaEvolution=additive the latest
                       give others                  an error that names both
    .schema(...)       have these columns           the checkpoint's schemas
                       do not                       the latest schemas
    schemaVersion      whatever they are            the schemas of that version

A topic that the checkpoint does not name, and that has another schema, is read by its
own from the next start on. One that is no longer read needs no schema. If that was the
first topic, a topic with the same schema takes its place, or else the next topic.

The types of the columns that a stream has must stay, whichever topics come and go. Of a
stream of one schema, this schema has the columns; of others the checkpoint has.

The order of the columns that a stream has must stay. Spark compares the state of a
stream with its query by position and type, and not by name: with Spark 4.3 state of
two columns of one type, which have changed places, is taken for that of each other.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from pulsar_spark.arrow.values import sql_types
from pulsar_spark.arrow.values.together import with_types
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.schemas import SchemaLookup
from pulsar_spark.errors import SchemaError
from pulsar_spark.options import ReadOptions
from pulsar_spark.options.read import ADDITIVE, LATEST_SCHEMA
from pulsar_spark.schemas.compare import says_the_same
from pulsar_spark.schemas.info import SchemaInfo, version_bytes, version_number
from pulsar_spark.source.plan.query_schema import (
    QuerySchema,
    adds_only,
    changes,
    described,
    differing_schemas,
    is_reordered,
    reader_schema,
    settled_schema,
    topic_schemas,
    value_columns_of,
)
from pulsar_spark.source.stream.checkpoint import SchemaPin, unreadable
from pulsar_spark.topics import schema_topic

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
        loaded: The schemas of the topics when the query was loaded, whose columns these
            are; None where the user chose them.

    Attributes:
        schema: The schemas by which tasks read.
        pin: What the checkpoint keeps of them; None for nothing.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        options: ReadOptions,
        columns: pa.Schema,
        loaded: QuerySchema | None,
    ) -> None:
        self._lookup = SchemaLookup(pool, patience_s=options.patience_s)
        self._pool = pool
        self._options = options
        self._columns = columns
        self._loaded = loaded
        self._is_known = False
        self._warned: set[tuple[str, bytes]] = set()
        self.schema = QuerySchema()
        self.pin: SchemaPin | None = None

    def begin(self) -> None:
        """Take the schema of now, as a new query does.

        Raises:
            SchemaError: The topics have no such columns.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        self._use(settled_schema(self._pool, self._options, self._loaded))

    def go_on(self, pin: SchemaPin | None) -> None:
        """Take the schema that a recorded offset names; as ``begin`` without a pin.

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
        began, lost = self._began(pin)
        if lost is not None:
            if self._loaded is not None:
                raise SchemaError(
                    f"The stream began with version {lost.version} of the schema of "
                    f"{lost.topic}, {lost.type}, which the cluster does not know any "
                    "more: it was deleted, or the topic was created again. Set "
                    f"{self._cure_of_loss(self._loaded)}; or, {_NEW_ONES}."
                )
            self.begin()
        elif self._loaded is None:
            self._go_on_with_given(began)
        elif self._keeps_columns(pin, began, self._loaded):
            self._use(began)
        else:
            self.begin()

    @staticmethod
    def _cure_of_loss(loaded: QuerySchema) -> str:
        if loaded.info is None:
            return '`.schema("value BINARY")` to go on with the bytes'
        return "`.schema(...)` to go on with columns of the schema that there is now"

    def _go_on_with_given(self, began: QuerySchema) -> None:
        try:
            self._use(began)
        except SchemaError:
            self.begin()  # a later schema may have the columns

    def _use(self, schema: QuerySchema) -> None:
        is_given = self._loaded is None
        self.schema = reader_schema(
            schema, self._columns, self._options, is_given=is_given
        )
        is_pinned = self.schema.info is not None or (
            not is_given and not self._options.allow_different_topic_schemas
        )
        self.pin = pin_of(schema) if is_pinned else None
        if self.pin is not None and self.pin.others and self._loaded is not None:
            columns = _columns_of(self._loaded)
            self.pin = replace(
                self.pin,
                columns=tuple(columns.names),
                types=tuple(sql_types.tree_of(type_) for type_ in columns.types),
            )
        self._is_known = True

    def _began(self, pin: SchemaPin) -> tuple[QuerySchema, SchemaPin | None]:
        """Return the pinned schemas, and the first pin that the registry lacks, if any.

        Topics that the checkpoint does not know keep their loaded schemas.
        """
        if not pin.hash:
            return QuerySchema(), None
        now = topic_schemas(self._pool, self._options)
        pins = self._still_read(pin, now)
        infos = self._pinned(pins)
        for each in pins.values():
            if each.topic not in infos:
                return QuerySchema(), each
        first_topic = next(iter(pins))
        first = infos.pop(first_topic)
        if not self._options.allow_different_topic_schemas:
            differing = differing_schemas(first, now)
            infos |= {
                topic: info
                for topic, info in differing.items()
                if info is not None and topic not in pins
            }
        other_infos: dict[str, SchemaInfo | None] = dict(sorted(infos.items()))
        return QuerySchema(first_topic, first, others=other_infos), None

    def _still_read(
        self, pin: SchemaPin, now: Mapping[str, SchemaInfo | None]
    ) -> dict[str, SchemaPin]:
        """Return the pins of topics that are read now, by topic; never none.

        The first pin is that of all topics which have no own pin.
        """
        own_pins = {each.topic: each for each in pin.others if each.topic in now}
        if pin.topic in now:
            return {pin.topic: pin, **own_pins}
        same = dict.fromkeys(sorted(now.keys() - own_pins.keys()), pin)
        heir = min(self._pinned(same), default="")
        if heir:
            return {heir: replace(pin, topic=heir), **own_pins}
        return own_pins or {pin.topic: pin}

    def _pinned(self, pins: Mapping[str, SchemaPin]) -> dict[str, SchemaInfo]:
        """Return the schemas that the registry still has, by topic."""
        infos: dict[str, SchemaInfo] = {}
        numbered = {topic: version_bytes(pin.version) for topic, pin in pins.items()}
        for versions in (numbered, dict.fromkeys(pins, b"")):
            asked = {topic: versions[topic] for topic in pins if topic not in infos}
            for topic, info in self._lookup.find(asked).items() if asked else ():
                # Numbers begin again with a new topic: the text has to be the same.
                if info is not None and hash_of(info) == pins[topic].hash:
                    infos[topic] = info
        return infos

    def _keeps_columns(
        self, pin: SchemaPin, began: QuerySchema, loaded: QuerySchema
    ) -> bool:
        """Return whether a stream keeps its columns; False for a stream that gets more.

        Args:
            pin: What the checkpoint has.
            began: The schemas that the stream began with, and those of new topics.
            loaded: The schemas of now.

        Raises:
            SchemaError: Neither: the columns are others, or have another order.
        """
        old, new = value_columns_of(began), value_columns_of(loaded)
        is_other = bool(began.others)
        if old is not None and new is not None:
            had = _had(pin, began)
            typed = with_types(old, had)
            is_moved = is_reordered(had.names, new.names)
            is_other = is_other or is_moved or typed != old
            old = _sorted(typed, had.names if is_moved else new.names)
        changed = changes(old, new)
        if not changed:
            return True
        adds = adds_only(old, new)
        if adds and self._options.schema_evolution == ADDITIVE:
            logger.warning(
                "The stream began with %s, and goes on with %s, as `schemaEvolution` "
                "says: %s.",
                began,
                loaded,
                changed,
            )
            return False
        if began.info is None:
            cure = 'Set `.schema("value BINARY, ...")`'
        elif old is not None and is_other:
            cure = self._cure_of_types(began, old)
        else:
            cure = f"Set `schemaVersion` {version_number(began.info.version)}"
        always = (
            "; or, to take each column that is added, set `schemaEvolution` to additive"
            if adds
            else ""
        )
        moved = f"began with {began}, and the topics have moved on to {loaded}"
        if str(began) == str(loaded):  # only topics have come or gone
            moved = f"does not have the columns of {loaded}"
        raise SchemaError(
            f"The stream {moved}: {changed}. {cure} to go on with the columns that it "
            f"began with; or, {_NEW_ONES}{always}."
        )

    def _cure_of_types(self, schema: QuerySchema, columns: pa.Schema) -> str:
        try:
            reader_schema(schema, columns, self._options, is_given=True)
        except SchemaError:
            return "Read the topics that have other types in another query,"
        return f'Set `.schema("{described(columns)}")`'

    def look(self, topic_partitions: Iterable[str]) -> None:
        """Warn, once for each version, where topics have moved on to another schema.

        Raises:
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        is_latest = self._options.schema_version in (None, LATEST_SCHEMA)
        if self.schema.info is None or not is_latest:
            return
        topics = {schema_topic(name) for name in topic_partitions}
        for topic, info in self._lookup.latest(sorted(topics)).items():
            own = self.schema.others.get(topic) or self.schema.info
            if info is not None and says_the_same(info, own):
                continue
            version = (topic, b"" if info is None else info.version)
            if version in self._warned:
                continue
            self._warned.add(version)
            logger.warning(
                "%s has moved on to %s%s. The stream goes on with the columns that it "
                "began with, and reads what it can as these.",
                topic,
                self._described(topic, info),
                self._changes(topic, own, info),
            )

    @staticmethod
    def _described(topic: str, info: SchemaInfo | None) -> str:
        is_typed = info is not None and info.is_typed
        return str(QuerySchema(topic, info if is_typed else None))

    @staticmethod
    def _changes(topic: str, own: SchemaInfo, info: SchemaInfo | None) -> str:
        if info is None or not info.is_typed:
            return ""
        try:
            changed = changes(
                value_columns_of(QuerySchema(topic, own)),
                value_columns_of(QuerySchema(topic, info)),
            )
        except SchemaError as error:
            changed = error.message
        return f" ({changed})" if changed else ""


def _columns_of(schema: QuerySchema) -> pa.Schema:
    columns = value_columns_of(schema)
    return pa.schema([]) if columns is None else columns


def _had(pin: SchemaPin, began: QuerySchema) -> pa.Schema:
    """Return the columns that a stream had, in their order.

    Raises:
        CheckpointError: The checkpoint has types that are no types.
    """
    if not pin.others:
        return _columns_of(began.first)
    if not pin.types:  # as older versions wrote it
        columns = _columns_of(began)
        names = pin.columns or columns.names
        return pa.schema([columns.field(n) for n in names if n in columns.names])
    try:
        types = map(sql_types.type_of, pin.types)
        return pa.schema(list(zip(pin.columns, types, strict=True)))
    except ValueError as error:
        raise unreadable(pin.to_json(), error) from None


def _sorted(columns: pa.Schema, order: Iterable[str]) -> pa.Schema:
    """Return columns in another order; columns without a place come last."""
    names = [name for name in order if name in columns.names]
    names += [name for name in columns.names if name not in names]
    return pa.schema([columns.field(name) for name in names])


def pin_of(schema: QuerySchema) -> SchemaPin:
    """Return what the checkpoint keeps of a query's schemas."""
    if schema.info is None:
        return SchemaPin("NONE")
    pin, *other_pins = (
        SchemaPin(
            info.type_name, topic, version_number(info.version) or 0, hash_of(info)
        )
        for topic, info in schema.by_topic()
        if info is not None
    )
    return replace(pin, others=tuple(other_pins))


def hash_of(info: SchemaInfo) -> str:
    """Return a hash that only equal schemas share."""
    parts = [str(int(info.type)).encode(), info.data]
    parts += [
        f"{key}={value}".encode() for key, value in sorted(info.properties.items())
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
