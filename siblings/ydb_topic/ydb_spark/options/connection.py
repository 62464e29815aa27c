# SPDX-License-Identifier: Apache-2.0
"""How to reach a database, and as whom."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from spark_topics.errors import foreign_text
from spark_topics.options import secrets
from spark_topics.options.given import Given
from spark_topics.options.spec import Scope, option
from spark_topics.options.values import boolean, plain_text, seconds
from ydb_spark.errors import OptionError
from ydb_spark.options.patience import Patience

_DAY_S = 24 * 60 * 60
_MILLI = 0.001


_ENDPOINT = re.compile(r"[^/@\s:]+:[0-9]{1,5}|\[[0-9a-fA-F:.]+\]:[0-9]{1,5}")


def _host_and_port(text: str, name: str) -> str:
    value = plain_text(text, name)
    if not _ENDPOINT.fullmatch(value):
        raise OptionError(f"{name} must be host:port, without a scheme.")
    return value


def _http_url(text: str, name: str) -> str:
    value = plain_text(text, name)
    if urlsplit(value).scheme not in ("http", "https") or "@" in value:
        raise OptionError(f"{name} must begin with http:// or https://.")
    return value


class Secret(secrets.Secret):
    """A secret of this package's options."""

    error = OptionError


@dataclass(frozen=True)
class ConnectionOptions:
    """How to reach a database.

    Attributes:
        url: ``grpc://host:port/database`` or ``grpcs://...``.
        database: Path of the database, where ``url`` has none.
        token: Access token.
        login: Name of a user.
        password: Of that user.
        sakey: Key of a service account, as JSON.
        iam_endpoint: Who gives tokens to service accounts, as ``host:port``.
        iam_ca: Certificates of authorities that its own may be of, as PEM.
        use_metadata: Whether the machine's metadata service gives the token.
        metadata_url: Where that service is.
        use_env: Whether the environment says how to log in, as for the SDK.
        ca: Certificates of authorities that the server's may be of, as PEM.
        disable_discovery: Whether ``url`` is the only endpoint.
        operation_timeout_s: For how long a call is tried, in seconds.
        patience: How long to wait where no option says so.
    """

    url: str = option(
        "url",
        "",
        plain_text,
        Scope.CLIENT,
        "Where the database is: `grpcs://host:2135/path/of/database`, or `grpc://` for"
        " a connection that is not encrypted.",
        "endpoint",
    )
    database: str | None = option(
        "database",
        None,
        plain_text,
        Scope.CLIENT,
        "Path of the database, where `url` has none.",
    )
    token: Secret | None = option(
        "auth.token", None, Secret.parse, Scope.CLIENT, "Access token."
    )
    login: str | None = option(
        "auth.login", None, plain_text, Scope.CLIENT, "Name of a user."
    )
    password: Secret | None = option(
        "auth.password", None, Secret.parse, Scope.CLIENT, "Password of that user."
    )
    sakey: Secret | None = option(
        "auth.sakey",
        None,
        Secret.parse,
        Scope.CLIENT,
        "Key of a service account, as JSON; `file:/path` for a file on each node.",
        "auth.sakey.text",
    )
    iam_endpoint: str | None = option(
        "auth.iam.endpoint",
        None,
        _host_and_port,
        Scope.CLIENT,
        "Who gives tokens to service accounts, as `host:port`. By default"
        " `iam.api.cloud.yandex.net:443`.",
    )
    iam_ca: Secret | None = option(
        "auth.iam.ca",
        None,
        Secret.parse,
        Scope.CLIENT,
        "Certificates of authorities that may have signed that endpoint's, as `ca`.",
    )
    use_metadata: bool = option(
        "auth.use_metadata",
        "false",
        boolean,
        Scope.CLIENT,
        "Whether the metadata service of the machine gives the token.",
    )
    metadata_url: str | None = option(
        "auth.metadata.url",
        None,
        _http_url,
        Scope.CLIENT,
        "Where that service is, if not where clouds have it.",
    )
    use_env: bool = option(
        "auth.use_env",
        "false",
        boolean,
        Scope.CLIENT,
        "Whether the environment of each node says how to log in, by the SDK's own"
        " variables.",
    )
    ca: Secret | None = option(
        "ca",
        None,
        Secret.parse,
        Scope.CLIENT,
        "Certificates of authorities as PEM, or `file:/path` on each node. Without it:"
        " those that the SDK brings.",
        "ca.text",
    )
    disable_discovery: bool = option(
        "disableDiscovery",
        "false",
        boolean,
        Scope.CLIENT,
        "Whether to use the endpoint in `url` alone, as through a tunnel.",
    )
    operation_timeout_s: float = option(
        "operationTimeoutMs",
        "60000",
        seconds(_MILLI, _DAY_S),
        Scope.CLIENT,
        "For how long a call such as DescribeTopic is tried, in milliseconds.",
    )
    patience: Patience = field(default_factory=Patience)

    @property
    def endpoint(self) -> str:
        """Return scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def is_encrypted(self) -> bool:
        """Return whether the connection is by TLS."""
        return urlsplit(self.url).scheme == "grpcs"


#: Ways to log in, of which one is enough.
_WAYS = ("auth.token", "auth.login", "auth.sakey", "auth.use_metadata", "auth.use_env")

#: Options that are of no use without another one.
_PARTS = (
    ("auth.iam.endpoint", "auth.sakey"),
    ("auth.iam.ca", "auth.sakey"),
    ("auth.metadata.url", "auth.use_metadata"),
)


def connection_options(given: Given) -> ConnectionOptions:
    """Parse the database's address; problems are added to ``given.problems``."""
    options = given.fill(ConnectionOptions)
    url, database = options.url, options.database
    if "url" not in given:
        given.problems.append(
            "url is missing: where the database is, such as"
            " grpcs://host:2135/path/of/database."
        )
    elif url:
        parsed_url = _check_url(given, url)
        if parsed_url and database and parsed_url != database:
            given.problems.append("url and database name two databases: leave one out.")
        database = parsed_url or database
        if not database:
            given.problems.append(
                "database is missing: append its path to url, or set database."
            )
    ways = [way for way in _WAYS if given[way]]
    if len(ways) > 1:
        given.problems.append(f"{ways[0]} and {ways[1]} exclude each other.")
    if bool(options.login) is not (options.password is not None):
        given.problems.append("auth.login and auth.password belong together.")
    for name, of in _PARTS:
        if name in given and not given[of]:
            given.problems.append(f"{name} is for {of}, which is not set.")
    if options.ca is not None and not options.is_encrypted:
        given.problems.append("ca is for TLS: let url begin with grpcs://.")
    return given.fill(ConnectionOptions, database=database)


def _check_url(given: Given, url: str) -> str:
    """Return the database in a URL, "" if missing."""
    parts = urlsplit(url)
    if parts.scheme not in ("grpc", "grpcs"):
        given.problems.append(
            "url must begin with grpcs:// or, for a connection that is not encrypted,"
            " grpc://: what is not named is not guessed."
        )
        return ""
    if not _ENDPOINT.fullmatch(parts.netloc):
        given.problems.append(
            f"url must name one host and port, such as {parts.scheme}://host:2135."
            " Names and passwords are options of their own."
        )
        return ""
    in_query = parse_qs(parts.query).get("database", [""])[0]
    in_path = parts.path.rstrip("/")
    if in_query and in_path:
        given.problems.append(
            f"url names two databases, {foreign_text(in_path)} and"
            f" {foreign_text(in_query)}."
        )
    return in_query or in_path
