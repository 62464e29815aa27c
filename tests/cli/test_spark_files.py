# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.cli.spark_files`."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from pulsar_spark.cli.spark_files import Checkpoint
from pulsar_spark.cli.spark_files import _open as open_place
from pulsar_spark.errors import CheckpointError
from pulsar_spark.source.stream.last_read import LastRead
from tests.support.checkpoints import QUERY_ID, offset, write_checkpoint

T = "persistent://public/default/t"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint with another source before ours."""
    ends = {n: [{"some": "thing"}, offset({T: f"7:{n}"}), "-"] for n in (8, 9, 10)}
    return write_checkpoint(tmp_path / "c", ends, 9)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "FILE:{}"])
def test_what_is_there(folder: Path, form: str) -> None:
    """Numbers in their order, other files apart; sources by their place."""
    (folder / "offsets" / ".11.tmp").write_text("")
    one = Checkpoint(form.format(folder))
    assert one.query_id == QUERY_ID
    assert one.planned() == [8, 9, 10]
    assert one.committed() == [8, 9]
    assert not one.has_state()
    (place,) = one.end(10).sources
    assert place == 1
    assert one.end(10).sources[1].last_read == {T: LastRead(7, 10)}


def test_replacing(folder: Path) -> None:
    """One line is another one, its checksum is gone, and a copy is kept."""
    one = Checkpoint(str(folder))
    before = (folder / "offsets" / "10").read_text()
    planned = one.end(10)
    new = replace(planned.sources[1], last_read={T: LastRead(8, 1)})
    kept = one.keep_copies(["offsets/10"])
    assert one.keep_copies(["offsets/10"]) != kept
    one.replace("offsets/10", planned.with_source(1, new))
    assert (folder / kept / "offsets" / "10").read_text() == before
    lines = (folder / "offsets" / "10").read_text().split("\n")
    expected = before.split("\n")
    expected[3] = json.dumps(offset({T: "8:1"}))
    assert lines == expected
    assert not (folder / "offsets" / ".10.crc").exists()
    names = {path.name for path in (folder / "offsets").iterdir()}
    assert names == {"8", "9", "10", ".8.crc", ".9.crc"}


def test_an_unchanged_offset_has_the_same_text(folder: Path) -> None:
    """Spark compares offsets as text."""
    planned = Checkpoint(str(folder)).end(9)
    text = (folder / "offsets" / "9").read_text()
    assert planned.with_source(1, planned.sources[1]) == text


def test_no_checkpoint(tmp_path: Path) -> None:
    """A folder of something else is an error that says what is meant."""
    with pytest.raises(CheckpointError, match="checkpointLocation"):
        Checkpoint(str(tmp_path))


def test_forms_of_later_versions(folder: Path) -> None:
    """They are an error, not misread."""
    path = folder / "offsets" / "10"
    path.write_text(path.read_text().replace("v1", "v2", 1))
    with pytest.raises(CheckpointError, match="'v2'; this version reads v1"):
        Checkpoint(str(folder)).end(10)


def test_places_that_arrow_does_not_know() -> None:
    """They are an error that shows no more than the scheme."""
    with pytest.raises(CheckpointError, match="no file system for wasbs:") as caught:
        Checkpoint("wasbs://user:secret@host/path")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "cure"),
    [
        ("hdfs://secret:x/y", r"hdfs: could not be opened \(\w+\): check .*CLASSPATH"),
        ("abfs://secret/x", r"abfs: could not be opened \(\w+\): check the URI and"),
    ],
)
def test_places_that_do_not_open(location: str, cure: str) -> None:
    """The error says what to look at, and nothing of the URI."""
    with pytest.raises(CheckpointError, match=cure) as caught:
        Checkpoint(location)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "path", ["my checkpoints/a", "date%3D1/a", "ä/ü", "a+b", "a#b", "[a]", "a:b@c"]
)
@pytest.mark.parametrize("place", ["gs://bucket", "GS://bucket"])
def test_paths_are_literal(place: str, path: str) -> None:
    """As in Hadoop: what Arrow looks for is what was given, behind the bucket."""
    files, found = open_place(f"{place}/{path}")
    assert (files.type_name, found) == ("gcs", f"bucket/{path}")


@pytest.mark.parametrize("name", ["caf\udce9", "a\0b"])
def test_paths_that_cannot_be(tmp_path: Path, name: str) -> None:
    """They are an error of ours, not Arrow's or Python's."""
    with pytest.raises(CheckpointError, match="cannot be read or written"):
        Checkpoint(str(tmp_path / name))


@pytest.mark.parametrize("left", ["", "v", "v1", "v1\n", "v1\n{}"])
def test_a_file_that_was_cut_off(folder: Path, left: str) -> None:
    """The error says so, and does not speak of versions."""
    (folder / "offsets" / "10").write_text(left)
    with pytest.raises(CheckpointError, match="offsets/10 is empty or cut off"):
        Checkpoint(str(folder)).end(10)


@pytest.mark.parametrize("damaged", [".", "metadata", "offsets", "offsets/10"])
def test_what_cannot_be_read(folder: Path, damaged: str) -> None:
    """A file for a folder, or the other way round, is one error that names it."""
    place = folder / damaged
    if place.is_dir():
        place.rename(folder.parent / "away")
        place.write_text("{}")
    else:
        place.unlink()
        place.mkdir()
    with pytest.raises(CheckpointError, match="cannot be read or written") as caught:
        Checkpoint(str(folder)).end(10)
    assert str(folder) in str(caught.value)


def test_what_cannot_be_written(folder: Path) -> None:
    """Nothing is replaced, and the error says why."""
    one = Checkpoint(str(folder))
    (folder / "offsets" / f".10.{os.getpid()}.tmp").mkdir()
    before = (folder / "offsets" / "10").read_text()
    with pytest.raises(CheckpointError, match="Is a directory"):
        one.replace("offsets/10", "text")
    assert (folder / "offsets" / "10").read_text() == before


@pytest.mark.parametrize(
    "uri",
    ["file://me:hunter2@{}?key=hunter2", "file://hunter2@{}", "file://{}?hunter2"],
)
def test_secrets_in_a_uri(tmp_path: Path, uri: str) -> None:
    """They are not shown, whatever is wrong."""
    with pytest.raises(CheckpointError) as caught:
        Checkpoint(uri.format(tmp_path))
    assert str(tmp_path) in str(caught.value)
    assert "hunter2" not in str(caught.value)
