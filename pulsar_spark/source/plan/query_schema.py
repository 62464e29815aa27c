# SPDX-License-Identifier: Apache-2.0
"""The schemas whose columns a query has: asked for once, on the driver.

::

    load()        find_schema       the topics' schemas, or those of ``schemaVersion``
                  value_columns_of  their columns, which become the query's
    planning      reader_schema     can each topic give the query's columns, which may
                                    be the user's own?
    tasks         ReadTask          the schema of each topic, with which messages of any
                                    version become rows: ``arrow.values.by_schema``

Each topic is read by its own schema. The columns of several topics are the union of
theirs: a column, or a field of a STRUCT, that a topic does not have is NULL in its
rows. A column of several has a type that holds the values of all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as default

import pyarrow as pa

from pulsar_spark.arrow.values import ValueSettings, kinds, together
from pulsar_spark.arrow.values.sql_types import sql_type
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.schemas import SchemaLookup
from pulsar_spark.columns import METADATA_COLUMNS_ALL, VALUE, spelling
from pulsar_spark.errors import SchemaError
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
from pulsar_spark.source.plan.discovery import existing_topic_partitions
from pulsar_spark.source.plan.value_columns import value_columns, value_settings
from pulsar_spark.system import warn_once
from spark_topics.text import same_but_for_case

logger = logging.getLogger("pulsar_spark.source")

#: How to read values that no column can hold.
_AS_BYTES = 'read the values as bytes with `.schema("value BINARY")`'

#: What to do with topics that do not go together.
_APART = (
    "Read them by themselves, choose columns that go together with `.schema(...)`, or "
    "set `allowDifferentTopicSchemas` to true for `value` as bytes."
)

_SHOWN = 5


@dataclass(frozen=True)
class QuerySchema:
    """The schemas that the topics of a query have.

    Attributes:
        topic: Full name of the first topic that has a schema; "" where none has.
        info: Its schema; None where values are bytes: there is none, or the schema was
            deleted.
        service_url: The cluster that has them; None for the only cluster in use.
        others: The schemas of the topics that are to be read by another schema than
            ``info``, by full name; None for a topic without a schema.
        topics: Full names of all topics that existed, where some topic has a schema.
    """

    topic: str = ""
    info: SchemaInfo | None = None
    service_url: ServiceUrl | None = None
    others: Mapping[str, SchemaInfo | None] = default(default_factory=dict)
    topics: frozenset[str] = default(default=frozenset(), compare=False, repr=False)

    def __str__(self) -> str:
        if self.info is None:
            return "no schema"
        number = version_number(self.info.version)
        text = f"version {number} of the schema of {self.topic}, {self.info.type_name}"
        if self.others:
            text += f", with the schemas of {_list(list(self.others))}"
        return text

    @property
    def first(self) -> QuerySchema:
        """Return the schema of the first topic alone."""
        return QuerySchema(self.topic, self.info, self.service_url)

    def by_topic(self) -> Iterator[tuple[str, SchemaInfo | None]]:
        """Yield each topic and its schema: ``topic`` first, then ``others``."""
        yield self.topic, self.info
        yield from self.others.items()


def find_schema(pool: ConnectionPool, options: ReadOptions) -> QuerySchema:
    """Return the schemas of the topics that the options name.

    Asking creates nothing, registers nothing, and is no error for topics that do not
    exist, nor waits for them.

    Raises:
        SchemaError: A topic has no schema of ``schemaVersion``.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    if options.allow_different_topic_schemas:
        return QuerySchema()
    schemas = topic_schemas(pool, options)
    typed = {topic: info for topic, info in schemas.items() if info is not None}
    if not typed:
        return QuerySchema()
    topic = min(typed)
    return QuerySchema(
        topic,
        typed[topic],
        others=differing_schemas(typed[topic], schemas),
        topics=frozenset(schemas),
    )


def topic_schemas(
    pool: ConnectionPool, options: ReadOptions
) -> dict[str, SchemaInfo | None]:
    """Return the schema of each topic that the options name; None where there is none.

    A topic that does not exist may be among these, or not: who reads it says so.

    Raises:
        SchemaError: A topic has no schema of ``schemaVersion``.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    return _schemas_of(pool, options, _topics(pool, options))


def _schemas_of(
    pool: ConnectionPool, options: ReadOptions, topics: Iterable[str]
) -> dict[str, SchemaInfo | None]:
    version = b""
    if options.schema_version not in (None, LATEST_SCHEMA):
        version = version_bytes(options.schema_version or 0)
    replies = SchemaLookup(pool).find(dict.fromkeys(topics, version))
    schemas: dict[str, SchemaInfo | None] = {
        topic: info
        for topic, info in replies.items()
        if info is not None and info.is_typed
    }
    untyped = replies.keys() - schemas.keys()
    if version and untyped:
        raise SchemaError(
            f"`schemaVersion` is {options.schema_version}, and {_list(sorted(untyped))}"
            " has no such version of a schema, or it was deleted. Correct it, or leave "
            "it out for the latest one."
        )
    if schemas and untyped:
        # A topic that does not exist has no schema either.
        contents = TopicLookup(pool).topics(untyped)
        schemas |= {name: None for name, topic in contents.items() if topic is not None}
    return schemas


def differing_schemas(
    info: SchemaInfo, schemas: Mapping[str, SchemaInfo | None]
) -> dict[str, SchemaInfo | None]:
    """Return the schemas that differ from ``info``, by topic."""
    same = {_text(info): True}
    differing = {}
    for topic, other in sorted(schemas.items()):
        if other is not None:
            text = _text(other)
            if text not in same:  # most topics have one of a few texts
                same[text] = says_the_same(other, info)
            if same[text]:
                continue
        differing[topic] = other
    return differing


def _text(info: SchemaInfo) -> tuple[int, bytes, tuple[tuple[str, str], ...]]:
    """Return a schema without its version, for comparison."""
    return int(info.type), info.data, tuple(sorted(info.properties.items()))


def settled_schema(
    pool: ConnectionPool, options: ReadOptions, loaded: QuerySchema | None
) -> QuerySchema:
    """Return the schemas of a query whose topics exist by now.

    Args:
        pool: The cluster's connections.
        options: What to read.
        loaded: Those of the topics when the query was loaded; None where the user chose
            the columns.

    Raises:
        SchemaError: As ``find_schema`` does, or topics that were waited for have a
            schema, and the query does not have its columns.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    if loaded is None:
        return find_schema(pool, options)
    if loaded.info is None and options.waiting_for_non_existed_topic:
        now = find_schema(pool, options)
        if now.info is not None:
            raise SchemaError(
                f"{now.topic} was made after the query was loaded, which so has its "
                f"values as bytes, and has {now}. Load the query again for its columns."
            )
    return loaded


def with_later_topics(
    pool: ConnectionPool,
    options: ReadOptions,
    loaded: QuerySchema,
    topics: Iterable[str],
) -> QuerySchema:
    """Return the schemas of a query and of topics made after the load.

    Args:
        pool: The cluster's connections.
        options: What to read.
        loaded: The schemas of the topics when the query was loaded.
        topics: Full names of the topics that are read.

    Raises:
        SchemaError: The query does not have the columns of such a topic in their types,
            or a topic has no schema of ``schemaVersion``.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    later = sorted(set(topics) - loaded.topics)
    if loaded.info is None or not later:
        return loaded
    schemas = _schemas_of(pool, options, later)
    infos = dict.fromkeys(later) | schemas
    schema = replace(
        loaded,
        others={**loaded.others, **differing_schemas(loaded.info, infos)},
        topics=loaded.topics.union(later),
    )
    old, new = value_columns_of(loaded), value_columns_of(schema)
    assert old is not None
    assert new is not None
    changed = changes(old, together.with_types(old, new)) or _further_nulls(old, infos)
    if changed:
        raise SchemaError(
            f"{_list(later)} was made after the query was loaded, and the columns of "
            f"the query do not hold its values: {changed}. Load the query again."
        )
    return schema


def _further_nulls(old: pa.Schema, infos: Mapping[str, SchemaInfo | None]) -> str:
    """Say which column has no place for NULLs within the values of topics, if any."""
    for topic, info in infos.items():
        assert info is not None
        for field in _columns_of(topic, info):
            index = old.get_field_index(field.name)
            if index >= 0 and not together.takes_nulls(
                old.field(index).type, field.type
            ):
                return f"`{field.name}` may have NULL within it"
    return ""


def _topics(pool: ConnectionPool, options: ReadOptions) -> list[str]:
    """Return the topics, by full name: all partitions have the schemas of their topic.

    Names need no answer of the cluster for that.
    """
    if options.topics_pattern is not None:
        topics = existing_topic_partitions(TopicLookup(pool), options)
    else:
        topics = list(options.topics)
    return sorted({topic.common_name for topic in topics})


def _list(names: Iterable[str], separator: str = ", ") -> str:
    shown = list(names)
    more = len(shown) - _SHOWN
    return separator.join(shown[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def value_columns_of(schema: QuerySchema) -> pa.Schema | None:
    """Return the columns of the values; None for values without a schema.

    Raises:
        SchemaError: There are no columns for a topic, or the topics' columns do not go
            together.
    """
    if schema.info is None:
        return None
    _require_schemas(schema)
    topics = []
    for own in _distinct(schema):
        assert own.info is not None
        columns = _columns_of(own.topic, own.info)
        topics.append(_TopicColumns(own.topic, own.info, columns))
    return topics[0].columns if len(topics) == 1 else _union(topics)


@dataclass(frozen=True)
class _TopicColumns:
    """The columns of a schema, and a topic that has this schema."""

    topic: str
    info: SchemaInfo
    columns: pa.Schema

    def can_give(self, name: str, type_: pa.DataType) -> bool:
        """Return whether values can be read as a type that holds all values."""
        if self.columns.field(name).type == type_:
            return True
        column = kinds.own_columns(self.info, pa.schema([(name, type_)]))
        try:
            kinds.decoder(self.info, self.info, column, ValueSettings())
        except InvalidSchemaError:
            return False
        return True


def _columns_of(topic: str, info: SchemaInfo) -> pa.Schema:
    """Return the columns of a single topic.

    Raises:
        SchemaError: There are none.
    """
    schema = QuerySchema(topic, info)
    try:
        columns = kinds.columns_of(info)
    except InvalidSchemaError as error:
        raise SchemaError(
            f"There are no columns for {schema}: {error}. Choose fields that can be "
            "columns with `.schema(...)`, or another version with `schemaVersion`, or "
            f"{_AS_BYTES}."
        ) from None
    taken = {name.casefold(): name for name in METADATA_COLUMNS_ALL}
    same = [name for name in columns.names if name.casefold() in taken]
    if same:
        raise SchemaError(
            f"There are no columns for {schema}: {', '.join(f'`{n}`' for n in same)} "
            "is the name of a column that every topic has. Choose the other fields "
            "with `.schema(...)`, where such a name means that column."
        )
    return columns


def _union(topics: list[_TopicColumns]) -> pa.Schema:
    """Return the columns of all topics: first topic's columns, then further columns.

    Raises:
        SchemaError: Topics have nothing in common, or a column that differs.
    """
    having: dict[str, list[_TopicColumns]] = {}
    for topic in topics:
        for name in topic.columns.names:
            having.setdefault(name, []).append(topic)
    if all(len(having_topics) < len(topics) for having_topics in having.values()):
        texts = [f"{each.topic} has {described(each.columns)}" for each in topics]
        raise SchemaError(
            "The topics have no column in common, so they cannot be read together: "
            f"{_list(texts, '; ')}. {_APART}"
        )
    if twins := same_but_for_case(having):
        texts = [f"`{name}` of {having[name][0].topic}" for name in twins]
        raise SchemaError(
            f"{' and '.join(texts)} differ by case only, and Spark does not tell them "
            f"apart. {_APART}"
        )
    return pa.schema(
        [(name, _common(name, having_topics)) for name, having_topics in having.items()]
    )


def _common(name: str, topics: list[_TopicColumns]) -> pa.DataType:
    """Return the narrowest type that holds the values of each topic.

    Raises:
        SchemaError: There is none, or numbers count different units.
    """
    fields = {each.topic: each.columns.field(name) for each in topics}
    type_ = together.joined(field.type for field in fields.values())
    if type_ is not None and all(each.can_give(name, type_) for each in topics):
        _require_same_units(fields, type_)
        return type_
    first_topics: dict[str, str] = {}
    for topic, field in fields.items():
        first_topics.setdefault(sql_type(field.type), topic)
    texts = [f"{text} in {topic}" for text, topic in first_topics.items()]
    raise SchemaError(
        f"`{name}` differs among the topics, which cannot be read together: it is "
        f"{_list(texts, ' and ')}. {_APART}"
    )


def _require_same_units(fields: Mapping[str, pa.Field], type_: pa.DataType) -> None:
    """Raise if numbers of a column would count different units.

    Args:
        fields: The column that each topic's schema makes, by topic.
        type_: The type of the column.
    """
    first_units: dict[str, tuple[str, str]] = {}
    for topic, field in fields.items():
        for where, unit in together.units(field, type_).items():
            other, other_topic = first_units.setdefault(where, (unit, topic))
            if other != unit:
                raise SchemaError(
                    f"`{where}` is a number of unit {other} in {other_topic}, and of "
                    f"{unit} in {topic}, which one column of numbers cannot have. "
                    "Choose the columns with `.schema(...)`, this one as TIMESTAMP, "
                    "TIMESTAMP_NTZ or TIME, read the topics by themselves, or set "
                    "`allowDifferentTopicSchemas` to true for `value` as bytes."
                )


def _require_schemas(schema: QuerySchema) -> None:
    """Raise if some topics have a schema and some have no schema."""
    without = [topic for topic, info in schema.others.items() if info is None]
    if without:
        raise SchemaError(
            f"The topics cannot be read together: {_list(without)} has no schema, and "
            f"{schema.topic} has one. {_APART}"
        )


def reader_schema(
    schema: QuerySchema, columns: pa.Schema, options: ReadOptions, *, is_given: bool
) -> QuerySchema:
    """Return the schemas with which tasks make a query's columns; none for bytes.

    Args:
        schema: Those of the topics.
        columns: The query's.
        options: How to read.
        is_given: Whether the user chose these columns.

    Raises:
        SchemaError: A topic has no such columns.
    """
    value_fields = value_columns(columns, options)
    if not len(value_fields):
        return QuerySchema()
    is_bytes = value_fields.names == [VALUE] and pa.types.is_binary(
        value_fields.field(0).type
    )
    if schema.info is None:
        if not is_bytes:
            raise _no_such_columns(value_fields)
        return QuerySchema()
    if is_bytes and is_given:
        for topic, info in schema.by_topic():
            if info is not None:
                _check_ambiguity(topic, info)
        return QuerySchema()
    _require_schemas(schema)
    distinct_ones = _distinct(schema)
    missing = together.paths(value_fields)
    for own in distinct_ones:
        missing -= _check_columns(own, columns, value_fields, options)
    if missing:
        names = ", ".join(
            f"`{'.'.join(path)}`"
            for path in sorted(missing)
            if path[:-1] not in missing
        )
        owner = "no topic has" if schema.others else "it has no field"
        raise SchemaError(
            f"The columns asked for cannot be made of {schema}: {owner} {names}. "
            f"Its columns are {described(_all_columns(schema))}. Or {_AS_BYTES}."
        )
    if len(distinct_ones) > 1:
        _check_units(distinct_ones, value_fields)
    return schema


def _check_units(topics: list[QuerySchema], wanted: pa.Schema) -> None:
    """Raise if a column that the user chose would have numbers of different units."""
    made = {own.topic: _made_columns(own) for own in topics}
    for field in wanted:
        fields = {
            topic: columns.field(field.name)
            for topic, columns in made.items()
            if field.name in columns.names
        }
        _require_same_units(fields, field.type)


def _distinct(schema: QuerySchema) -> list[QuerySchema]:
    """Return each schema once, with the first topic of the schema."""
    first_topics: dict[object, QuerySchema] = {}
    for topic, info in schema.by_topic():
        assert info is not None
        first_topics.setdefault(_text(info), QuerySchema(topic, info))
    return list(first_topics.values())


def _made_columns(own: QuerySchema) -> pa.Schema:
    """Return the columns that a topic's schema makes; no columns if not all can be."""
    assert own.info is not None
    try:
        return kinds.columns_of(own.info)
    except InvalidSchemaError:
        return pa.schema([])


def _check_columns(
    own: QuerySchema, columns: pa.Schema, wanted: pa.Schema, options: ReadOptions
) -> set[together.Path]:
    """Check that a topic can give some columns of a query; return the paths.

    Raises:
        SchemaError: It cannot.
    """
    assert own.info is not None
    bad_ones = options.corrupt_record_column
    if bad_ones in columns.names and bad_ones in _all_columns(own).names:
        raise SchemaError(
            f"`{bad_ones}` is a field in {own}: give the column "
            "of bad values another name with `columnNameOfCorruptRecord`."
        )
    own_columns = kinds.own_columns(own.info, wanted)
    try:
        if not len(own_columns):
            names = ", ".join(f"`{name}`" for name in wanted.names)
            raise InvalidSchemaError(f"it has none of {names}")
        kinds.decoder(own.info, own.info, own_columns, value_settings(options))
    except InvalidSchemaError as error:
        raise SchemaError(
            f"The columns asked for cannot be made of {own}: {error}. Its columns "
            f"are {described(_all_columns(own))}. Or {_AS_BYTES}."
        ) from None
    if own.info.type == SchemaType.PROTOBUF:
        warn_once(
            f"The schema of {own.topic} is of type PROTOBUF, whose registered text "
            "does not say how payloads are encoded: `value` has the bytes of each. "
            "Decode them with Spark's from_protobuf and the descriptor, or register "
            "the schema as PROTOBUF_NATIVE."
        )
    return together.paths(own_columns)


def _no_such_columns(wanted: pa.Schema) -> SchemaError:
    problems = []
    for field in wanted:
        if field.name != VALUE:
            spelt = spelling(field.name)
            hint = f" (it is spelt `{spelt}`)" if spelt else ""
            problems.append(f"there is no column `{field.name}`{hint}")
        elif field.type != pa.binary():
            problems.append(
                f"`{VALUE}` is BINARY, not {sql_type(field.type)}"
                " (cast it after reading)"
            )
    return SchemaError(
        f"The schema asked for does not fit a Pulsar topic: {'; '.join(problems)}. "
        "These topics have no schema, or it was deleted: decode the bytes in `value` "
        "by functions of Spark's, such as from_json. Choose among the columns "
        f"{', '.join((VALUE, *METADATA_COLUMNS_ALL))}."
    )


def _all_columns(schema: QuerySchema) -> pa.Schema:
    """Return the columns of values; no columns where the schema cannot be read."""
    try:
        columns = value_columns_of(schema)
    except SchemaError:
        columns = None
    return pa.schema([]) if columns is None else columns


def described(columns: pa.Schema) -> str:
    """Return columns with their types, as ``.schema(...)`` takes them."""
    fields = [f"`{field.name}` {sql_type(field.type)}" for field in columns]
    return ", ".join(fields) or "not known"


def _check_ambiguity(topic: str, info: SchemaInfo) -> None:
    """Raise where ``value BINARY`` may mean less than all bytes of the value."""
    if info.type == SchemaType.PROTOBUF:
        return
    try:
        columns = kinds.columns_of(info)
    except InvalidSchemaError:
        return
    index = columns.get_field_index(VALUE)
    if index >= 0 and pa.types.is_binary(columns.field(index).type):
        raise SchemaError(
            f"`{VALUE}` BINARY is ambiguous for {QuerySchema(topic, info)}, which has "
            "such a column itself. For that leave `.schema(...)` out, or name other "
            "columns of it, too; for the values as they came set "
            "`allowDifferentTopicSchemas` to true."
        )


def adds_only(old: pa.Schema | None, new: pa.Schema | None) -> bool:
    """Return whether columns only gained some, at any depth.

    Another order is no gain, but may come with further columns: Spark refuses state of
    fewer columns, and takes state of as many in another order for what it is not.
    """
    if old is None or new is None:
        return False
    return _extends(pa.struct(list(old)), pa.struct(list(new)))


def _extends(old: pa.DataType, new: pa.DataType) -> bool:
    if old.id != new.id or not pa.types.is_nested(old):
        return bool(old == new)
    if pa.types.is_struct(old):
        fields = {field.name: field.type for field in new}
        has_more = new.num_fields > old.num_fields
        names = [field.name for field in old]
        return (has_more or not is_reordered(names, fields)) and all(
            field.name in fields and _extends(field.type, fields[field.name])
            for field in old
        )
    return all(
        _extends(old.field(index).type, new.field(index).type)
        for index in range(old.num_fields)
    )


def is_reordered(before: Iterable[str], after: Iterable[str]) -> bool:
    """Return whether names of both have another order than before."""
    old, new = dict.fromkeys(before), dict.fromkeys(after)
    return [n for n in old if n in new] != [n for n in new if n in old]


def changes(old: pa.Schema | None, new: pa.Schema | None) -> str:
    """Say how the columns of a topic's values have changed, "" for not at all."""
    before = {} if old is None else {field.name: field.type for field in old}
    after = {} if new is None else {field.name: field.type for field in new}
    if old is None:
        before = {VALUE: pa.binary()}
    if new is None:
        after = {VALUE: pa.binary()}
    differences = [
        f"`{name}` {sql_type(type_)} is new"
        for name, type_ in after.items()
        if name not in before
    ]
    differences += [f"`{name}` is gone" for name in before if name not in after]
    differences += [
        f"`{name}` was {sql_type(before[name])} and is {sql_type(type_)}"
        for name, type_ in after.items()
        if name in before and before[name] != type_
    ]
    if is_reordered(before, after):
        differences.append("their order has changed")
    return ", ".join(differences)
