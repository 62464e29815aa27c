# SPDX-License-Identifier: Apache-2.0
"""Which schema a query gets, and what its user hears where that has no such columns."""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pulsar_spark.errors import SchemaError
from pulsar_spark.options import parse_read_options
from pulsar_spark.schemas.info import SchemaInfo, SchemaType, version_bytes
from pulsar_spark.source.plan.query_schema import (
    QuerySchema,
    changes,
    differing_schemas,
    find_schema,
    reader_schema,
    settled_schema,
    value_columns_of,
    with_later_topics,
)
from spark_topics import statistics

if TYPE_CHECKING:
    from pulsar_spark.client.pool import ConnectionPool
    from pulsar_spark.options import ReadOptions
    from tests.support.scripted_broker import ScriptedBroker

PREFIX = "persistent://public/default/"
TOPIC = f"{PREFIX}t"
ID = ("id", "long")
NAME = ("name", "string")


def record(*fields: Any, name: str = "R", **more: Any) -> str:
    """The text of a record: names and types of its fields."""
    known = [{"name": field, "type": type_} for field, type_ in fields]
    return json.dumps({"type": "record", "name": name, "fields": known, **more})


def avro(*fields: Any) -> QuerySchema:
    """Version 3 of the schema of a topic."""
    text = record(*fields).encode()
    return QuerySchema(
        TOPIC, SchemaInfo(SchemaType.AVRO, text, version=version_bytes(3))
    )


def kind(type_: int, data: bytes = b"") -> QuerySchema:
    """One of another type."""
    return QuerySchema(TOPIC, SchemaInfo(type_, data, version=version_bytes(3)))


def options_of(**given: str) -> ReadOptions:
    """What to read."""
    if "topicsPattern" not in given:
        given = {"topics": "t", **given}
    return parse_read_options({"service.url": "pulsar://unused:1", **given})


def columns(**types: Any) -> pa.Schema:
    """The columns of a query."""
    return pa.schema(types.items())


def names(count: int) -> list[str]:
    """The names of topics."""
    return [f"{PREFIX}t{index}" for index in range(count)]


class TestFinding:
    """The schema whose columns a query gets when it is loaded."""

    def test_the_latest_one(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """Of the topic, whichever of its partitions are read; or the one asked for."""
        first = scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        latest = scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID, NAME))
        for given, expected in [
            ({}, latest),
            ({"topics": "t-partition-1,t-partition-0"}, latest),
            ({"schemaVersion": "latest"}, latest),
            ({"schemaVersion": "0"}, first),
            ({"schemaVersion": "1"}, latest),
        ]:
            found = find_schema(pool, options_of(**given))
            assert found == QuerySchema(TOPIC, expected), given
        assert str(found) == f"version 1 of the schema of {TOPIC}, AVRO"

    def test_none_at_all(self, scripted: ScriptedBroker, pool: ConnectionPool) -> None:
        """Of bytes, of what does not exist, and where the only one was deleted.

        Asking makes no topic, and gives none a schema.
        """
        scripted.add_topic(TOPIC)
        scripted.add_schema(f"{PREFIX}deleted", SchemaType.AVRO, record(ID))
        scripted.delete_schema(f"{PREFIX}deleted")
        found = find_schema(pool, options_of(topics="t,deleted,unheard-of"))
        assert found == QuerySchema()
        assert str(found) == "no schema"
        assert value_columns_of(found) is None
        assert set(scripted.topics) == {TOPIC}
        assert set(scripted.requests) == {"CONNECT", "GET_SCHEMA"}

    def test_who_wants_bytes_asks_nobody(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """With ``allowDifferentTopicSchemas`` values are bytes, whatever they mean."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        options = options_of(allowDifferentTopicSchemas="true")
        assert find_schema(pool, options) == QuerySchema()
        assert not scripted.requests

    def test_topics_that_say_the_same(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """Names and docs do not count; the first topic by name speaks for all."""
        one, other = names(2)
        scripted.add_schema(other, SchemaType.AVRO, record(ID, name="Other", doc="?"))
        found = scripted.add_schema(one, SchemaType.AVRO, record(ID))
        options = options_of(topics="t1,t0,unheard-of")
        assert find_schema(pool, options) == QuerySchema(one, found)

    def test_topics_that_match_a_pattern(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """Only the topics that exist are asked for theirs."""
        for name in ("a1", "a2", "b"):
            scripted.add_topic(f"{PREFIX}{name}")
            type_ = SchemaType.STRING if name == "b" else SchemaType.INT64
            scripted.add_schema(f"{PREFIX}{name}", type_)
        found = find_schema(pool, options_of(topicsPattern="public/default/a.*"))
        assert found.topic == f"{PREFIX}a1"
        assert found.info is not None
        assert found.info.type == SchemaType.INT64

    def test_topics_that_differ(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """Each schema that differs is kept; that of a topic without one is None."""
        for name in names(7):
            first = scripted.add_schema(name, SchemaType.AVRO, record(ID))
        json_one = scripted.add_schema(f"{PREFIX}u", SchemaType.JSON, record(ID))
        for bare in ("v", "w"):
            scripted.add_topic(f"{PREFIX}{bare}")
        topics = ",".join(["t0,t1,t2,t3,t4,t5,t6", "u", "v", "w", "unheard-of"])
        found = find_schema(pool, options_of(topics=topics))
        assert (found.topic, found.info) == (f"{PREFIX}t0", first)
        assert found.others == {
            f"{PREFIX}u": json_one,
            f"{PREFIX}v": None,
            f"{PREFIX}w": None,
        }

    @pytest.mark.parametrize("is_deleted", [False, True])
    def test_a_version_that_a_topic_does_not_have(
        self, scripted: ScriptedBroker, pool: ConnectionPool, is_deleted: bool
    ) -> None:
        """All topics that lack it are named."""
        for name in names(3):
            scripted.add_schema(name, SchemaType.AVRO, record(ID))
        if is_deleted:  # the mark of it is version 1
            scripted.delete_schema(names(3)[1])
        else:
            scripted.add_schema(names(3)[2], SchemaType.AVRO, record(ID, NAME))
        without = names(3) if is_deleted else names(2)
        with pytest.raises(SchemaError) as caught:
            find_schema(pool, options_of(topics="t0,t1,t2", schemaVersion="1"))
        assert (
            f"`schemaVersion` is 1, and {', '.join(without)} has no such version of a "
            "schema, or it was deleted." in str(caught.value)
        )


class TestSettling:
    """The same when the query is planned: its topics may have been made meanwhile."""

    @pytest.mark.parametrize("waits", ["true", "false"])
    def test_a_topic_that_got_a_schema(
        self, scripted: ScriptedBroker, pool: ConnectionPool, waits: str
    ) -> None:
        """A query that waited for it has its values as bytes: that is an error."""
        options = options_of(waitingForNonExistedTopic=waits)
        loaded = find_schema(pool, options)
        assert settled_schema(pool, options, loaded) == QuerySchema()
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        if waits == "false":
            assert settled_schema(pool, options, loaded) == QuerySchema()
            return
        with pytest.raises(SchemaError) as caught:
            settled_schema(pool, options, loaded)
        assert f"has version 0 of the schema of {TOPIC}, AVRO." in str(caught.value)
        assert "Load the query again" in str(caught.value)

    def test_a_schema_that_was_found(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """It stays, though the topic goes on; who chose the columns gets the latest."""
        old = scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        options = options_of(waitingForNonExistedTopic="true")
        loaded = find_schema(pool, options)
        new = scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID, NAME))
        assert settled_schema(pool, options, loaded) == QuerySchema(TOPIC, old)
        assert settled_schema(pool, options, None) == QuerySchema(TOPIC, new)


class TestLaterTopics:
    """Topics that were made between the load of a query and the plan."""

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ([ID], ""),
            ([NAME, ID], ""),
            ([("id", "int")], ""),
            ([("id", "double")], "`id` differs among the topics"),
            ([("at", "long"), ("id", "string")], "`id` differs among the topics"),
            ([NAME], "no column in common"),
            (None, "t2 has no schema, and "),
        ],
    )
    def test_what_it_holds(
        self,
        scripted: ScriptedBroker,
        pool: ConnectionPool,
        fields: Any,
        said: str,
    ) -> None:
        """It is read by its own schema if the query's columns hold its values."""
        scripted.add_schema(names(1)[0], SchemaType.JSON, record(ID))
        options = options_of(topicsPattern="t.*")
        scripted.add_topic(names(1)[0])
        loaded = find_schema(pool, options)
        later = names(3)[2]
        read = [names(1)[0], later]
        if fields is not None:
            info = scripted.add_schema(later, SchemaType.AVRO, record(*fields))
        if said:
            with pytest.raises(SchemaError, match=said):
                with_later_topics(pool, options, loaded, read)
            return
        found = with_later_topics(pool, options, loaded, read)
        assert found.others == {later: info}
        scripted.requests.clear()
        assert with_later_topics(pool, options, found, read) is found
        assert not scripted.requests

    @pytest.mark.parametrize(
        ("before", "after", "said"),
        [
            ("int", "long", "`a` was INT and is BIGINT. Load the query again."),
            ("x", "xy", "`a` was STRUCT<x: BIGINT> and is STRUCT<x: BIGINT, y: "),
            ("x", "x?", "`a` may have NULL within it. Load the query again."),
            ("x?", "x", ""),
        ],
    )
    def test_what_it_does_not_hold(
        self,
        scripted: ScriptedBroker,
        pool: ConnectionPool,
        before: str,
        after: str,
        said: str,
    ) -> None:
        """A narrower column is no place for values: neither dropped nor bad."""
        types = {
            "x": json.loads(record(("x", "long"), name="S")),
            "xy": json.loads(record(("x", "long"), ("y", "long"), name="S")),
            "x?": json.loads(record(("x", ["null", "long"]), name="S")),
        }
        options = options_of(topicsPattern="t.*")
        one, other = names(2)
        scripted.add_topic(one)
        first = record(("a", types.get(before, before)))
        scripted.add_schema(one, SchemaType.JSON, first)
        loaded = find_schema(pool, options)
        second = record(("a", types.get(after, after)))
        scripted.add_schema(other, SchemaType.JSON, second)
        if not said:
            assert with_later_topics(pool, options, loaded, [other]).others
            return
        with pytest.raises(SchemaError) as caught:
            with_later_topics(pool, options, loaded, [one, other])
        assert f"{other} was made after the query was loaded" in str(caught.value)
        assert said in str(caught.value)


class TestColumns:
    """What becomes columns, and what cannot."""

    def test_fields(self) -> None:
        """Each by its name, those of KEY_VALUE and of plain types by fixed ones."""
        assert value_columns_of(avro(ID, NAME)) == columns(
            id=pa.int64(), name=pa.string()
        )
        assert value_columns_of(kind(SchemaType.INT32)) == columns(value=pa.int32())

    @pytest.mark.parametrize(
        ("found", "texts"),
        [
            (
                avro(("__Topic", "string"), ID, ("__key", "long")),
                ["`__Topic`, `__key` is the name of a column that every topic has"],
            ),
            (kind(99), ["a schema of the unknown type 99 cannot be read"]),
            (
                kind(SchemaType.AVRO, b"{"),
                ["`schemaVersion`", '`.schema("value BINARY")`'],
            ),
        ],
        ids=["taken", "unknown", "damaged"],
    )
    def test_none(self, found: QuerySchema, texts: list[str]) -> None:
        """Says of which version, why, and how to read the topic all the same."""
        with pytest.raises(SchemaError) as caught:
            value_columns_of(found)
        for text in (f"There are no columns for {found}: ", *texts):
            assert text in str(caught.value)


class TestTogether:
    """Topics with different schemas: each is read by its own."""

    def of(self, *infos: SchemaInfo | None) -> QuerySchema:
        """Topics t0, t1, ... that have these schemas."""
        assert infos[0] is not None
        topic, *others = names(len(infos))
        return QuerySchema(
            topic, infos[0], others=dict(zip(others, infos[1:], strict=True))
        )

    def avro(self, *fields: Any, kind: SchemaType = SchemaType.AVRO) -> SchemaInfo:
        """A schema of one topic."""
        return SchemaInfo(kind, record(*fields).encode(), version=version_bytes(0))

    def test_the_columns_of_all(self) -> None:
        """Those of the first topic, then what others add, in their order."""
        schema = self.of(
            self.avro(ID, NAME),
            self.avro(NAME, ("mail", "string"), ID, kind=SchemaType.JSON),
            self.avro(ID, ("age", ["null", "int"])),
        )
        expected = columns(
            id=pa.int64(), name=pa.string(), mail=pa.string(), age=pa.int32()
        )
        assert value_columns_of(schema) == expected
        wanted = expected.append(pa.field("__topic", pa.string()))
        for is_given in (True, False):
            read = reader_schema(schema, wanted, options_of(), is_given=is_given)
            assert read == schema

    @pytest.mark.parametrize(
        ("one", "other", "type_"),
        [
            ("int", "long", pa.int64()),
            ("float", "double", pa.float64()),
            (["null", "int"], "int", pa.int32()),
            ("int", ["double", "null"], pa.float64()),
        ],
    )
    def test_a_wider_type(self, one: Any, other: Any, type_: pa.DataType) -> None:
        """The type that holds the values of each topic, whichever comes first."""
        kinds = (SchemaType.AVRO, SchemaType.JSON)
        for types, kind in itertools.product(((one, other), (other, one)), kinds):
            schema = self.of(*(self.avro(("a", each), kind=kind) for each in types))
            assert value_columns_of(schema) == columns(a=type_)
            reader_schema(schema, columns(a=type_), options_of(), is_given=False)

    def test_structs_in_another_order(self) -> None:
        """Fields within a struct are found by name, too."""
        structs = [
            ("at", json.loads(record(*fields, name="At")))
            for fields in ([ID, NAME], [NAME, ID])
        ]
        schema = self.of(*(self.avro(struct) for struct in structs))
        type_ = pa.struct([("id", pa.int64()), ("name", pa.string())])
        assert value_columns_of(schema) == columns(at=type_)

    @pytest.mark.parametrize(
        ("infos", "said"),
        [
            (
                [record(ID), record(("id", "string"))],
                [
                    "`id` differs among the topics, which .*: it is BIGINT in ",
                    f" and STRING in {PREFIX}t1",
                ],
            ),
            (
                [record(ID), record(("mail", "string"))],
                ["no column in common", f"{PREFIX}t0 has `id` BIGINT; {PREFIX}t1 has "],
            ),
            (
                [record(ID, NAME), record(NAME, ("ID", "long"))],
                [f"`id` of {PREFIX}t0 and `ID` of {PREFIX}t1 differ by case only"],
            ),
            ([record(ID), None], [f"{PREFIX}t1 has no schema, and {PREFIX}t0 has one"]),
        ],
        ids=["type", "nothing", "case", "no schema"],
    )
    def test_what_does_not_go_together(
        self, infos: list[str | None], said: list[str]
    ) -> None:
        """Names the topics, the column and SQL's types, and what to do."""
        schema = self.of(
            *(
                None if text is None else SchemaInfo(SchemaType.AVRO, text.encode())
                for text in infos
            )
        )
        with pytest.raises(SchemaError) as caught:
            value_columns_of(schema)
        for text in [*said, r"`allowDifferentTopicSchemas`", r"`\.schema\(\.\.\.\)`"]:
            assert re.search(text, str(caught.value)), text

    def test_columns_that_were_chosen(self) -> None:
        """Only these have to go together; each topic must have one of them."""
        schema = self.of(
            self.avro(ID, ("a", "long")), self.avro(ID, ("a", "string"), NAME)
        )
        with pytest.raises(SchemaError, match="`a` differs"):
            value_columns_of(schema)
        for wanted in (
            columns(id=pa.int64()),
            columns(id=pa.int64(), name=pa.string()),
        ):
            read = reader_schema(schema, wanted, options_of(), is_given=True)
            assert read == schema
        for wanted, said in (
            (columns(name=pa.string()), f"schema of {PREFIX}t0, AVRO: it has none of"),
            (columns(id=pa.int64(), b=pa.string()), "no topic has `b`"),
            (columns(a=pa.int64()), f"of the schema of {PREFIX}t1, AVRO: "),
        ):
            with pytest.raises(SchemaError) as caught:
                reader_schema(schema, wanted, options_of(), is_given=True)
            assert said in str(caught.value)

    def test_fields_that_were_chosen(self) -> None:
        """Of a struct, too, each must be in some topic, and is NULL in the others."""
        structs = [
            json.loads(record(*fields, name="At")) for fields in ([ID], [ID, NAME])
        ]
        schema = self.of(*(self.avro(("at", struct)) for struct in structs))
        wanted = columns(at=pa.struct([("id", pa.int64()), ("name", pa.string())]))
        assert value_columns_of(schema) == wanted
        read = reader_schema(schema, wanted, options_of(), is_given=True)
        assert read == schema
        unknown = columns(at=pa.struct([("id", pa.int64()), ("x", pa.string())]))
        for each, owner in (
            (schema, "no topic has"),
            (schema.first, "it has no field"),
        ):
            with pytest.raises(SchemaError, match=f"{owner} `at.x`"):
                reader_schema(each, unknown, options_of(), is_given=True)

    def test_bytes_of_all(self) -> None:
        """``value BINARY`` reads any topics, but one with such a column itself."""
        wanted = columns(value=pa.binary())
        schema = self.of(self.avro(ID), None, SchemaInfo(SchemaType.STRING, b""))
        read = reader_schema(schema, wanted, options_of(), is_given=True)
        assert read == QuerySchema()
        schema = self.of(self.avro(ID), self.avro(("value", "bytes")))
        with pytest.raises(SchemaError, match=f"is ambiguous for .*{PREFIX}t1"):
            reader_schema(schema, wanted, options_of(), is_given=True)

    def test_aliases(self) -> None:
        """Values of an earlier version are found by them: the schemas differ."""
        alias = {"name": "title", "type": "string", "aliases": ["name"]}
        infos = [
            SchemaInfo(
                SchemaType.AVRO,
                json.dumps({"type": "record", "name": "R", "fields": [each]}).encode(),
            )
            for each in ({"name": "title", "type": "string"}, alias)
        ]
        schemas = dict(zip(names(2), infos, strict=True))
        assert differing_schemas(infos[0], schemas) == {names(2)[1]: infos[1]}


class TestReading:
    """The schema that tasks get: what a query's columns are made with."""

    def read(
        self,
        found: QuerySchema,
        wanted: pa.Schema,
        *,
        is_given: bool = True,
        **options: str,
    ) -> SchemaInfo | None:
        """What tasks get, or the error."""
        read = options_of(**options)
        return reader_schema(found, wanted, read, is_given=is_given).info

    def test_columns_of_the_schema(self) -> None:
        """All, some, in any order; and a narrower struct of one."""
        found = avro(ID, ("at", json.loads(record(ID, NAME, name="At"))))
        for wanted in (
            columns(id=pa.int64(), __topic=pa.string()),
            columns(at=pa.struct([("name", pa.string())]), id=pa.int64()),
        ):
            assert self.read(found, wanted) is found.info

    def test_no_column_of_the_value(self) -> None:
        """Nothing is decoded, so that no value is bad, whatever the schema."""
        wanted = columns(__key=pa.binary(), _corrupt_record=pa.binary())
        assert self.read(kind(99), wanted) is None

    @pytest.mark.parametrize(
        "found", [QuerySchema(), avro(ID), avro(("value", "string")), kind(99)]
    )
    def test_bytes(self, found: QuerySchema) -> None:
        """``.schema("value BINARY")`` reads what no column can hold, too."""
        assert self.read(found, columns(value=pa.binary())) is None

    def test_bytes_that_a_field_has(self) -> None:
        """``value BINARY`` could be all of it or the field: neither is guessed."""
        found, wanted = avro(ID, ("value", "bytes")), columns(value=pa.binary())
        with pytest.raises(
            SchemaError, match=r"`value` BINARY is ambiguous for version"
        ):
            self.read(found, wanted)
        assert self.read(found, wanted, is_given=False) is found.info
        both = columns(value=pa.binary(), id=pa.int64())
        assert self.read(found, both) is found.info

    @pytest.mark.parametrize(
        ("wanted", "problem"),
        [
            (
                columns(id=pa.int64(), value=pa.binary()),
                "there is no column `id`. These topics have no schema, or ",
            ),
            (
                columns(__TOPIC=pa.string()),
                "there is no column `__TOPIC` (it is spelt `__topic`). These",
            ),
            (
                columns(value=pa.string()),
                "`value` is BINARY, not STRING (cast it after reading). These",
            ),
        ],
    )
    def test_topics_without_a_schema(self, wanted: pa.Schema, problem: str) -> None:
        """Have bytes; what else was asked for is told, with what there is."""
        with pytest.raises(SchemaError) as caught:
            self.read(QuerySchema(), wanted)
        assert problem in str(caught.value)
        assert "the columns value, __key, " in str(caught.value)

    @pytest.mark.parametrize(
        ("found", "described"),
        [
            (avro(ID, NAME), "Its columns are `id` BIGINT, `name` STRING. "),
            (avro(ID, ("__key", "bytes")), "Its columns are not known. "),
        ],
    )
    def test_columns_that_it_does_not_have(
        self, found: QuerySchema, described: str
    ) -> None:
        """Names the one that is missing, and those that there are."""
        with pytest.raises(SchemaError) as caught:
            self.read(found, columns(id=pa.int64(), mail=pa.string()))
        text = str(caught.value)
        assert f"The columns asked for cannot be made of {found}: " in text
        assert "`mail`" in text
        assert described in text

    def test_the_column_of_bad_values(self) -> None:
        """Is no field: a row could not say which of the two it has."""
        fields = avro(ID, ("_corrupt_record", "string"))
        wanted = columns(id=pa.int64(), _corrupt_record=pa.binary())
        with pytest.raises(SchemaError, match="`columnNameOfCorruptRecord`"):
            self.read(fields, wanted)
        other = columns(id=pa.int64(), bad=pa.binary())
        assert self.read(fields, other, columnNameOfCorruptRecord="bad") is fields.info
        assert self.read(avro(ID), wanted) == avro(ID).info
        unknown = avro(ID, ("__key", "bytes"))
        assert self.read(unknown, wanted) is unknown.info

    def test_protobuf_as_text(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its text does not say how payloads look: they stay bytes, and it is told."""
        monkeypatch.setattr(statistics, "_warnings", set())
        found = kind(SchemaType.PROTOBUF, record(ID).encode())
        for _ in range(2):
            wanted = columns(value=pa.binary())
            assert self.read(found, wanted, is_given=False) is found.info
        (said,) = caplog.messages
        assert "from_protobuf" in said
        caplog.clear()
        assert self.read(found, wanted) is None
        assert not caplog.messages


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (columns(a=pa.int32()), columns(a=pa.int32()), ""),
        (None, None, ""),
        (None, columns(value=pa.binary()), ""),
        (
            columns(a=pa.int32()),
            columns(a=pa.int32(), b=pa.string()),
            "`b` STRING is new",
        ),
        (columns(a=pa.int32()), columns(a=pa.int64()), "`a` was INT and is BIGINT"),
        (columns(a=pa.int32()), None, "`value` BINARY is new, `a` is gone"),
        (None, columns(a=pa.int32()), "`a` INT is new, `value` is gone"),
        (
            columns(a=pa.int32(), b=pa.int32()),
            columns(b=pa.int32(), a=pa.int32()),
            "their order has changed",
        ),
        (
            columns(a=pa.int32(), b=pa.int32()),
            columns(c=pa.int32(), b=pa.int32(), a=pa.int32()),
            "`c` INT is new, their order has changed",
        ),
        (
            columns(a=pa.int32(), b=pa.int32()),
            columns(a=pa.int32(), c=pa.int32(), b=pa.int32()),
            "`c` INT is new",
        ),
    ],
)
def test_changes(old: pa.Schema | None, new: pa.Schema | None, said: str) -> None:
    """What is told of columns before and after; no schema is the value as bytes."""
    assert changes(old, new) == said
