# SPDX-License-Identifier: Apache-2.0
"""The schema whose columns a query has: asked for once, on the driver.

::

    load()        find_schema       the topics' schema, or that of ``schemaVersion``
                  value_columns_of  its columns, which become the query's
    planning      reader_schema     can it give the query's columns, which may be the
                                    user's own?
    tasks         ReadTask.schema   what messages of any version become, see
                                    ``arrow.values.by_schema``
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.arrow.values import kinds
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.schemas import SchemaLookup
from pulsar_spark.columns import METADATA_COLUMNS_ALL, VALUE, spelling
from pulsar_spark.errors import SchemaError
from pulsar_spark.lines import warn_once
from pulsar_spark.options import ReadOptions, ServiceUrl
from pulsar_spark.options.read import LATEST_SCHEMA
from pulsar_spark.schemas.compare import says_the_same
from pulsar_spark.schemas.info import (
    InvalidSchemaError,
    SchemaInfo,
    SchemaType,
    version_bytes,
    version_number,
)
from pulsar_spark.source.discovery import existing_topic_partitions
from pulsar_spark.source.value_decoders import value_columns, value_settings

logger = logging.getLogger("pulsar_spark.source")

#: How to read values that no column can hold.
_AS_BYTES = 'read the values as bytes with `.schema("value BINARY")`'

_SHOWN = 5


class QuerySchema(NamedTuple):
    """The schema that topics have.

    Attributes:
        topic: Full name of a topic that has it; "" for none.
        info: The schema; None where values are bytes: there is none, or it was deleted.
        service_url: The cluster where they have it; None for that of the options.
    """

    topic: str = ""
    info: SchemaInfo | None = None
    service_url: ServiceUrl | None = None

    def __str__(self) -> str:
        if self.info is None:
            return "no schema"
        number = version_number(self.info.version)
        return f"version {number} of the schema of {self.topic}, {self.info.type_name}"


def find_schema(pool: ConnectionPool, options: ReadOptions) -> QuerySchema:
    """Return the schema of the topics that the options name.

    Asking creates nothing, registers nothing, and is no error for topics that do not
    exist, nor waits for them.

    Raises:
        SchemaError: Topics have different schemas, or not that of ``schemaVersion``.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    if options.allow_different_topic_schemas:
        return QuerySchema()
    topics = _topics(pool, options)
    version = b""
    if options.schema_version not in (None, LATEST_SCHEMA):
        version = version_bytes(options.schema_version or 0)
    found = SchemaLookup(pool).find(dict.fromkeys(topics, version))
    known = {
        topic: QuerySchema(topic, info)
        for topic, info in found.items()
        if info is not None and info.is_typed
    }
    if version:
        _check_version(options, found, known)
    if not known:
        return QuerySchema()
    if len(known) < len(found):
        # A topic that does not exist has no schema either, and is reported elsewhere.
        others = found.keys() - known.keys()
        counts = TopicLookup(pool).partition_counts(others)
        known |= {
            topic: QuerySchema(topic)
            for topic, count in counts.items()
            if count is not None
        }
    _check_equal(known)
    return min(known.items())[1]


def settled_schema(
    pool: ConnectionPool, options: ReadOptions, found: QuerySchema | None
) -> QuerySchema:
    """Return the schema of a query whose topics exist by now.

    Args:
        pool: The cluster's connections.
        options: What to read.
        found: That of the topics when the query was loaded; None where the user chose
            the columns.

    Raises:
        SchemaError: As ``find_schema`` does, or topics that were waited for have a
            schema, and the query does not have its columns.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    if found is None:
        return find_schema(pool, options)
    if found.info is None and options.waiting_for_non_existed_topic:
        now = find_schema(pool, options)
        if now.info is not None:
            raise SchemaError(
                f"{now.topic} was made after the query was loaded, which so has its "
                f"values as bytes, and has {now}. Load the query again for its columns."
            )
    return found


def _topics(pool: ConnectionPool, options: ReadOptions) -> list[str]:
    """Return the topics, by full name: all partitions have the schemas of their topic.

    Names need no answer of the cluster for that.
    """
    if options.topics_pattern is not None:
        topics = existing_topic_partitions(TopicLookup(pool), options)
    else:
        topics = list(options.topics)
    return sorted({topic.base.full_name for topic in topics})


def _check_version(
    options: ReadOptions,
    found: Mapping[str, SchemaInfo | None],
    known: Mapping[str, QuerySchema],
) -> None:
    without = sorted(found.keys() - known.keys())
    if without:
        raise SchemaError(
            f"`schemaVersion` is {options.schema_version}, and {_list(without)} has no "
            "such version of a schema, or it was deleted. Correct it, or leave it out "
            "for the latest one."
        )


def _check_equal(known: Mapping[str, QuerySchema]) -> None:
    groups: list[list[QuerySchema]] = []
    for _, one in sorted(known.items()):
        for group in groups:
            if _are_same(group[0].info, one.info):
                group.append(one)
                break
        else:
            groups.append([one])
    if len(groups) < 2:
        return
    texts = [
        f"{_kind(group[0])}: {_list([one.topic for one in group])}" for group in groups
    ]
    raise SchemaError(
        "The topics have different schemas, which cannot become the same columns ("
        + "; ".join(texts)
        + "). Read those of each schema by themselves, or set "
        "`allowDifferentTopicSchemas` to true for `value` as bytes."
    )


def _are_same(one: SchemaInfo | None, other: SchemaInfo | None) -> bool:
    if one is None or other is None:
        return one is other
    return says_the_same(one, other)


def _kind(one: QuerySchema) -> str:
    if one.info is None:
        return "no schema"
    return f"{one.info.type_name} as in version {version_number(one.info.version)}"


def _list(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def value_columns_of(found: QuerySchema) -> pa.Schema | None:
    """Return the columns of the value; None where it is bytes as they are.

    Raises:
        SchemaError: There are no columns for it.
    """
    if found.info is None:
        return None
    try:
        columns = kinds.columns_of(found.info)
    except InvalidSchemaError as error:
        raise SchemaError(
            f"There are no columns for {found}: {error}. Choose another version with "
            f"`schemaVersion`, or {_AS_BYTES}."
        ) from None
    taken = {name.casefold(): name for name in METADATA_COLUMNS_ALL}
    same = [name for name in columns.names if name.casefold() in taken]
    if same:
        raise SchemaError(
            f"There are no columns for {found}: {', '.join(f'`{n}`' for n in same)} is "
            "the name of a column that every topic has. Choose the other fields with "
            "`.schema(...)`, where such a name means that column."
        )
    return columns


def reader_schema(
    found: QuerySchema, columns: pa.Schema, options: ReadOptions, *, is_given: bool
) -> SchemaInfo | None:
    """Return the schema with which tasks make a query's columns; None for bytes.

    Args:
        found: That of the topics.
        columns: The query's.
        options: How to read.
        is_given: Whether the user chose these columns.

    Raises:
        SchemaError: It has no such columns.
    """
    wanted = value_columns(columns, options)
    if not len(wanted):
        return None
    is_bytes = wanted.names == [VALUE] and pa.types.is_binary(wanted.field(0).type)
    if found.info is None:
        if not is_bytes:
            raise _no_such_columns(wanted)
        return None
    if is_bytes and is_given:
        _check_ambiguity(found)
        return None
    bad_ones = options.corrupt_record_column
    if bad_ones in columns.names and bad_ones in _names(found):
        raise SchemaError(
            f"`{bad_ones}` is a field in {found}: give the column "
            "of bad values another name with `columnNameOfCorruptRecord`."
        )
    try:
        kinds.decoder(found.info, found.info, wanted, value_settings(options))
    except InvalidSchemaError as error:
        raise SchemaError(
            f"The columns asked for cannot be made of {found}: {error}. Its columns "
            f"are {_described(found)}. Or {_AS_BYTES}."
        ) from None
    if found.info.type == SchemaType.PROTOBUF:
        warn_once(
            f"The schema of {found.topic} is of type PROTOBUF, whose registered text "
            "does not say how payloads are encoded: `value` has the bytes of each. "
            "Decode them with Spark's from_protobuf and the descriptor, or register "
            "the schema as PROTOBUF_NATIVE."
        )
    return found.info


def _no_such_columns(wanted: pa.Schema) -> SchemaError:
    problems = []
    for field in wanted:
        if field.name != VALUE:
            spelt = spelling(field.name)
            hint = f" (it is spelt `{spelt}`)" if spelt else ""
            problems.append(f"there is no column `{field.name}`{hint}")
        elif field.type != pa.binary():
            problems.append(
                f"`{VALUE}` is binary, not {field.type} (cast it after reading)"
            )
    return SchemaError(
        f"The schema asked for does not fit a Pulsar topic: {'; '.join(problems)}. "
        "These topics have no schema. Choose among the columns "
        f"{', '.join((VALUE, *METADATA_COLUMNS_ALL))}."
    )


def _names(found: QuerySchema) -> list[str]:
    try:
        columns = value_columns_of(found)
    except SchemaError:
        return []
    return [] if columns is None else columns.names


def _described(found: QuerySchema) -> str:
    try:
        columns = value_columns_of(found)
    except SchemaError:
        return "not known"
    return ", ".join(f"`{field.name}` {field.type}" for field in columns or ())


def _check_ambiguity(found: QuerySchema) -> None:
    """Raise where ``value BINARY`` may mean less than all bytes of the value."""
    assert found.info is not None
    if found.info.type == SchemaType.PROTOBUF:
        return
    try:
        columns = kinds.columns_of(found.info)
    except InvalidSchemaError:
        return
    at = columns.get_field_index(VALUE)
    if at >= 0 and pa.types.is_binary(columns.field(at).type):
        raise SchemaError(
            f"`{VALUE}` BINARY is ambiguous for {found}, which has such a column "
            "itself. For that leave `.schema(...)` out, or name other columns of it, "
            "too; for the values as they came set `allowDifferentTopicSchemas` to true."
        )


def changes(old: pa.Schema | None, new: pa.Schema | None) -> str:
    """Say how the columns of a topic's values have changed, "" for not at all."""
    before = {} if old is None else {field.name: field.type for field in old}
    after = {} if new is None else {field.name: field.type for field in new}
    if old is None:
        before = {VALUE: pa.binary()}
    if new is None:
        after = {VALUE: pa.binary()}
    said = [
        f"`{name}` {type_} is new"
        for name, type_ in after.items()
        if name not in before
    ]
    said += [f"`{name}` is gone" for name in before if name not in after]
    said += [
        f"`{name}` was {before[name]} and is {type_}"
        for name, type_ in after.items()
        if name in before and before[name] != type_
    ]
    if not said and list(before) != list(after):
        said = ["their order has changed"]
    return ", ".join(said)
