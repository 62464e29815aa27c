# SPDX-License-Identifier: Apache-2.0
"""Tests of `spark_topics.options.secrets`."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

import pytest

from spark_topics.errors import OptionError
from spark_topics.options.secrets import Secret

secret = Secret.parse

TEXT = "eyJhbGciOiJIUzI1NiJ9"


@dataclass(frozen=True)
class Holder:
    """Something with a secret field, such as a provider of credentials."""

    secret: Secret


def test_the_text_is_there_for_who_asks() -> None:
    """It is kept as it is."""
    assert Secret(TEXT).read() == TEXT


@pytest.mark.parametrize(
    "shown",
    [
        repr(Secret(TEXT)),
        str(Secret(TEXT)),
        f"{Secret(TEXT)} {Secret(TEXT)!r} {Secret(TEXT):>30}",
        "%s %r" % (Secret(TEXT), Secret(TEXT)),  # noqa: UP031 - as logging does it
        repr(Holder(Secret(TEXT))),
        repr([Secret(TEXT)]),
    ],
)
def test_it_is_not_shown(shown: str) -> None:
    """However it is made a text, that text is another."""
    assert TEXT not in shown
    assert "<secret>" in shown


def test_it_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Neither as an argument nor within a message."""
    secret = Secret(TEXT)
    logging.getLogger("test").warning("%s %r %s", secret, secret, Holder(secret))
    assert TEXT not in caplog.text


def test_it_is_not_in_errors() -> None:
    """What goes wrong with it does not repeat it."""
    secret = Secret(TEXT)
    for wrong in (
        lambda: json.dumps(secret),
        lambda: "token:" + secret,  # type: ignore[operator]
        lambda: format(secret, "d"),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            wrong()
        assert TEXT not in "".join(traceback.format_exception(caught.value))


def test_equality_is_by_text() -> None:
    """Also of texts that are not ASCII, and with nothing but its like."""
    assert Secret(TEXT) == Secret(TEXT)
    assert Secret("ä\ud800") == Secret("ä\ud800")
    assert Secret(TEXT) != Secret(TEXT + "x")
    assert Secret(TEXT) != TEXT


def test_its_hash_and_fingerprint_are_of_this_process() -> None:
    """Equal for equal ones; not what anybody could compute of the text."""
    one, same, other = Secret(TEXT), Secret(TEXT), Secret(TEXT + "x")
    assert {one: 1}[same] == 1
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert hash(one) != hash(TEXT)
    script = (
        "from spark_topics.options.secrets import Secret; "
        f"print(Secret({TEXT!r}).fingerprint.hex())"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert len(elsewhere.stdout.strip()) == len(one.fingerprint.hex())
    assert elsewhere.stdout.strip() != one.fingerprint.hex()


def test_it_is_pickled_and_copied() -> None:
    """Tasks receive it with the options."""
    secret = Secret(TEXT)
    for copied in (
        pickle.loads(pickle.dumps(secret)),  # noqa: S301 - our own bytes
        copy.copy(secret),
        copy.deepcopy(Holder(secret)).secret,
    ):
        assert copied.read() == TEXT


class TestWhereItIs:
    """A file or a variable, looked at each time."""

    @pytest.mark.parametrize("form", ["file:{}", "file://{}"])
    def test_a_file(self, tmp_path: Path, form: str) -> None:
        """Its text without the end of the line; a new one once it is there."""
        file = tmp_path / "token"
        kept = Secret(form.format(file))
        assert not kept.is_inline
        assert kept.path == str(file)
        before = kept.fingerprint
        for text in (TEXT, "another"):
            file.write_text(f"{text}\n")
            assert kept.read() == text
        assert kept.fingerprint == before

    def test_a_file_of_an_editor_that_marks_it(self, tmp_path: Path) -> None:
        """The mark of UTF-8 is no part of the text: nobody sees it there."""
        file = tmp_path / "token"
        file.write_bytes(b"\xef\xbb\xbf" + TEXT.encode() + b"\r\n")
        assert Secret(f"file:{file}").read() == TEXT

    def test_a_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same of the process's environment."""
        kept = Secret("env:PULSAR_SPARK_TEST")
        assert not kept.is_inline
        assert kept.path is None
        for text in (TEXT, "another"):
            monkeypatch.setenv("PULSAR_SPARK_TEST", text)
            assert kept.read() == text

    def test_it_travels_without_the_text(self, tmp_path: Path) -> None:
        """What is pickled says where it is."""
        file = tmp_path / "token"
        file.write_text(TEXT)
        pickled = pickle.dumps(Secret(f"file:{file}"))
        assert TEXT.encode() not in pickled
        assert pickle.loads(pickled).read() == TEXT  # noqa: S301 - our own bytes

    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            ("file:relative/path", "must name a file by its whole path"),
            ("file://relative/path", "must name a file by its whole path"),
            ("file:", "must name a file by its whole path"),
            ("env:", "must name a variable"),
        ],
    )
    def test_what_names_nothing(self, given: str, problem: str) -> None:
        """Wrong on every node, and so refused at once."""
        with pytest.raises(OptionError, match=f"^.TOPICS_OPTION. some.name {problem}"):
            Secret(given, "some.name")

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (None, "cannot be read on .*: No such file"),
            (b"", "not set or empty on "),
            (b"\n", "not set or empty on "),
            (b"secret\xff", "cannot be read on .*: it is not UTF-8"),
            (b"secret" * 200_000, "cannot be read on .*: it has more than "),
        ],
    )
    def test_a_file_of_no_use(
        self, tmp_path: Path, content: bytes | None, problem: str
    ) -> None:
        """The error names option, file and node, and shows nothing of it."""
        file = tmp_path / "token"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(OptionError, match=problem) as caught:
            Secret(f"file:{file}", "some.name").read()
        text = "".join(traceback.format_exception(caught.value))
        assert f"some.name names the file {file}" in text
        assert os.uname().nodename in text
        assert "secretsecret" not in text.replace(str(tmp_path), "")

    def test_a_pipe(self, tmp_path: Path) -> None:
        """Nobody waits for what somebody may write into it."""
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        with pytest.raises(OptionError, match="it is not a regular file"):
            Secret(f"file:{pipe}").read()

    def test_a_variable_that_is_not_there(self) -> None:
        """It is missed on the node that asks."""
        with pytest.raises(OptionError, match="variable PULSAR_SPARK_ABSENT, which"):
            Secret("env:PULSAR_SPARK_ABSENT", "some.name").read()


def test_as_an_option() -> None:
    """Spaces around it are none of its."""
    assert secret(f" {TEXT} ", "some.name") == Secret(TEXT)
    assert secret(" env:NAME ", "some.name") == Secret("env:NAME")
