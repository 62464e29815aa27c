# SPDX-License-Identifier: Apache-2.0
"""Starts and ends of reads: three formats, whose options mean the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from pulsar_spark.options import parse_read_options as parse_pulsar
from spark_topics.errors import OptionError
from spark_topics.options.offsets import Edge
from spark_topics.options.spec import Scope
from tubemq_spark.options import parse_read_options as parse_tubemq
from tubemq_spark.wire.metadata import Partition
from ydb_spark.options.parse import KNOWN
from ydb_spark.options.read import parse_read_options as parse_ydb


class Format(NamedTuple):
    """A format, and how its JSON names two partitions.

    Attributes:
        parse: Returns the start and the end of a read by its options.
        json: JSON with a place for the first partition.
        first: The name of that partition there.
        place: A place as the JSON has it.
        of: Returns the place of the first or second partition.
    """

    parse: Callable[[Mapping[str, str], bool], tuple[Any, Any]]
    json: str
    first: str
    place: str
    of: Callable[[Any, int], object]


def pulsar(options: Mapping[str, str], streaming: bool) -> tuple[Any, Any]:
    """Read options of a read from Pulsar."""
    given = {"service.url": "pulsar://h", "topic": "t", **options}
    read = parse_pulsar(given, streaming=streaming)
    return read.starting_offsets, read.ending_offsets


def pulsar_place(offsets: Any, number: int) -> object:
    """Return the place of a partition of Pulsar's."""
    name = f"persistent://public/default/t-partition-{number}"
    return offsets.topics.get(name, offsets.default)


def tubemq(options: Mapping[str, str], streaming: bool) -> tuple[Any, Any]:
    """Read options of a read from TubeMQ."""
    given = {"master.rpc": "h", "topic": "t", **options}
    read = parse_tubemq(given, Scope.STREAM if streaming else Scope.BATCH)
    return read.starting, read.ending


def ydb(options: Mapping[str, str], streaming: bool) -> tuple[Any, Any]:
    """Read options of a read from YDB."""
    given = {"url": "grpc://h:1/d", "topic": "t", **options}
    read = parse_ydb(given, KNOWN, streaming=streaming)
    return read.starting, read.ending


FORMATS = {
    "pulsar": Format(pulsar, '{"t":{"0":%s}}', "0", '"12:3"', pulsar_place),
    "tubemq": Format(
        tubemq,
        '{"t":{"1:0":%s}}',
        "1:0",
        "56",
        lambda offsets, number: offsets.of(Partition("t", 1, number)),
    ),
    "ydb": Format(
        ydb, '{"0":%s}', "0", "56", lambda offsets, number: offsets.of(number)
    ),
}


@pytest.fixture(params=FORMATS)
def format_(request: pytest.FixtureRequest) -> Format:
    """Each of the three."""
    return FORMATS[request.param]


@pytest.mark.parametrize("streaming", [False, True])
def test_what_nobody_says(format_: Format, streaming: bool):
    """A batch reads all there is, a stream what comes."""
    start, end = format_.parse({}, streaming)
    assert start.default is (Edge.LATEST if streaming else Edge.EARLIEST)
    assert end.default is Edge.LATEST


@pytest.mark.parametrize("word", ["earliest", " EARLIEST ", "latest", "Latest"])
def test_words_are_for_all_partitions(format_: Format, word: str):
    """In any case."""
    start, _ = format_.parse({"startingOffsets": word}, True)
    assert start.default is Edge(word.strip().lower())


@pytest.mark.parametrize(
    ("place", "edge"),
    [
        ('"earliest"', Edge.EARLIEST),
        ('"Latest"', Edge.LATEST),
        ("-2", Edge.EARLIEST),
        ("-1", Edge.LATEST),
    ],
)
def test_words_and_numbers_of_kafka_in_json(format_: Format, place: str, edge: Edge):
    """For single partitions."""
    start, _ = format_.parse({"startingOffsets": format_.json % place}, True)
    assert format_.of(start, 0) is edge


@pytest.mark.parametrize("streaming", [False, True])
def test_what_json_does_not_name_is_read_whole(format_: Format, streaming: bool):
    """No row is left out that nobody has spoken of."""
    text = format_.json % format_.place
    start, _ = format_.parse({"startingOffsets": text}, streaming)
    assert not isinstance(format_.of(start, 0), Edge)
    assert format_.of(start, 1) is Edge.EARLIEST
    if not streaming:
        _, end = format_.parse({"endingOffsets": text}, streaming)
        assert not isinstance(format_.of(end, 0), Edge)
        assert format_.of(end, 1) is Edge.LATEST


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("soon", "is not valid JSON: Expecting value at line 1, column 1"),
        ("{", "is not valid JSON"),
        ("[1]", "must be a JSON object by name"),
        ("1", "must be a JSON object by name"),
        ("1" * 5000, "is not usable JSON"),
        ("[" * 100_000, "is not usable JSON"),
    ],
)
def test_what_is_no_json_by_name_is_said_alike(
    format_: Format, text: str, problem: str
):
    """With an example of the format."""
    with pytest.raises(OptionError) as caught:
        format_.parse({"startingOffsets": text}, False)
    assert f"startingOffsets {problem}" in caught.value.message
    assert "Write earliest, latest, or JSON such as" in caught.value.message


@pytest.mark.parametrize("place", ["true", "null", "1.5", "[]", '"soon"', "-3", "{}"])
def test_what_is_no_place_is_an_error_that_names_the_option(
    format_: Format, place: str
):
    """Numbers are whole, and within what offsets can be."""
    with pytest.raises(OptionError, match="startingOffsets: "):
        format_.parse({"startingOffsets": format_.json % place}, False)


def test_no_partition_is_named_twice(format_: Format):
    """JSON may have a name twice, and readers of JSON take the last."""
    place = f'{format_.place},"{format_.first}":{format_.place}'
    text = format_.json % place
    with pytest.raises(OptionError, match="named twice"):
        format_.parse({"startingOffsets": text}, False)


def test_an_end_at_the_beginning_is_an_error(format_: Format):
    """Nothing would be read.

    Where Pulsar's JSON names one partition, others may be read to their ends.
    """
    named = format_.json % "-2"
    if format_.parse is pulsar:
        format_.parse({"endingOffsets": named}, False)
        named = '{"t":"earliest"}'
    for text in ("earliest", named):
        with pytest.raises(OptionError, match="endingOffsets cannot be earliest"):
            format_.parse({"endingOffsets": text}, False)
