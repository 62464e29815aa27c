# SPDX-License-Identifier: Apache-2.0
"""What proves who connects goes bad under a read, or was never any good.

Each ends with one error, in time, that says what to change and repeats no secret; what
came before it is whole, and when it is mended the read can be done.
"""

from __future__ import annotations

import base64
import shutil
import time
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark import AuthError
from pulsar_spark.client.pool import shared_pool
from pulsar_spark.errors import OptionError, PulsarSparkError, TopicNotFoundError
from tests.broker.secured.test_authentication import (
    PARAMS,
    PLUGIN,
    is_allowed,
    read,
    slow_reader,
    token,
)
from tests.broker.secured.test_lost_access import LIFE_S, own_topic
from tests.support import reading
from tests.support.secured import PASSWORD, SecuredBroker, TokenServer
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def read_until_it_ends(
    reader: Any, act: Callable[[], None]
) -> tuple[list[str], PulsarSparkError | None]:
    """The values that one task reads, and why it ended, if it did not read all.

    Args:
        reader: Of a topic that has much more than it takes at a time.
        act: Called with the first ones at hand; the connection ends after it.
    """
    (part,) = reader.partitions()
    connection = shared_pool(reader._source.options.client).service()
    found: list[str] = []
    try:
        for batch in reader.read(part):
            if not found:
                act()
                await_true(lambda: not connection.is_open, "the end of the connection")
            found += [(row.value or b"").decode() for row in reading.to_rows(batch)]
    except PulsarSparkError as error:
        return found, error
    return found, None


def empty(path: Path) -> None:
    """A file that has lost what it had."""
    path.write_bytes(b"")


def replace_by_folder(path: Path) -> None:
    """Something else by its name."""
    path.unlink()
    path.mkdir()


def replace_by_nothing(path: Path) -> None:
    """A link that leads nowhere."""
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def write_page(path: Path) -> None:
    """What a server that is down says in the name of the one that has tokens."""
    path.write_text("<html>503 Service Unavailable</html>")


def write_garbage(path: Path) -> None:
    """Bytes that are no text."""
    path.write_bytes(bytes(range(256)))


@pytest.mark.parametrize(
    "spoil",
    [
        empty,
        *(
            pytest.param(spoil, marks=pytest.mark.matrix)
            for spoil in (
                replace_by_folder,
                replace_by_nothing,
                write_page,
                write_garbage,
            )
        ),
    ],
)
def test_a_token_file_goes_bad_under_a_read(
    secured: SecuredBroker, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    """The error names the file, unless it is one of a token."""
    topic, values = own_topic(secured, "source", 3000)
    path = tmp_path / "token"
    path.write_text(secured.signer.token("source", LIFE_S))
    reader = slow_reader(secured.service_url, topic, f"file:{path}")
    began = time.monotonic()
    found, error = read_until_it_ends(reader, lambda: spoil(path))
    assert time.monotonic() - began < 60
    assert isinstance(error, (AuthError, OptionError)), error
    assert not error.retriable
    if spoil is write_page:
        assert "may be the wrong file" in error.message
    else:
        assert str(path) in error.message
    assert found == values[: len(found)]
    assert found
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.write_text(secured.signer.token("source", 60))
    options = {PLUGIN: "token", PARAMS: f"file:{path}"}
    assert read(secured, topic, options) == values


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(
            *((200, {}, "<html>sign in</html>"), "something else than a JSON object"),
            marks=pytest.mark.matrix,
        ),
        pytest.param(
            *((200, {}, '{"error":"access_denied"}'), "access_token (access_denied)"),
            marks=pytest.mark.matrix,
        ),
        ((200, {}, '{"access_token":"nonsense"}'), "check its audience"),
    ],
)
def test_a_token_server_goes_bad_under_a_read(
    secured: SecuredBroker, answer: Any, said: str
) -> None:
    """The error names the server, or what to check of its tokens."""
    topic, values = own_topic(secured, "source", 3000)
    with TokenServer(secured.signer, LIFE_S) as server:
        params = server.params("source")
        options = {PLUGIN: "oauth2", PARAMS: params, "topic": topic}
        options |= {
            "rowsPerArrowBatch": "100",
            "pulsar.reader.receiverQueueSize": "9",
        }
        reader = reading.reader_of(secured.service_url, options)
        found, error = read_until_it_ends(
            reader, lambda: server.answers.extend([answer] * 1000)
        )
        assert isinstance(error, AuthError), error
        assert said in error.message
        assert found == values[: len(found)]
        secrets = [*server.clients.values(), *server.given]
        assert not [one for one in secrets if one in printed(error)]
        server.answers.clear()
        options[PARAMS] = params.replace("{", '{ "scope": "x", ', 1)  # no token kept
        assert len(reading.read(secured.service_url, options)) == 3000


def printed(error: BaseException) -> str:
    """All that a traceback shows, and what it was raised from, and its facts."""
    text = "".join(traceback.format_exception(error))
    return f"{text}{error!r}{vars(error)}"


def part(text: str) -> str:
    """A part of a token."""
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def test_tokens_that_are_none(secured: SecuredBroker) -> None:
    """A broker may say what it has found in one; nobody repeats it."""
    topic, _ = own_topic(secured, "source", 1)
    good = part('{"alg":"HS256"}')
    for credential in (
        f"{part('hush-1')}.{part('hush-2')}.hush-3-signature",
        f"{good}.{part('hush-2')}.hush-3-signature",
        f"{good}.{part('hush-2')}.{part('hush-3')}",
        f"{part('{hush-1: hush-2')}.{good}.{part('hush-3')}",
        "hush-1.hush-2",
        "hush-1",
        part("hush-1"),
        f"{good}.{part('{hush-2}')}.",
    ):
        with pytest.raises(AuthError) as caught:
            read(secured, topic, {PLUGIN: "token", PARAMS: credential})
        assert "hush" not in printed(caught.value), credential
    for login in ("ann:hush-1", "hush:hush-1:hush-2"):
        with pytest.raises(AuthError) as caught:
            read(secured, topic, {PLUGIN: "basic", PARAMS: login})
        assert "hush-" not in printed(caught.value), login
        assert PASSWORD not in printed(caught.value)


def test_a_tenant_that_there_is_not(secured: SecuredBroker) -> None:
    """It is no question of permissions, and not tried again and again."""
    options = token(secured, "stranger")
    with pytest.raises(TopicNotFoundError):
        read(secured, "persistent://nowhere/never/rows", options)


def test_who_may_by_and_by(secured: SecuredBroker) -> None:
    """A permission that is given to who was refused counts without a new process."""
    topic, values = own_topic(secured, "source", 10)
    assert not is_allowed(secured, topic, "late")
    secured.admin.grant(topic, "late", "consume")
    await_true(lambda: is_allowed(secured, topic, "late"), "the permission")
    assert read(secured, topic, token(secured, "late")) == values
