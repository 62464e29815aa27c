# SPDX-License-Identifier: Apache-2.0
"""Credentials of the SDK, made from options.

The SDK logs in, renews its token, and keeps the token while the SDK counts the token as
valid. Where the server rejects the token, `Credentials.forget` makes the SDK log in
again.
"""

from __future__ import annotations

import logging
import os
import platform
import threading
from collections.abc import Callable
from typing import Any

from spark_topics.errors import foreign_text
from ydb_spark.errors import AuthError, OptionError, TransportError, YdbError
from ydb_spark.options.connection import ConnectionOptions
from ydb_spark.sdk import grpc, ydb

_HEADER = "x-ydb-auth-ticket"

#: Variables of the SDK, the first that it looks at before the second.
_KEY_FILE = "YDB_SERVICE_ACCOUNT_KEY_FILE_CREDENTIALS"
_USER = "YDB_USER"

_NOBODY = (
    "No option says who we are: auth.token, auth.login with auth.password, auth.sakey,"
    " auth.use_metadata and auth.use_env do."
)

_NEEDS_MORE = (
    f"auth.sakey needs more of the SDK on {platform.node()}: pip install 'ydb[yc]'."
)

#: gRPC's statuses by which who gives tokens refuses one.
_REFUSALS = frozenset(
    {
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
    }
)

_FIRST_4XX, _FIRST_5XX = 400, 500


class Credentials(ydb.Credentials):
    """See the module.

    Args:
        options: Which.
        config: Of the driver that they are for.
    """

    def __init__(self, options: ConnectionOptions, config: ydb.DriverConfig) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._options = options
        self._config = config
        self._lock = threading.Lock()
        self._kept: Any = None

    def auth_metadata(self) -> list[tuple[str, str]]:
        """Return the headers of a call, for the SDK."""
        token = self.token()
        return [(_HEADER, token)] if token else []

    def token(self) -> str:
        """Return the current token; "" for anonymous access.

        Raises:
            OptionError: An option cannot be used.
            AuthError: Logging in is refused.
            TransportError: Who gives tokens cannot be reached.
        """
        secret = self._options.token
        if secret is not None:
            return _sendable(secret.read(), secret.place)
        maker = self._maker()
        if maker is None:
            return ""
        with self._lock:
            if self._kept is None:
                self._kept = maker()
            kept = self._kept
        try:
            return _sendable(kept.get_auth_token(), "What was got by logging in")
        except ydb.Error as error:
            self.forget()  # what it was made of may be another next time
            raise self._failed(error) from None

    def forget(self) -> bool:
        """Make the next call log in again.

        Returns:
            Whether it will: not if there was no login, as with a token that was given.
        """
        with self._lock:
            is_kept = self._kept is not None
            self._kept = None
        return is_kept

    @property
    def cure(self) -> str:
        """Return what to do about a refusal, as a sentence."""
        options = self._options
        if options.token is not None:
            return f"Has the token ended that is in {options.token.place}? Renew it."
        if options.password is not None:
            return (
                f"Look at auth.login and at the password in {options.password.place}."
            )
        if options.sakey is not None:
            return (
                f"Is the key in {options.sakey.place} still that of a service account"
                " with the rights?"
            )
        if options.use_metadata:
            return "Has the account of this machine the rights?"
        if options.use_env:
            return "Look at the variables of YDB in the environment of this node."
        return _NOBODY

    # -- The SDK's ---------------------------------------------------------------------

    def _maker(self) -> Callable[[], Any] | None:
        options = self._options
        if options.login is not None:
            return self._static
        if options.sakey is not None:
            return self._service_account
        if options.use_metadata:
            return self._metadata
        return self._environment if options.use_env else None

    def _static(self) -> Any:
        options = self._options
        assert options.password is not None
        return ydb.StaticCredentials(  # type: ignore[no-untyped-call]
            self._config, options.login, options.password.read()
        )

    def _service_account(self) -> Any:
        options = self._options
        assert options.sakey is not None
        key = options.sakey.read()
        roots = options.iam_ca.read().encode() if options.iam_ca else None
        try:
            return ydb.iam.ServiceAccountCredentials.from_content(
                key,
                iam_endpoint=options.iam_endpoint,
                iam_channel_credentials=roots and {"root_certificates": roots},
            )
        except (ImportError, AssertionError):
            raise OptionError(_NEEDS_MORE) from None
        except Exception as error:
            raise _no_key(error) from None

    def _metadata(self) -> Any:
        try:
            return ydb.iam.MetadataUrlCredentials(self._options.metadata_url)
        except ImportError:
            raise OptionError(
                f"auth.use_metadata needs the package requests on {platform.node()}:"
                " pip install requests."
            ) from None

    def _environment(self) -> Any:
        try:
            made = _from_environment()
            made._update_driver_config(self._config)
        except Exception as error:  # its text may show a key
            missing = f" of {error.name}" if isinstance(error, ImportError) else ""
            raise OptionError(
                f"auth.use_env: the SDK cannot log in by the variables of this node"
                f" ({type(error).__name__}{missing}). Look at those that begin with"
                " YDB_; keys of service accounts need ydb[yc], and the metadata"
                " service the package requests."
            ) from None
        return made

    def _failed(self, error: ydb.Error) -> YdbError:
        """Return our error for a login that did not work."""
        cause = error.__context__
        place = self._place
        if isinstance(cause, ImportError):  # only now the SDK looks for it
            return OptionError(_NEEDS_MORE)
        is_key = self._options.sakey is not None
        if is_key and cause is not None and not isinstance(cause, grpc.RpcError):
            return _no_key(cause)
        text = foreign_text(_text_of(cause or error))
        if _is_refusal(cause):
            return AuthError(
                f"Logging in to {place} is refused: {text}. {self.cure}",
                status="UNAUTHORIZED",
            )
        return TransportError(
            f"Logging in to {place} did not work: {text}.", broker=place
        )

    @property
    def _place(self) -> str:
        options = self._options
        if options.sakey is not None:
            return options.iam_endpoint or "the token service of the cloud"
        if options.use_metadata:
            return options.metadata_url or "the metadata service of the machine"
        return options.endpoint


def _from_environment() -> Any:
    user = os.environ.get(_USER)
    if user is None or _KEY_FILE in os.environ:
        return ydb.credentials_from_env_variables()
    # There the SDK (3.33) ends in an UnboundLocalError.
    return ydb.StaticCredentials.from_user_password(
        user, os.environ.get("YDB_PASSWORD", "")
    )


def _sendable(token: str, place: str) -> str:
    """Return a token that a header can have.

    Raises:
        OptionError: It cannot; gRPC's own error would show it.
    """
    if token.isascii() and token.isprintable():
        return token
    raise OptionError(
        f"The token cannot be sent: it must be one line of ASCII. It comes from:"
        f" {place}."
    )


def _no_key(error: BaseException) -> OptionError:
    """Return the error for a malformed key; the key's own error may reveal the key."""
    return OptionError(
        f"auth.sakey cannot be used: {type(error).__name__}. It must be the JSON of a"
        " service account's authorized key, with id, service_account_id and a"
        " private_key in PEM."
    )


def _is_refusal(cause: object) -> bool:
    if isinstance(cause, ydb.issues.Unauthorized | ydb.issues.Unauthenticated):
        return True
    if isinstance(cause, grpc.Call):
        return cause.code() in _REFUSALS
    status = getattr(getattr(cause, "response", None), "status_code", 0)
    return _FIRST_4XX <= status < _FIRST_5XX


def _text_of(cause: BaseException) -> str:
    if isinstance(cause, grpc.Call):
        return f"{cause.details()} ({cause.code().name})"
    return str(cause) or type(cause).__name__


class _NoRequests(logging.Filter):
    """Keeps the SDK from logging requests and responses: logins have passwords."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = str(record.msg)
        return "request = {" not in text and "response = {" not in text


logging.getLogger("ydb.connection").addFilter(_NoRequests())
