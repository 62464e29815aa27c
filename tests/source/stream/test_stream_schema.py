# SPDX-License-Identifier: Apache-2.0
"""The schema with which a stream goes on, across restarts and changes of its topics."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pulsar_spark.errors import CheckpointError, SchemaError
from pulsar_spark.options import parse_read_options
from pulsar_spark.schemas.info import SchemaInfo, SchemaType, version_bytes
from pulsar_spark.source.plan.query_schema import find_schema, value_columns_of
from pulsar_spark.source.stream.checkpoint import SchemaPin, StreamOffset
from pulsar_spark.source.stream.last_read import LastRead
from pulsar_spark.source.stream.pulsar_offsets import read_offset
from pulsar_spark.source.stream.stream_schema import StreamSchema, hash_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_spark.client.pool import ConnectionPool
    from tests.support.scripted_broker import ScriptedBroker

TOPIC = "persistent://public/default/t"
BYTES = pa.schema([("value", pa.binary())])
IDS = pa.schema([("id", pa.int64())])
ID, NAME, MAIL = (
    {"name": name, "type": type_}
    for name, type_ in (("id", "long"), ("name", "string"), ("mail", "string"))
)


OTHER = "persistent://public/default/u"
ADDRESS, WIDER_ADDRESS, TURNED_ADDRESS = (
    {"name": "at", "type": {"type": "record", "name": "At", "fields": fields}}
    for fields in ([ID], [NAME, ID], [ID, NAME])
)
LIST, WIDER_LIST = (
    {"name": "all", "type": {"type": "array", "items": address["type"]}}
    for address in (ADDRESS, WIDER_ADDRESS)
)


#: Structs of numbers, as errors name them.
X, XY = "STRUCT<x: BIGINT>", "STRUCT<x: BIGINT, y: BIGINT>"


def record(*fields: dict[str, Any], **more: Any) -> str:
    """The text of a record."""
    return json.dumps({"type": "record", "name": "R", "fields": fields, **more})


@pytest.fixture
def load(pool: ConnectionPool) -> Callable[..., StreamSchema]:
    """Loads the query as a new process does, with the columns given or the topics'."""

    def load(columns: pa.Schema | None = None, **given: str) -> StreamSchema:
        given = {"service.url": "pulsar://unused:1", "topics": "t", **given}
        options = parse_read_options(given, streaming=True)
        if columns is not None:
            return StreamSchema(pool, options, columns, None)
        found = find_schema(pool, options)
        return StreamSchema(pool, options, value_columns_of(found) or BYTES, found)

    return load


def kept(pin: SchemaPin | None) -> SchemaPin | None:
    """The pin as it comes back out of a checkpoint."""
    offset = StreamOffset[LastRead]("s", {}, schema=pin)
    return read_offset(json.loads(json.dumps(offset.to_json()))).schema


def number_of(schema: StreamSchema) -> int | None:
    """The version with which it goes on; None for bytes."""
    info = schema.schema.info
    return None if info is None else int.from_bytes(info.version, "big")


def begin(load: Callable[..., StreamSchema], *columns: Any) -> SchemaPin | None:
    """Runs a query for the first time; returns what its checkpoint keeps."""
    schema = load(*columns)
    schema.begin()
    return kept(schema.pin)


def test_it_begins_with_the_latest(
    scripted: ScriptedBroker, load: Callable[..., StreamSchema]
) -> None:
    """And keeps which one that is: where, by which number, and what it says."""
    scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
    latest = scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID, NAME))
    pin = begin(load)
    assert pin == SchemaPin("AVRO", TOPIC, 1, hash_of(latest))


class TestChosenByTheTopics:
    """A query that has the columns of its topics' schema."""

    def test_a_change_that_no_column_sees(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """Goes on with the schema that it began with; it is looked up once."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        pin = begin(load)
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID, doc="the same"))
        schema = load()
        schema.go_on(pin)
        assert number_of(schema) == 0
        assert schema.pin == pin
        scripted.requests.clear()
        schema.go_on(pin)
        schema.go_on(None)
        assert not scripted.requests

    def test_a_change_of_columns(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """Is an error that says which, and both cures; each of them works."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID, NAME))
        pin = begin(load)
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID, MAIL))
        with pytest.raises(SchemaError) as caught:
            load().go_on(pin)
        text = str(caught.value)
        assert f"began with version 0 of the schema of {TOPIC}, AVRO, and " in text
        assert f"have moved on to version 1 of the schema of {TOPIC}, AVRO: " in text
        assert "`mail` STRING is new, `name` is gone. Set `schemaVersion` 0 " in text
        assert "or set `schemaVersion` to latest" in text
        for version, number in (("0", 0), ("latest", 1)):
            schema = load(schemaVersion=version)
            schema.go_on(pin)
            assert number_of(schema) == number
            assert (schema.pin == pin) == (number == 0)

    def test_bytes_first_and_a_schema_later(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """The query had bytes: it is told how to go on with these."""
        scripted.add_topic(TOPIC)
        pin = begin(load)
        assert pin == SchemaPin("NONE")
        schema = load()
        schema.go_on(pin)
        assert schema.schema.info is None
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        with pytest.raises(SchemaError) as caught:
            load().go_on(pin)
        text = str(caught.value)
        assert "The stream began with no schema, and the topics have moved on" in text
        assert "`id` BIGINT is new, `value` is gone" in text
        assert 'Set `.schema("value BINARY, ...")` to go on' in text
        schema = load(BYTES)
        schema.go_on(pin)
        assert schema.schema.info is None

    def test_bytes_whatever_the_topics_have(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """With ``allowDifferentTopicSchemas`` nothing is kept: nothing can change."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        schema = load(allowDifferentTopicSchemas="true")
        schema.begin()
        assert (schema.schema.info, schema.pin) == (None, None)
        assert not scripted.requests

    def test_a_topic_made_again(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """Its numbers begin again: the text counts, not the number."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(MAIL))
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        pin = begin(load)
        assert pin is not None
        assert pin.version == 1
        del scripted.schemas[TOPIC]
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        schema = load()
        schema.go_on(pin)
        assert number_of(schema) == 0
        assert schema.pin is not None
        assert (schema.pin.version, schema.pin.hash) == (0, pin.hash)

    @pytest.mark.parametrize("is_new", [True, False])
    def test_a_schema_that_nobody_knows_any_more(
        self,
        scripted: ScriptedBroker,
        load: Callable[..., StreamSchema],
        is_new: bool,
    ) -> None:
        """Deleted, or of a topic that is another one: an error, no other's columns."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        pin = begin(load)
        del scripted.schemas[TOPIC]
        if is_new:
            scripted.add_schema(TOPIC, SchemaType.AVRO, record(NAME))
        with pytest.raises(SchemaError) as caught:
            load().go_on(pin)
        text = str(caught.value)
        assert f"version 0 of the schema of {TOPIC}, AVRO, which the cluster " in text
        assert "does not know any more" in text
        assert "use a new checkpoint location" in text

    def test_an_offset_without_a_schema(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """As older versions wrote them: the schema of now, and kept from now on."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        schema = load()
        schema.go_on(None)
        assert number_of(schema) == 0
        assert schema.pin is not None


class TestEvolution:
    """``schemaEvolution``: columns that topics got while the stream was down."""

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ([ID], [ID, MAIL]),
            ([ID], [MAIL, ID]),
            ([ID, MAIL], [MAIL, ID, NAME]),
            ([ID, ADDRESS], [ID, WIDER_ADDRESS]),
            ([LIST], [WIDER_LIST]),
        ],
        ids=["behind", "before", "in another order", "in a struct", "in a list"],
    )
    def test_what_is_added(
        self,
        scripted: ScriptedBroker,
        load: Callable[..., StreamSchema],
        caplog: pytest.LogCaptureFixture,
        before: list[dict[str, Any]],
        after: list[dict[str, Any]],
    ) -> None:
        """Additive takes them and says so; the error without it names the option."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(*before))
        pin = begin(load)
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(*after))
        with pytest.raises(SchemaError, match="set `schemaEvolution` to additive"):
            load().go_on(pin)
        schema = load(schemaEvolution="additive")
        schema.go_on(pin)
        assert number_of(schema) == 1
        assert schema.pin is not None
        assert schema.pin.version == 1
        (line,) = caplog.messages
        assert "as `schemaEvolution` says: " in line
        again = load(schemaEvolution="additive")
        again.go_on(kept(schema.pin))
        assert len(caplog.messages) == 1

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ([ID, MAIL], [ID]),
            ([ID], [{"name": "id", "type": "string"}]),
            ([ID, WIDER_ADDRESS], [ID, ADDRESS, MAIL]),
            ([WIDER_LIST], [LIST, ID]),
            ([ID, MAIL], [MAIL, ID]),
            ([WIDER_ADDRESS], [TURNED_ADDRESS]),
        ],
        ids=[
            "gone",
            "another type",
            "gone in a struct",
            "gone in a list",
            "order",
            "order in a struct",
        ],
    )
    def test_any_other_change(
        self,
        scripted: ScriptedBroker,
        load: Callable[..., StreamSchema],
        before: list[dict[str, Any]],
        after: list[dict[str, Any]],
    ) -> None:
        """Stays an error, which does not name the option."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(*before))
        pin = begin(load)
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(*after))
        with pytest.raises(SchemaError, match="have moved on") as caught:
            load(schemaEvolution="additive").go_on(pin)
        assert "schemaEvolution" not in str(caught.value)

    def test_bytes_first(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """A schema for bytes replaces their column: it adds nothing."""
        scripted.add_topic(TOPIC)
        pin = begin(load)
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        with pytest.raises(SchemaError, match="have moved on"):
            load(schemaEvolution="additive").go_on(pin)


class TestSeveralTopics:
    """Each topic is read by its own schema, also after a restart."""

    def two(self, scripted: ScriptedBroker) -> None:
        """A topic in AVRO, and another one in JSON with a further field."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        scripted.add_schema(OTHER, SchemaType.JSON, record(ID, MAIL))

    @pytest.mark.parametrize("columns", [None, IDS])
    def test_a_restart(
        self,
        scripted: ScriptedBroker,
        load: Callable[..., StreamSchema],
        columns: pa.Schema | None,
    ) -> None:
        """The checkpoint names each schema; topics that moved on keep theirs."""
        self.two(scripted)
        schema = load(columns, topics="t,u")
        schema.begin()
        pin = kept(schema.pin)
        assert pin == schema.pin
        assert pin is not None
        assert [(each.topic, each.type) for each in pin.others] == [(OTHER, "JSON")]
        for topic, type_ in ((TOPIC, SchemaType.AVRO), (OTHER, SchemaType.JSON)):
            fields = [{**ID, "default": 5}, *([MAIL] if topic == OTHER else [])]
            scripted.add_schema(topic, type_, record(*fields))
        again = load(columns, topics="t,u")
        again.go_on(pin)
        assert again.schema == schema.schema
        assert again.pin == pin

    def test_a_topic_that_is_new(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """Is read by its own schema from the next start on, and kept from then on."""
        self.two(scripted)
        schema = load(topics="t,u")
        schema.begin()
        pin = kept(schema.pin)
        new = f"{OTHER}2"
        info = scripted.add_schema(new, SchemaType.AVRO, record(MAIL, ID))
        scripted.add_schema(f"{OTHER}3", SchemaType.AVRO, record(ID))
        given = {"topics": "t,u,u2,u3"}
        again = load(**given)
        again.go_on(pin)
        assert dict(again.schema.others) == {**schema.schema.others, new: info}
        assert again.pin is not None
        assert [each.topic for each in again.pin.others] == [OTHER, new]

    @pytest.mark.parametrize("is_deleted", [False, True])
    def test_the_first_topic_left(
        self,
        scripted: ScriptedBroker,
        load: Callable[..., StreamSchema],
        is_deleted: bool,
    ) -> None:
        """The others are read as before, though their first topic is another one."""
        self.two(scripted)
        scripted.add_schema(f"{OTHER}2", SchemaType.JSON, record(ID, MAIL))
        schema = load(topics="t,u,u2")
        schema.begin()
        if is_deleted:
            del scripted.schemas[TOPIC]
        again = load(topics="u,u2")
        again.go_on(kept(schema.pin))
        assert again.schema.topic == OTHER
        assert again.pin is not None
        assert again.pin.topic == OTHER
        third = load(topics="u,u2")
        third.go_on(kept(again.pin))
        assert third.pin == again.pin

    def test_a_first_topic_that_shared_its_schema(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """A topic with the same schema takes its place, also if it has moved on."""
        self.two(scripted)
        scripted.add_schema(f"{OTHER}2", SchemaType.AVRO, record(ID))
        schema = load(topics="t,u,u2")
        schema.begin()
        pin = kept(schema.pin)
        del scripted.schemas[TOPIC]
        given = {"topics": "u,u2", "schemaEvolution": "additive"}
        for fields in ((ID,), (ID, NAME)):
            again = load(**given)
            again.go_on(pin)
            assert again.pin is not None
            assert (again.pin.topic, again.pin.version) == (f"{OTHER}2", 0)
            assert again.pin.others == pin.others
            scripted.add_schema(f"{OTHER}2", SchemaType.AVRO, record(*fields, MAIL))

    def test_nothing_is_left_of_what_it_began_with(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """Is an error: nothing tells what columns it had."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        pin = begin(load)
        del scripted.schemas[TOPIC]
        scripted.add_schema(OTHER, SchemaType.AVRO, record(ID, doc="another"))
        with pytest.raises(SchemaError, match=f"the schema of {TOPIC}, AVRO, which "):
            load(topics="u").go_on(pin)

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ([ID], [NAME, ID]),
            ([ID, NAME], [ID, MAIL, NAME]),
            ([ID, NAME], [MAIL, ID, NAME]),
        ],
        ids=["before", "between", "in front"],
    )
    def test_a_new_first_topic(
        self,
        scripted: ScriptedBroker,
        load: Callable[..., StreamSchema],
        old: list[dict[str, Any]],
        new: list[dict[str, Any]],
    ) -> None:
        """Its further columns are taken where they stand; so they stay from then on."""
        scripted.add_schema(OTHER, SchemaType.AVRO, record(*old))
        schema = load(topics="u")
        schema.begin()
        pin = kept(schema.pin)
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(*new))
        for _ in range(3):
            again = load(topics="t,u")
            again.go_on(pin)
            pin = kept(again.pin)
            assert pin == again.pin
            assert pin is not None
            assert pin.topic == OTHER
            assert pin.columns == tuple(field["name"] for field in new)

    def test_a_new_first_topic_of_another_order(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """Is an error: Spark takes state by position. The columns it names do."""
        scripted.add_schema(OTHER, SchemaType.AVRO, record(ID, NAME))
        schema = load(topics="u")
        schema.begin()
        pin = kept(schema.pin)
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(NAME, MAIL, ID))
        for evolution in ("none", "additive"):
            with pytest.raises(SchemaError) as caught:
                load(topics="t,u", schemaEvolution=evolution).go_on(pin)
            text = str(caught.value)
            assert ": their order has changed. " in text
            assert 'Set `.schema("`id` BIGINT, `name` STRING, `mail` STRING")`' in text
            assert "additive" not in text
        columns = pa.schema([("id", pa.int64()), ("name", pa.string())])
        chosen = load(columns, topics="t,u")
        chosen.go_on(pin)
        assert chosen.schema.others.keys() == {TOPIC}

    def test_the_next_first_topic_has_another_order(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """The checkpoint has the order, though the first topic's schema is gone."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID, NAME))
        scripted.add_schema(OTHER, SchemaType.AVRO, record(NAME, ID))
        schema = load(topics="t,u")
        schema.begin()
        del scripted.schemas[TOPIC]
        with pytest.raises(SchemaError, match="order has changed") as caught:
            load(topics="u").go_on(kept(schema.pin))
        assert '`.schema("`id` BIGINT, `name` STRING")`' in str(caught.value)

    @pytest.mark.parametrize(
        ("before", "after", "said", "adds"),
        [
            ({"t": "int"}, {"t": "int", "u": "long"}, "INT and is BIGINT", False),
            ({"t": "double", "u": "int"}, {"u": "int"}, "DOUBLE and is INT", False),
            ({"t": "x", "u": "x"}, {"t": "x", "u": "xy"}, f"{X} and is {XY}", True),
            ({"t": "x"}, {"t": "x", "u": "xy"}, f"{X} and is {XY}", True),
            ({"t": "xy", "u": "x"}, {"u": "x"}, f"{XY} and is {X}", False),
            ({"u": "xy"}, {"t": "yx", "u": "xy"}, f"{XY} and is STRUCT<y: ", False),
        ],
        ids=["wider", "narrower", "grown", "grown by another", "shrunk", "order"],
    )
    def test_a_column_of_another_type(
        self,
        scripted: ScriptedBroker,
        load: Callable[..., StreamSchema],
        before: dict[str, str],
        after: dict[str, str],
        said: str,
        adds: bool,
    ) -> None:
        """Is an error, whichever topics come, go or move on; additive lets it grow."""
        pin = None
        for types in (before, after):
            for topic, name in types.items():
                fields = [{"name": each, "type": "long"} for each in name]
                struct = {"type": "record", "name": "S", "fields": fields}
                type_ = name if len(name) > 2 else struct
                scripted.add_schema(
                    f"{TOPIC[:-1]}{topic}",
                    SchemaType.AVRO,
                    record(ID, {"name": "a", "type": type_}),
                )
            if types is before:
                schema = load(topics=",".join(before))
                schema.begin()
                pin = kept(schema.pin)
        topics = ",".join(after)
        with pytest.raises(SchemaError, match=f"`a` was {said}") as caught:
            load(topics=topics).go_on(pin)
        assert ("set `schemaEvolution` to additive" in str(caught.value)) == adds
        began, moved, now = str(caught.value).partition(
            ", and the topics have moved on"
        )
        assert not moved or began.partition("began with ")[2] not in now
        grows = load(topics=topics, schemaEvolution="additive")
        if not adds:
            with pytest.raises(SchemaError, match=f"`a` was {said}"):
                grows.go_on(pin)
            return
        grows.go_on(pin)
        again = load(topics=topics)
        again.go_on(kept(grows.pin))
        assert again.pin == grows.pin

    def test_the_cure_of_another_type(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """Names columns which all topics have; where there are none, no columns."""
        for topic, type_ in ((TOPIC, "double"), (OTHER, "int")):
            field = {"name": "a", "type": type_}
            scripted.add_schema(topic, SchemaType.AVRO, record(field))
        schema = load(topics="t,u")
        schema.begin()
        with pytest.raises(SchemaError) as caught:
            load(topics="u").go_on(kept(schema.pin))
        assert 'Set `.schema("`a` DOUBLE")` to go on' in str(caught.value)
        chosen = load(pa.schema([("a", pa.float64())]), topics="u")
        chosen.go_on(kept(schema.pin))
        alone = load(topics="u")
        alone.begin()
        with pytest.raises(SchemaError, match="Read the topics that have other types "):
            load(topics="t,u").go_on(kept(alone.pin))

    def test_a_checkpoint_without_types(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """As older versions wrote it: the stream goes on, and types are kept then."""
        self.two(scripted)
        schema = load(topics="t,u")
        schema.begin()
        assert schema.pin is not None
        assert schema.pin.types == ("BIGINT", "STRING")
        again = load(topics="t,u")
        again.go_on(kept(replace(schema.pin, types=())))
        assert again.pin == schema.pin
        with pytest.raises(CheckpointError, match='"WORDS" is no type'):
            load(topics="t,u").go_on(replace(schema.pin, types=("BIGINT", "WORDS")))

    def test_a_schema_that_is_gone(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """Is an error that names its topic, unless the options no longer do."""
        self.two(scripted)
        schema = load(topics="t,u")
        schema.begin()
        pin = kept(schema.pin)
        del scripted.schemas[OTHER]
        scripted.add_schema(OTHER, SchemaType.AVRO, record(ID, MAIL))
        with pytest.raises(SchemaError, match=f"the schema of {OTHER}, JSON, which "):
            load(topics="t,u").go_on(pin)
        chosen = load(IDS, topics="t,u")
        chosen.go_on(pin)
        assert chosen.schema.others.keys() == {OTHER}
        alone = load(IDS, topics="t")
        alone.go_on(pin)
        assert not alone.schema.others

    def test_what_is_told(
        self,
        scripted: ScriptedBroker,
        load: Callable[..., StreamSchema],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Each topic is compared with the schema by which it is read."""
        self.two(scripted)
        schema = load(topics="t,u")
        schema.begin()
        schema.look([TOPIC, OTHER])
        assert not caplog.messages
        scripted.add_schema(OTHER, SchemaType.JSON, record(ID, MAIL, NAME))
        schema.look([TOPIC, OTHER])
        (line,) = caplog.messages
        assert line.startswith(f"{OTHER} has moved on to version 1 of the schema")
        assert "(`name` STRING is new)" in line


class TestChosenByTheUser:
    """A query whose columns the user chose, by ``.schema(...)``."""

    def test_columns_that_it_began_with(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """The schema stays the one that it began with as long as that has them."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        pin = begin(load, IDS)
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID, MAIL))
        schema = load(IDS)
        schema.go_on(pin)
        assert number_of(schema) == 0

    def test_columns_that_only_a_later_one_has(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """So a column can be added to a query without a new checkpoint."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        pin = begin(load, IDS)
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID, MAIL))
        wider = pa.schema([("id", pa.int64()), ("mail", pa.string())])
        schema = load(wider)
        schema.go_on(pin)
        assert number_of(schema) == 1
        assert schema.pin != pin

    def test_a_schema_that_nobody_knows_any_more(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """The latest will do, as the user said what is wanted."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        pin = begin(load, IDS)
        del scripted.schemas[TOPIC]
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(NAME, ID))
        schema = load(IDS)
        schema.go_on(pin)
        assert schema.schema.info is not None
        assert b"name" in schema.schema.info.data

    def test_columns_that_no_version_has(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """The error is about the latest."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(NAME))
        pin = begin(load, pa.schema([("name", pa.string())]))
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(MAIL))
        with pytest.raises(SchemaError, match=r"made of version 1 of .*: .*`id`"):
            load(IDS).go_on(pin)

    def test_bytes(
        self, scripted: ScriptedBroker, load: Callable[..., StreamSchema]
    ) -> None:
        """Have no schema to keep, also of a query that had columns before."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        pin = begin(load)
        schema, again = load(BYTES), load(BYTES)
        schema.begin()
        again.go_on(pin)
        for one in (schema, again):
            assert (one.schema.info, one.pin) == (None, None)


class TestLooking:
    """Topics that move on while a stream runs."""

    def run(self, load: Callable[..., StreamSchema], **options: str) -> StreamSchema:
        """A stream that has begun."""
        schema = load(**options)
        schema.begin()
        return schema

    def test_each_version_is_told_once(
        self,
        scripted: ScriptedBroker,
        load: Callable[..., StreamSchema],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Which topic, which version, and what would change; not for what is alike."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        schema = self.run(load)
        partitions = [f"{TOPIC}-partition-{index}" for index in range(3)]
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID, doc="the same"))
        schema.look(partitions)
        assert caplog.messages == []
        for fields in ((ID, NAME), (ID, MAIL)):
            scripted.add_schema(TOPIC, SchemaType.AVRO, record(*fields))
            schema.look(partitions)
            schema.look(partitions)
        assert caplog.messages == [
            f"{TOPIC} has moved on to version {number} of the schema of {TOPIC}, AVRO "
            f"(`{name}` STRING is new). The stream goes on with the columns that it "
            "began with, and reads what it can as these."
            for number, name in ((2, "name"), (3, "mail"))
        ]

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda broker: broker.schemas.clear(), "to no schema. The stream"),
            (lambda broker: broker.delete_schema(TOPIC), "to no schema. The stream"),
            (
                lambda broker: broker.add_schema(TOPIC, SchemaType.AVRO, "{"),
                ", AVRO (There are no columns for version 1 of",
            ),
            # The same columns, and other values.
            (
                lambda broker: broker.add_schema(TOPIC, SchemaType.JSON, record(ID)),
                f"of {TOPIC}, JSON. The stream",
            ),
        ],
        ids=["gone", "deleted", "damaged", "JSON"],
    )
    def test_what_it_moved_on_to(
        self,
        scripted: ScriptedBroker,
        load: Callable[..., StreamSchema],
        caplog: pytest.LogCaptureFixture,
        change: Callable[[ScriptedBroker], None],
        said: str,
    ) -> None:
        """No schema, one without columns, or one of another type."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        schema = self.run(load)
        change(scripted)
        schema.look([TOPIC])
        (message,) = caplog.messages
        assert said in message

    @pytest.mark.parametrize(
        ("options", "asks"),
        [
            ({}, True),
            ({"schemaVersion": "latest"}, True),
            ({"schemaVersion": "0"}, False),
            ({"allowDifferentTopicSchemas": "true"}, False),
        ],
    )
    def test_who_is_not_told(
        self,
        scripted: ScriptedBroker,
        load: Callable[..., StreamSchema],
        options: dict[str, str],
        asks: bool,
    ) -> None:
        """Who wants one version, or bytes: no broker is asked."""
        scripted.add_schema(TOPIC, SchemaType.AVRO, record(ID))
        schema = self.run(load, **options)
        scripted.requests.clear()
        schema.look([TOPIC])
        assert scripted.requests["GET_SCHEMA"] == asks


@pytest.mark.parametrize(
    "other",
    [
        SchemaInfo(SchemaType.JSON, b"{}", {"a": "b"}),
        SchemaInfo(SchemaType.AVRO, b"[]", {"a": "b"}),
        SchemaInfo(SchemaType.AVRO, b"{}", {"a": "c"}),
        SchemaInfo(SchemaType.AVRO, b"{}"),
    ],
)
def test_a_hash_of_all_that_a_schema_says(other: SchemaInfo) -> None:
    """Type, text and properties count, and not the number of its version."""
    one = SchemaInfo(SchemaType.AVRO, b"{}", {"a": "b"})
    again = SchemaInfo(SchemaType.AVRO, b"{}", {"a": "b"}, version_bytes(5))
    assert hash_of(one) == hash_of(again) != hash_of(other)
