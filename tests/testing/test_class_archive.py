# SPDX-License-Identifier: Apache-2.0
"""One process records the classes of a class path; the others use what it made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pulsar_spark.testing.class_archive import ClassArchive


def writes(option: str) -> None:
    """Ends as a JVM does."""
    Path(option.partition("=")[2]).write_bytes(b"classes")


def refuses(option: str) -> None:
    """Is asked once too often."""
    raise AssertionError(option)


@pytest.fixture
def archive(tmp_path: Path) -> ClassArchive:
    """Of some program."""
    return ClassArchive(tmp_path, sys.executable, "a.jar:b.jar")


def test_recorded_once(archive: ClassArchive, tmp_path: Path) -> None:
    """Nothing is used before, and nothing recorded after."""
    assert not archive.options
    archive.record(writes)
    archive.record(refuses)
    option = archive.options[-1]
    assert Path(option.partition("=")[2]).read_bytes() == b"classes"
    assert ClassArchive(tmp_path, sys.executable, "a.jar").options == ()


def test_a_jvm_that_was_killed(archive: ClassArchive, tmp_path: Path) -> None:
    """It leaves half a file, or none; neither is used."""

    def fails(option: str) -> None:
        writes(option)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        archive.record(fails)
    archive.record(lambda _option: None)
    assert archive.options == ()
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_another_one_records(archive: ClassArchive) -> None:
    """Nobody waits for it: a start without is not worse than before."""

    def meanwhile(option: str) -> None:
        archive.record(refuses)
        writes(option)

    archive.record(meanwhile)
    assert archive.options
