# SPDX-License-Identifier: Apache-2.0
"""The official Java client of TubeMQ, by ``TubeMQClient.java`` beside this."""

from __future__ import annotations

import os
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pulsar_spark.testing.processes import SHORT_LIVED
from siblings.tubemq.tests.support.servers import resolve_class_path
from tests.support.jvm import compile_java

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SOURCE = Path(__file__).with_name("TubeMQClient.java")


class JavaMessage(NamedTuple):
    """A message as the Java client has it.

    Attributes:
        partition_id: Of its partition.
        offset: Where it was stored; -1 for one that was read.
        msg_type: Its type, None where it has none.
        msg_time: Its time.
        attributes: Its others.
        value: Its bytes.
    """

    partition_id: int
    offset: int
    msg_type: str | None
    msg_time: str | None
    attributes: Mapping[str, str]
    value: bytes


class JavaClient:
    """The program, which is compiled once.

    Args:
        folder: For its classes.
        masters: As clients are given them.
        flags: Of the JVM.
    """

    def __init__(
        self, folder: Path, masters: str, flags: Sequence[str] = SHORT_LIVED
    ) -> None:
        jars = resolve_class_path()
        compile_java(SOURCE, jars, folder)
        path = os.pathsep.join((str(folder), jars))
        self._command = ["java", *flags, "-cp", path, SOURCE.stem]
        self._masters = masters

    def write(self, topic: str, count: int) -> list[JavaMessage]:
        """Write messages of every kind, and return them as they are stored."""
        lines = self._run("write", topic, str(count))
        return [_message(line) for line in lines]

    def read(
        self, topic: str, group: str, ends: Mapping[int, int], types: str = "-"
    ) -> list[JavaMessage]:
        """Read a topic from its beginning.

        Args:
            topic: Name of the topic.
            group: Of consumers, used by nobody else.
            ends: Offset after the last message of each partition.
            types: Message types, by comma; "-" for all.
        """
        lines = self._run("read", topic, group, types, _ends(ends))
        return [_message(line) for line in lines]

    def drain(
        self, topic: str, group: str, ends: Mapping[int, int]
    ) -> tuple[int, float]:
        """Read a topic and drop it.

        Returns:
            How many messages it had, and the seconds from the first registration on.
        """
        ((_, rows, seconds),) = self._run("drain", topic, group, "-", _ends(ends))
        return int(rows), float(seconds)

    def _run(self, what: str, *words: str) -> list[list[str]]:
        output = _run(*self._command, what, self._masters, *words)
        lines = (line.split("\t") for line in output.splitlines())
        return [line for line in lines if line[0] == "tube"]


def _ends(ends: Mapping[int, int]) -> str:
    return ",".join(f"{partition}={end}" for partition, end in ends.items())


def _message(line: Sequence[str]) -> JavaMessage:
    _, partition, offset, msg_type, msg_time, attributes, value = line
    pairs = (pair.partition("=") for pair in (_text(attributes) or "").split(","))
    return JavaMessage(
        int(partition),
        int(offset),
        _text(msg_type),
        _text(msg_time),
        {key: of for key, _, of in pairs if key and not key.startswith("$")},
        b64decode(value),
    )


def _text(encoded: str) -> str | None:
    return None if encoded == "-" else b64decode(encoded).decode()


def _run(*command: str) -> str:
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout
