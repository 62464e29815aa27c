# SPDX-License-Identifier: Apache-2.0
"""The face towards Spark, without Spark running and without a broker."""

from __future__ import annotations

import importlib
import pickle
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    LongType,
    MapType,
    StructField,
    StructType,
    TimestampType,
    YearMonthIntervalType,
)

import pulsar_spark
from pulsar_spark import (
    OptionError,
    PulsarDataSource,
    PulsarPyDataSource,
    SchemaError,
)
from pulsar_spark.arrow.schema import COLUMN_TYPES
from pulsar_spark.client.pool import BrokerAddress
from pulsar_spark.columns import METADATA_COLUMNS_ALL
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import METADATA_COLUMNS_DEFAULT, parse_read_options
from pulsar_spark.source import pulsar_source
from pulsar_spark.source.plan import batch_plan, query_schema
from pulsar_spark.source.plan.query_schema import QuerySchema
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.plan.read_task import ReadTask
from pulsar_spark.spark.batch import PulsarReader
from pulsar_spark.spark.schema import checked_arrow_schema, spark_schema
from spark_topics.spark.reader import TaskPartition
from tests.support.scripted_broker import ScriptedBroker
from tests.test_errors import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPTIONS = {"service.url": "pulsar://127.0.0.1:1", "topic": "my-topic"}
READ_OPTIONS = parse_read_options(OPTIONS)
RANGE = TopicRange(
    "persistent://public/default/my-topic", MessageId(5, 3), MessageId(6, 0, 2, -1, 9)
)
TASK = ReadTask((RANGE,), {RANGE.topic_partition: BrokerAddress("broker:6650")})
PICKLERS = [pickle, cloudpickle]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in here may reach for a broker."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    # The topics have no schema.
    monkeypatch.setattr(query_schema, "find_schema", lambda *_: QuerySchema())


def travelled(value: Any, pickler: Any) -> Any:
    """A value on the other side."""
    return pickle.loads(pickler.dumps(value))  # noqa: S301


def source(**more: str) -> PulsarDataSource:
    """A data source as Spark makes it."""
    return PulsarDataSource({**OPTIONS, **more})


def reader(**more: str) -> PulsarReader:
    """Its reader, of all the columns it has."""
    made = source(**more)
    found = made.reader(made.schema())
    assert isinstance(found, PulsarReader)
    return found


# -- schema ----------------------------------------------------------------------------

_LATEST = (
    "In a batch read: startingOffsets cannot be latest in a batch read: nothing would"
    " be read."
)
_NEVER_DELETED = (
    "In a stream: deleteSubscriptionOnStop cannot be true with predefinedSubscription:"
    " a predefined subscription is never deleted."
)


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        (
            {
                "startingOffsets": "latest",
                "predefinedSubscription": "s",
                "deleteSubscriptionOnStop": "true",
            },
            [
                _LATEST,
                _NEVER_DELETED,
            ],
        ),
        (
            {"startingOffsets": "latest", "maxPartitions": "0"},
            [
                "maxPartitions must be between 1 and 2147483647, not 0.",
                _LATEST,
            ],
        ),
    ],
)
def test_options_that_suit_no_kind_of_read(
    given: dict[str, str], problems: list[str]
) -> None:
    """What is wrong with a stream is said, too: Spark does not say which it is."""
    with pytest.raises(OptionError) as caught:
        source(**given).schema()
    assert list(caught.value.problems) == problems


def test_name():
    """``format("pulsar")``."""
    assert PulsarDataSource.name() == "pulsar"


def test_schema():
    """The value and the Scala connector's columns, in its order."""
    schema = source().schema()
    assert schema.fieldNames() == ["value", *METADATA_COLUMNS_DEFAULT]
    assert schema.simpleString() == (
        "struct<value:binary,__key:binary,__topic:string,__messageId:binary,"
        "__publishTime:timestamp,__eventTime:timestamp,"
        "__messageProperties:map<string,string>>"
    )
    assert all(field.nullable for field in schema)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("none", []),
        ("__topic,__key", ["__topic", "__key"]),
        ("all", list(COLUMN_TYPES)[1:]),
    ],
)
def test_metadata_columns(text: str, columns: list[str]):
    """The value, and the metadata columns that the option names."""
    schema = source(metadataColumns=text).schema()
    assert schema.fieldNames() == ["value", *columns]


def test_options_are_checked():
    """Wrong options are found while the schema is asked for, and by the reader."""
    for ask in (
        PulsarDataSource.schema,
        lambda one: one.reader(spark_schema(["value"])),
    ):
        with pytest.raises(OptionError, match="topicc"):
            ask(PulsarDataSource({"service.url": "pulsar://h:1", "topicc": "t"}))


def test_case_of_options():
    """Spark passes options in a map that knows no case; so do we."""
    assert PulsarDataSource({"SERVICE.URL": "pulsar://h:1", "Topic": "t"}).schema()


@pytest.mark.parametrize(
    "names", [["value"], ["__topic", "value"], ["__key"], list(reversed(COLUMN_TYPES))]
)
def test_subset(names: list[str]):
    """Any columns in any order may be asked for; the reader gives just those."""
    made = source().reader(spark_schema(names))
    assert isinstance(made, PulsarReader)
    assert made._schema.names == names


def not_null(field: StructField) -> StructField:
    """The same column, required."""
    return StructField(field.name, field.dataType, nullable=False)


def strict(field: StructField) -> StructField:
    """The same column, whose parts are required."""
    type_ = field.dataType
    if isinstance(type_, StructType):
        type_ = StructType([not_null(part) for part in type_])
    elif isinstance(type_, MapType):
        type_ = MapType(type_.keyType, type_.valueType, valueContainsNull=False)
    return StructField(field.name, type_)


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        (
            [StructField("_corrupt_record", LongType())],
            [
                "`_corrupt_record` is binary or string, not bigint",
                "`columnNameOfCorruptRecord`",
            ],
        ),
        (
            [StructField("_corrupt_record", BinaryType())],
            ["`_corrupt_record` is NULL without a column of the value: ask for one"],
        ),
        (
            [not_null(StructField("id", LongType()))],
            ["`id` may be NULL, so it cannot be NOT NULL"],
        ),
        (
            [StructField("__publishTime", LongType())],
            ["`__publishTime` is timestamp, not bigint"],
        ),
        (
            [not_null(StructField("__eventTime", TimestampType()))],
            ["`__eventTime` may be NULL, so it cannot be NOT NULL"],
        ),
        (
            [StructField("value", BinaryType()), StructField("value", BinaryType())],
            ["`value` comes twice"],
        ),
        ([], ["it has no column"]),
        (
            [
                StructField("a", YearMonthIntervalType()),
                StructField("b", ArrayType(CalendarIntervalType())),
            ],
            ["`a` is interval year to month, which no", "`b` is array<interval>"],
        ),
        (
            [strict(field) for field in spark_schema(METADATA_COLUMNS_ALL)],
            [
                "`__messageProperties` may have NULL in it, so nothing in it can be",
                "`__position` may have NULL in it",
            ],
        ),
        (
            [StructField("__key", LongType()), StructField("__topic", LongType())],
            ["`__key` is binary, not bigint", "`__topic` is string, not bigint"],
        ),
    ],
)
def test_schemas_that_do_not_fit(fields: list[StructField], texts: list[str]):
    """Each problem is told, and the columns that there are."""
    with pytest.raises(SchemaError) as caught:
        source().reader(StructType(fields))
    message = str(caught.value)
    for text in (*texts, "[PULSAR_SCHEMA]", "has the columns __key, __topic"):
        assert text in message


@pytest.mark.parametrize(
    "name",
    [
        "__topic",
        "__messageId",
        "__publishTime",
        "__messageProperties",
        "__producerName",
        "__sequenceId",
        "__redeliveryCount",
    ],
)
def test_required_columns(name: str):
    """What every message has may be declared NOT NULL."""
    schema = StructType([not_null(spark_schema([name])[0])])
    assert not checked_arrow_schema(schema, READ_OPTIONS).field(0).nullable


# -- what travels ----------------------------------------------------------------------


@pytest.mark.parametrize("pickler", PICKLERS)
def test_reader_travels(pickler: Any):
    """A reader goes to executors: it opens nothing, and comes out as it was."""
    made = reader(metadataColumns="__topic", failOnDataLoss="false")
    copy = travelled(made, pickler)
    assert copy._source == made._source
    assert copy._schema == made._schema
    assert list(copy.read(InputPartition(None))) == []


@pytest.mark.parametrize("pickler", PICKLERS)
def test_input_partition_travels(pickler: Any):
    """An input partition goes to executors; two of one range are equal in text."""
    copy = travelled(TaskPartition(TASK), pickler)
    assert isinstance(copy, TaskPartition)
    assert copy.value == TASK
    assert repr(copy) == repr(TaskPartition(TASK))


@pytest.mark.parametrize("pickler", PICKLERS)
@pytest.mark.parametrize(
    "make",
    [
        lambda: source(),
        lambda: source().schema(),
        lambda: pa.record_batch({"value": [b"x"]}),
    ],
)
def test_others_travel(pickler: Any, make: Callable[[], Any]):
    """The data source and what it gives cross processes, too."""
    made = make()
    copy = travelled(made, pickler)
    if isinstance(made, PulsarDataSource):
        assert dict(copy.options) == dict(made.options)
    else:
        assert copy == made


@pytest.mark.parametrize("pickler", PICKLERS)
@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_travel(pickler: Any, error: pulsar_spark.PulsarSparkError):
    """An error comes back from an executor with its text and all its facts."""
    copy = travelled(error, pickler)
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert copy.retriable == error.retriable


def test_every_error_is_in_the_list():
    """No error that users see is left out above."""
    shown = {
        value
        for name in pulsar_spark.__all__
        if isinstance(value := getattr(pulsar_spark, name), type)
        and issubclass(value, pulsar_spark.PulsarSparkError)
    }
    assert shown == {type(error) for error in EXAMPLES}


# -- planning and reading --------------------------------------------------------------


def test_partitions(monkeypatch: pytest.MonkeyPatch):
    """Spark insists on a list; each task of the plan is one input partition."""
    monkeypatch.setattr(pulsar_source, "shared_pool", lambda options: None)
    for plan in ([], [TASK], [TASK, TASK]):
        monkeypatch.setattr(
            batch_plan, "plan_batch", lambda pool, options, pruning, plan=plan: plan
        )
        found = reader().partitions()
        assert type(found) is list
        assert [one.value for one in found] == plan
        assert {type(one) for one in found} <= {TaskPartition}


def test_an_empty_plan():
    """Where a plan is empty, Spark reads one partition of None: no rows."""
    assert list(reader().read(InputPartition(None))) == []


# -- secrets ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"pulsar.client.authParams": "token:SECRET"},
        {"pulsar.client.authentication.token": "SECRET"},
        {"service.url": "pulsar://user:SECRET@host:6650"},
        {"pulsar.client.tlsTrustStorePassword": "SECRET"},
    ],
)
def test_no_secret_is_shown(options: dict[str, str]):
    """Neither errors nor what is planned repeat what might be a secret."""
    made = PulsarDataSource({**OPTIONS, **options})
    shown = [repr(made)]
    try:
        found = made.reader(made.schema())
    except OptionError as error:
        shown += [str(error), repr(error), repr(vars(error))]
    else:
        shown += [repr(found), repr(vars(found)), repr(found._source)]
    assert "SECRET" not in "".join(shown)


def test_repr_of_an_input_partition():
    """It names the topic and the range, which Spark prints in its plans."""
    text = repr(TaskPartition(TASK))
    assert "my-topic" in text
    assert "TaskPartition" in text


# -- registering -----------------------------------------------------------------------


def test_the_module_that_spark_looks_for():
    """Spark takes ``DefaultSource`` out of modules named ``pyspark_*``."""
    assert importlib.import_module("pyspark_pulsar").DefaultSource is PulsarDataSource
    own = importlib.import_module("pyspark_pulsar_py").DefaultSource
    assert own is PulsarPyDataSource
    assert (PulsarDataSource.name(), own.name()) == ("pulsar", "pulsar-py")


def test_import_starts_nothing():
    """The package can be imported where no Spark, no thread and no broker is."""
    code = (
        "import threading, sys, pulsar_spark; "
        "assert threading.active_count() == 1; "
        "assert 'pandas' not in sys.modules"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=120)


@pytest.mark.parametrize(
    ("module", "others"),
    [
        (
            "pyspark_pulsar",
            [
                "google.protobuf",
                "pyarrow",
                "pulsar_spark.client",
                "pulsar_spark.options",
                "pulsar_spark.loops.messages",
            ],
        ),
        (
            "pulsar_spark.spark.batch",
            ["pulsar_spark.source.read.task", "pyarrow.compute"],
        ),
        (
            "spark_topics.spark.stream_reader",
            ["pulsar_spark.source.read.task", "pyarrow.compute"],
        ),
        (
            "pulsar_spark.source.read.task",
            [
                "pulsar_spark.source.plan.batch_plan",
                "http.client",
                "importlib.metadata",
            ],
        ),
        ("pulsar_spark.source.pulsar_source", ["http.client"]),
    ],
)
def test_processes_import_what_they_need(module: str, others: list[str]):
    """Each query waits for several new processes, one after the other."""
    code = (
        f"import sys, {module}; found = set({others}) & set(sys.modules); "
        "assert not found, found"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=120)


class TestInSpark:
    """With Spark, and a broker that has a topic without a schema."""

    @pytest.fixture
    def options(self) -> Iterator[dict[str, str]]:
        """Where that is."""
        with ScriptedBroker() as broker:
            broker.add_topic("persistent://public/default/my-topic")
            yield {**OPTIONS, "service.url": broker.url}

    @pytest.fixture(autouse=True)
    def no_network(self):
        """Spark's own Python side does need its sockets."""

    @pytest.mark.parametrize(
        "step",
        [
            "source.schema()",
            "source.reader(StructType().add('value', 'binary')).partitions()",
        ],
    )
    def test_processes_on_the_driver(self, options: dict[str, str], step: str):
        """To plan, nothing is imported by which rows are read or written."""
        others = [
            "importlib.metadata",  # reads what all packages say of themselves
            "pyarrow.compute",  # makes hundreds of functions
            "pulsar_spark.arrow.message_columns",
            "pulsar_spark.source.read.task",
            "pulsar_spark.sink",
        ]
        code = (
            "import sys; from pyspark.sql.types import StructType; "
            "before = {*sys.modules}; from pulsar_spark import PulsarDataSource; "
            f"source = PulsarDataSource({options}); {step}; "
            f"found = {{*sys.modules}} & {{*{others}}} - before; "
            "assert not found, found"
        )
        root = Path(__file__).parents[2]
        subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=120)

    def test_by_the_shim(self, spark: Any, options: dict[str, str]):
        """``format("pulsar")`` works with nothing else."""
        frame = spark.read.format("pulsar").options(**options).load()
        assert frame.schema == spark_schema(("value", *METADATA_COLUMNS_DEFAULT))

    def test_by_hand(self, spark: Any, options: dict[str, str]):
        """Registering by hand does no harm, and works where the shim is not there."""

        class OtherName(PulsarDataSource):
            @classmethod
            def name(cls) -> str:
                return "pulsar_by_hand"

        spark.dataSource.register(PulsarDataSource)
        spark.dataSource.register(OtherName)
        for name in ("pulsar", "pulsar_by_hand"):
            frame = spark.read.format(name).options(**options).load()
            assert frame.schema == spark_schema(("value", *METADATA_COLUMNS_DEFAULT))

    def test_errors_reach_the_user(self, spark: Any, options: dict[str, str]):
        """Also of what Spark asks the reader, not the schema."""
        wrong = spark.read.format("pulsar").options(**options).schema("value STRING")
        with pytest.raises(Exception, match=r"PULSAR_SCHEMA.*BINARY, not STRING"):
            wrong.load().collect()
