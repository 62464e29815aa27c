# SPDX-License-Identifier: Apache-2.0
"""The files of a streaming query's checkpoint.

::

    metadata      {"id":"97b5e959-..."}          the query
    offsets/7     v1                             micro-batch 7 was planned: its end
                  {"batchWatermarkMs":0,...}
                  {"v": 1, "lastRead": ...}      one line a source, "-" for none
    commits/7     v1                             and it is done
                  {"nextBatchWatermarkMs":0}

On a file system of this machine Spark keeps a checksum next to each file, ``.7.crc``,
and refuses a file that it does not fit; one without it is taken as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from pulsar_spark.errors import CheckpointError, foreign_text
from pulsar_spark.source.stream.checkpoint import StreamOffset
from pulsar_spark.source.stream.last_read import LastRead
from pulsar_spark.source.stream.pulsar_offsets import read_offset

_VERSION = "v1"

#: Names that Hadoop has for what others name otherwise.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}

#: What to look at where Arrow does not open a file system.
_CURES = {
    "s3": "the network, the region (AWS_REGION) and credentials (AWS_PROFILE, or"
    " AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY)",
    "hdfs": "that libjvm and libhdfs are found (JAVA_HOME, HADOOP_HOME, CLASSPATH)",
}

#: No log of a query has a file this large.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Planned:
    """A micro-batch of which the end is recorded.

    Attributes:
        batch_id: Its number.
        lines: The file, line by line.
        sources: The ends of those of its sources that are ours, by their place among
            all sources, from 0.
    """

    batch_id: int
    lines: tuple[str, ...]
    sources: Mapping[int, StreamOffset[LastRead]]

    def with_source(self, place: int, offset: StreamOffset[LastRead]) -> str:
        """Return the file's text with a source's end replaced."""
        lines = list(self.lines)
        # In the form that Spark's Python writes: Spark compares offsets as text.
        lines[2 + place] = json.dumps(offset.to_json())
        return "\n".join(lines)


class Checkpoint:
    """A checkpoint's files.

    Args:
        location: A path, or a URI of a file system that Arrow knows: file, s3, gs,
            abfs, hdfs.

    Attributes:
        location: The same, without what may be a secret in a URI.
        query_id: The id of the query, "" if it has none yet.

    Raises:
        CheckpointError: There is none, or it cannot be read.
    """

    def __init__(self, location: str) -> None:
        self.location = _shown(location)
        self._files, self._root = _open(location)
        text = self._read("metadata")
        if text is None and not self._numbers("offsets"):
            raise CheckpointError(
                f"There is no checkpoint of a query at {self.location}: it has neither"
                " metadata nor offsets. Name the query's checkpointLocation."
            )
        self.query_id = _query_id(text or "")

    def planned(self) -> list[int]:
        """Return the numbers of the micro-batches whose ends are recorded."""
        return self._numbers("offsets")

    def committed(self) -> list[int]:
        """Return the numbers of committed micro-batches."""
        return self._numbers("commits")

    def end(self, batch_id: int) -> Planned:
        """Return the recorded end of a micro-batch.

        Raises:
            CheckpointError: It is not recorded, or in a form that is not known.
        """
        text = self._read(f"offsets/{batch_id}")
        if text is None:
            raise CheckpointError(
                f"{self.location} has no offsets of micro-batch {batch_id}."
            )
        lines = tuple(text.split("\n"))
        if len(lines) < 3 and _VERSION.startswith(lines[0].strip()):
            raise CheckpointError(
                f"{self.location}/offsets/{batch_id} is empty or cut off, as a crash or"
                " a full disk leaves a file. Spark cannot read it, either: restore it"
                " from a copy."
            )
        if lines[0].strip() != _VERSION or len(lines) < 3:
            raise CheckpointError(
                f"{self.location}/offsets/{batch_id} has the form "
                f"{foreign_text(lines[0], 20)!r}; this version reads {_VERSION}."
            )
        return Planned(batch_id, lines, dict(_ours(lines[2:])))

    def keep_copies(self, names: Iterable[str]) -> str:
        """Copy files into a folder of the checkpoint, and return the folder's name."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        folder = f"before-{stamp}"
        count = 1
        while self._exists(folder):
            count += 1
            folder = f"before-{stamp}-{count}"
        for name in names:
            data = self._read(name)
            assert data is not None, name
            copy = f"{folder}/{name}"
            with self._explained(copy):
                path = posixpath.dirname(self._path(copy))
                self._files.create_dir(path, recursive=True)
            self._write(copy, data)
        return folder

    def replace(self, name: str, text: str) -> None:
        """Replace a file atomically."""
        folder, _, last = name.rpartition("/")
        # Spark looks at nothing that begins with a dot, nor at what is no number.
        passing = f"{folder}/.{last}.{os.getpid()}.tmp"
        self._write(passing, text)
        checksum = f"{folder}/.{last}.crc"
        with self._explained(name):
            if self._exists(checksum):
                self._files.delete_file(self._path(checksum))
            self._files.move(self._path(passing), self._path(name))

    def has_state(self) -> bool:
        """Return whether the query keeps state between micro-batches."""
        return self._exists("state")

    # -- files -------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return posixpath.join(self._root, name)

    @contextlib.contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        """Turn errors of the file system into CheckpointError; pass on absent files."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            # What Arrow says of a place elsewhere may quote its URI.
            number = getattr(error, "errno", None)
            why = os.strerror(number) if number else type(error).__name__
            raise CheckpointError(
                f"{self.location}/{name} cannot be read or written: {why}. Name the"
                " query's checkpointLocation, as somebody who may write there."
            ) from None

    def _exists(self, name: str) -> bool:
        with self._explained(name):
            info = self._files.get_file_info(self._path(name))
        return bool(info.type != fs.FileType.NotFound)

    def _numbers(self, folder: str) -> list[int]:
        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        with self._explained(folder):
            names = [info.base_name for info in self._files.get_file_info(selector)]
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def _read(self, name: str) -> str | None:
        try:
            with (
                self._explained(name),
                self._files.open_input_stream(self._path(name)) as file,
            ):
                data = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        if len(data) > _MOST_BYTES:
            raise CheckpointError(f"{self.location}/{name} is no file of a checkpoint.")
        return str(data.decode(errors="replace"))

    def _write(self, name: str, text: str) -> None:
        with (
            self._explained(name),
            self._files.open_output_stream(self._path(name)) as file,
        ):
            file.write(text.encode())


def _shown(location: str) -> str:
    """Return a location without the user and the parameters of a URI, as keys are."""
    scheme, mark, rest = location.partition("://")
    if mark:
        place = rest.partition("?")[0]
        host, slash, path = place.partition("/")
        location = f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
    return foreign_text(location, 1000)


def _open(location: str) -> tuple[Any, str]:
    """Return the file system of a location, and the path there."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return fs.LocalFileSystem(), os.path.abspath(location)
    scheme = scheme.lower()
    if scheme == "file":
        return fs.LocalFileSystem(), "/" + rest.lstrip("/")
    uri = f"{_SCHEMES.get(scheme, scheme)}:{_quoted(rest)}"
    try:
        files, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError, ValueError) as error:
        # What Arrow says may quote the URI, and that may hold a key.
        if "Unrecognized filesystem" in str(error):
            why = f"Arrow has no file system for {scheme}:"
        else:
            why = f"{scheme}: could not be opened ({type(error).__name__})"
            cure = _CURES.get(_SCHEMES.get(scheme, scheme), "the URI and credentials")
            why += f": check {cure}"
        raise CheckpointError(f"The checkpoint cannot be read: {why}.") from None
    return files, path


def _quoted(rest: str) -> str:
    """Return the rest of a URI with the path as Arrow decodes paths.

    In Hadoop's paths a space and a ``%`` stand for themselves.
    """
    place, question, parameters = rest.partition("?")
    parts = re.fullmatch(r"(//[^/]*)?(.*)", place, re.DOTALL)
    assert parts is not None
    path = quote(parts[2], safe="/", errors="surrogateescape")
    return f"{parts[1] or ''}{path}{question}{parameters}"


def _query_id(text: str) -> str:
    try:
        return foreign_text(str(json.loads(text)["id"]), 100)
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def _ours(lines: Iterable[str]) -> Iterable[tuple[int, StreamOffset[LastRead]]]:
    for place, line in enumerate(lines):
        try:
            tree = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(tree, dict) or not _looks_like_ours(tree):
            continue
        yield place, read_offset(tree)


def _looks_like_ours(tree: dict[str, Any]) -> bool:
    """Return whether JSON is an offset of ours or of the Scala connector."""
    if "v" in tree:  # TubeMQ and YDB record "lastRead", too
        return "subscription" in tree
    return bool(tree) and all(
        name.startswith("persistent://") and isinstance(position, list)
        for name, position in tree.items()
    )
