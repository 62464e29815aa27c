# SPDX-License-Identifier: Apache-2.0
"""Every way to log in, to doubles of who gives tokens, by the SDK's own classes."""

from __future__ import annotations

import itertools
import logging
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from siblings.ydb_topic.tests.support.service import DATABASE, TopicService
from siblings.ydb_topic.tests.support.token_services import (
    IamService,
    MetadataService,
    account_key,
    stand_in,
)
from tests.support.certificates import Authority
from ydb_spark.client.channel import Channel
from ydb_spark.client.topics import describe_topic
from ydb_spark.errors import AuthError, OptionError, TransportError
from ydb_spark.options.connection import ConnectionOptions, Secret

RIGHTS = frozenset({"read", "write"})


@pytest.fixture
def guarded() -> Iterator[TopicService]:
    """A service with a topic ``t`` that knows nobody yet, and a user."""
    with TopicService(tokens={}, users={"ann": "hunter2"}) as service:
        service.store.create("t")
        yield service


@pytest.fixture
def new_token(guarded: TopicService) -> Callable[[], str]:
    """Makes tokens that the service knows."""
    numbers = itertools.count(1)

    def make() -> str:
        assert guarded.tokens is not None
        token = f"secret-{next(numbers)}"
        guarded.tokens[token] = RIGHTS
        return token

    return make


def options(service: TopicService, **values: object) -> ConnectionOptions:
    """How to reach the service."""
    defaults = {"url": service.endpoint, "database": DATABASE, "operation_timeout_s": 3}
    return ConnectionOptions(**{**defaults, **values})  # type: ignore[arg-type]


@contextmanager
def channel(options: ConnectionOptions) -> Iterator[Channel]:
    """A channel with these."""
    opened = Channel(options)
    try:
        yield opened
    finally:
        opened.close()


def ask(channel: Channel) -> None:
    """Do something that takes a token."""
    assert describe_topic(channel, "t", with_offsets=False).partitions


@pytest.fixture
def iam(
    tmp_path: Path, new_token: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[IamService, ConnectionOptions]]:
    """The cloud's token service, and options that name it and a key."""
    stand_in(monkeypatch)
    authority = Authority(tmp_path / "iam")
    with IamService(authority.issue("iam"), new_token) as service:
        yield (
            service,
            ConnectionOptions(
                sakey=Secret(account_key(), "auth.sakey"),
                iam_endpoint=f"localhost:{service.port}",
                iam_ca=Secret(f"file:{authority.certificate}"),
            ),
        )


def at(service: TopicService, given: ConnectionOptions) -> ConnectionOptions:
    """The same options for this service."""
    return replace(
        given, url=service.endpoint, database=DATABASE, operation_timeout_s=3.0
    )


def test_service_account(
    guarded: TopicService, iam: tuple[IamService, ConnectionOptions]
):
    """A key is exchanged for a token, once; and again when that is refused."""
    service, given = iam
    with channel(at(guarded, given)) as opened:
        ask(opened)
        ask(opened)
        assert service.given == 1
        assert guarded.tokens is not None
        guarded.tokens.clear()  # as if it had ended before its time
        ask(opened)
    assert service.given == 2


def test_service_account_that_is_not_known(
    guarded: TopicService, iam: tuple[IamService, ConnectionOptions]
):
    """The error says who refuses, and what to look at; not the key."""
    service, given = iam
    service.is_closed = True
    with (
        channel(at(guarded, given)) as opened,
        pytest.raises(
            AuthError, match=r"localhost:.* is refused.*auth\.sakey"
        ) as caught,
    ):
        ask(opened)
    assert "PRIVATE" not in str(caught.value)
    assert "the key is not known" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "match"),
    [
        ("no json", "JSONDecodeError"),
        ('{"id": "a"}', "KeyError"),
        ('{"id": "a", "private_key": "hunter2"}', "private_key in PEM"),
        (
            '{"id": "a", "service_account_id": "b", "private_key": "hunter2"}',
            "private_key in PEM",
        ),
    ],
)
def test_keys_that_are_none(
    guarded: TopicService,
    iam: tuple[IamService, ConnectionOptions],
    key: str,
    match: str,
):
    """One error, at once, that shows nothing of it."""
    given = replace(at(guarded, iam[1]), sakey=Secret(key))
    with (
        channel(given) as opened,
        pytest.raises(OptionError, match=match) as caught,
    ):
        ask(opened)
    assert "hunter2" not in str(caught.value)


def test_token_service_that_is_away(
    guarded: TopicService, iam: tuple[IamService, ConnectionOptions]
):
    """It is tried for as long as a call may take."""
    given = replace(at(guarded, iam[1]), iam_endpoint="localhost:1")
    with (
        channel(replace(given, operation_timeout_s=0.5)) as opened,
        pytest.raises(TransportError, match="Logging in to localhost:1 did not work"),
    ):
        ask(opened)


def test_without_what_keys_need(guarded: TopicService, monkeypatch: pytest.MonkeyPatch):
    """The error names what to install."""
    stand_in(monkeypatch)
    monkeypatch.setitem(sys.modules, "jwt", None)
    monkeypatch.setitem(sys.modules, "requests", None)
    with (
        channel(options(guarded, sakey=Secret(account_key(), "auth.sakey"))) as opened,
        pytest.raises(OptionError, match=r"pip install 'ydb\[yc\]'"),
    ):
        ask(opened)
    with (
        channel(options(guarded, use_metadata=True)) as opened,
        pytest.raises(OptionError, match="pip install requests"),
    ):
        ask(opened)


def test_metadata_service(
    guarded: TopicService,
    new_token: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
):
    """The machine's own service gives a token; what it refuses is said."""
    stand_in(monkeypatch)
    with MetadataService(new_token) as service:
        given = options(guarded, use_metadata=True, metadata_url=service.url)
        with channel(given) as opened:
            ask(opened)
        assert service.given == 1
        service.status = 404
        with (
            channel(given) as opened,
            pytest.raises(AuthError, match=r"is refused: 404.*account of this machine"),
        ):
            ask(opened)
        service.status = 503
        with (
            channel(replace(given, operation_timeout_s=0.3)) as opened,
            pytest.raises(TransportError, match="did not work: 503"),
        ):
            ask(opened)


def test_login_is_renewed(guarded: TopicService):
    """Where the server forgets a token before the SDK does, we log in again, once."""
    given = options(guarded, login="ann", password=Secret("hunter2", "auth.password"))
    with channel(given) as opened:
        ask(opened)
        assert guarded.logins == 1
        assert guarded.tokens is not None
        guarded.tokens.clear()
        ask(opened)
        assert guarded.logins == 2
        guarded.users["ann"] = "other"
        guarded.tokens.clear()
        with pytest.raises(AuthError, match=r"Invalid password.*auth\.password"):
            ask(opened)


def test_password_that_changes(guarded: TopicService, tmp_path: Path):
    """A file is read again where what it had is refused."""
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    given = options(guarded, login="ann", password=Secret(f"file:{file}"))
    with channel(given) as opened:
        ask(opened)
        guarded.users["ann"] = "better"
        file.write_text("better\n")
        assert guarded.tokens is not None
        guarded.tokens.clear()
        ask(opened)


def test_by_environment(
    guarded: TopicService,
    new_token: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
):
    """The SDK's own variables; what is wrong with them is one error."""
    given = options(guarded, use_env=True)
    monkeypatch.setenv("YDB_ACCESS_TOKEN_CREDENTIALS", new_token())
    with channel(given) as opened:
        ask(opened)
    monkeypatch.setenv("YDB_USER", "ann")
    monkeypatch.setenv("YDB_PASSWORD", "hunter2")
    with channel(given) as opened:
        ask(opened)
    assert guarded.logins == 1
    monkeypatch.setenv("YDB_SERVICE_ACCOUNT_KEY_FILE_CREDENTIALS", "/absent")
    with (
        channel(given) as opened,
        pytest.raises(OptionError, match=r"auth\.use_env: .*FileNotFoundError"),
    ):
        ask(opened)


@pytest.mark.parametrize("token", ["secret\nx-other: 1", "sécret", "secret\x00"])
def test_tokens_that_no_header_has(
    guarded: TopicService, monkeypatch: pytest.MonkeyPatch, token: str
):
    """Errors of gRPC would show them; ours says where they are."""
    given = options(guarded, token=Secret(token, "auth.token"))
    with (
        channel(given) as opened,
        pytest.raises(OptionError, match="one line of ASCII") as caught,
    ):
        ask(opened)
    assert token.partition("\n")[0] not in str(caught.value)


def test_token_file_that_is_away_for_a_moment(
    guarded: TopicService, new_token: Callable[[], str], tmp_path: Path
):
    """Without it there is a clear error, and with it all goes on."""
    file = tmp_path / "token"
    file.write_text(new_token())
    with channel(options(guarded, token=Secret(f"file:{file}"))) as opened:
        ask(opened)
        file.unlink()
        with pytest.raises(OptionError, match="token, which cannot be read"):
            ask(opened)
        file.write_text(new_token())
        ask(opened)


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        ({}, "No option says who we are"),
        (
            {"token": Secret("hunter2", "auth.token")},
            "token ended that is in auth.token",
        ),
    ],
)
def test_refusals_say_what_to_change(
    guarded: TopicService, given: dict[str, Secret], cure: str
):
    """And show no secret, in any form of the error."""
    with (
        channel(options(guarded, **given)) as opened,
        pytest.raises(AuthError, match=cure) as caught,
    ):
        ask(opened)
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    for text in (str(caught.value), repr(caught.value), str(copy), repr(opened)):
        assert "hunter2" not in text


def test_nothing_is_logged(guarded: TopicService, caplog: pytest.LogCaptureFixture):
    """Not even where everything is."""
    caplog.set_level(logging.DEBUG)
    given = options(guarded, login="ann", password=Secret("hunter2", "auth.password"))
    with channel(given) as opened:
        ask(opened)
        token = opened.token()
    assert caplog.records
    assert "hunter2" not in caplog.text
    assert token not in caplog.text


def test_file_secrets_travel_by_name(tmp_path: Path):
    """What tasks get has the name of the file, and not what is in it."""
    file = tmp_path / "token"
    file.write_text("hunter2")
    given = ConnectionOptions(token=Secret(f"file:{file}"))
    assert b"hunter2" not in pickle.dumps(given)
