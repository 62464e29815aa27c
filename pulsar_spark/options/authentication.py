# SPDX-License-Identifier: Apache-2.0
"""The options that say who connects, in the words of Java's client.

``authPluginClassName`` names a method; ``authParams`` or ``authParamMap`` say what it
needs, each method in forms that it owns. They become one of the classes below, in which
all that is secret is a `Secret`. No error repeats any of it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields
from urllib.parse import unquote_to_bytes, urlsplit

from pulsar_spark.errors import OptionError, foreign_text
from pulsar_spark.options.secret import Secret
from spark_topics.options.given import Given
from spark_topics.options.spec import OptionSpec, Scope, option, set_by
from spark_topics.options.values import nearest, plain_text
from spark_topics.text import load_object

# -- what proves who connects ----------------------------------------------------------


@dataclass(frozen=True)
class Token:
    """A JSON web token, or another token that brokers accept.

    Attributes:
        token: The token.
    """

    token: Secret

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """Return the key under which connections with this credential are pooled."""
        return (self.token.fingerprint,)


@dataclass(frozen=True)
class Login:
    """A user and a password.

    Attributes:
        user: Empty where ``password`` has both, as ``user:password``.
        password: The password.
    """

    user: str
    password: Secret

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """Return the key under which connections with this credential are pooled."""
        return self.user, self.password.fingerprint


@dataclass(frozen=True)
class ClientCertificate:
    """A certificate in PEM, which the TLS connection shows.

    Attributes:
        certificate_path: Of a file on each node; "" where options of TLS have the path.
        key_path: Of the private key, as for the certificate.
    """

    certificate_path: str = ""
    key_path: str = ""

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """Return the key under which connections with this credential are pooled."""
        return self.certificate_path, self.key_path


@dataclass(frozen=True)
class ClientKeyStore:
    """A certificate and private key in a single file, for TLS.

    Attributes:
        type: As Java names it, such as ``PKCS12``; "" where the options of TLS have it.
        path: Of a file on each node; "" where the options of TLS have the path.
        password: None for a file without a password.
    """

    type: str = ""
    path: str = ""
    password: Secret | None = None

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """Return the key under which connections with this credential are pooled."""
        password = None if self.password is None else self.password.fingerprint
        return self.type, self.path, password


@dataclass(frozen=True)
class ClientCredentials:
    """What an OAuth2 token server gives tokens for (RFC 6749, section 4.4).

    Attributes:
        secret: The client's secret; where ``client_id`` is empty, a JSON object with
            ``client_id`` and ``client_secret``, and ``issuer_url`` if need be.
        client_id: Who asks.
        issuer_url: The server. Empty: ``secret`` names it.
        audience: For whom the tokens are to be; "" for none.
        scope: What they are to allow; "" for none.
        trust_path: Certificates in PEM by which the server is known; "" for those of
            the system.
        connect_timeout_s: Longest wait for a connection to it.
        read_timeout_s: Longest wait for more of its answer.
        allow_http: Whether it may be spoken to without TLS.
    """

    secret: Secret
    client_id: str = ""
    issuer_url: str = ""
    audience: str = ""
    scope: str = ""
    trust_path: str = ""
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 30.0
    allow_http: bool = False

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """Return the key under which connections with this credential are pooled."""
        values = (getattr(self, f.name) for f in fields(self) if f.name != "secret")
        return self.secret.fingerprint, *values


Credential = Token | Login | ClientCertificate | ClientKeyStore | ClientCredentials


# -- the method ------------------------------------------------------------------------

_JAVA = "org.apache.pulsar.client.impl.auth."

#: Our names of methods, by every name in lower case that stands for them.
_METHODS = {
    name.lower(): method
    for method, names in (
        ("none", "none AuthenticationDisabled"),
        ("token", "token AuthenticationToken"),
        ("basic", "basic AuthenticationBasic"),
        ("tls", "tls AuthenticationTls"),
        ("keystore", "keystore AuthenticationKeyStoreTls"),
        (
            "oauth2",
            (
                "oauth2 AuthenticationOAuth2 AuthenticationFactoryOAuth2"
                " oauth2.AuthenticationOAuth2 oauth2.AuthenticationFactoryOAuth2"
            ),
        ),
    )
    for short in names.split()
    for name in (short, _JAVA + short)
}

#: Methods of other clients, by how the last part of their names begins.
_OTHERS = {"athenz": "Athenz", "sasl": "SASL (Kerberos)"}


def _method(text: str, option: str) -> str:
    name = text.strip()
    method = _METHODS.get(name.lower())
    if method is not None:
        return method
    last = name.rpartition(".")[2].lower().removeprefix("authentication")
    for beginning, title in _OTHERS.items():
        if last.startswith(beginning):
            raise OptionError(
                f"{option} asks for {title}, which this connector does not support: let"
                " the brokers accept a token, OAuth2, basic or TLS client certificates"
                " beside it."
            )
    # What is no class may be a secret in the wrong place.
    is_class = re.fullmatch(r"(?:org|com|io|net)(?:\.[A-Za-z_$][\w$]*)+", name)
    shown = f", not {foreign_text(name)}" if is_class else ""
    raise OptionError(
        f"{option} must be token, oauth2, basic, tls, keystore or none, or Java's class"
        f" for one of these{shown}."
    )


# -- the options -----------------------------------------------------------------------

_PARAMS = OptionSpec(
    "pulsar.client.authParams",
    None,
    plain_text,
    Scope.CLIENT,
    "What the method needs, in Java's forms: see"
    " [Authentication](security.md#authentication). Never shown.",
)

_PARAM_MAP = OptionSpec(
    "pulsar.client.authParamMap",
    None,
    plain_text,
    Scope.CLIENT,
    "The same as a JSON object of strings, instead of `authParams`.",
)


@dataclass(frozen=True)
class AuthenticationOptions:
    """Who connects.

    Attributes:
        method: ``none``, ``token``, ``basic``, ``tls``, ``keystore`` or ``oauth2``.
        credential: What proves it; None for ``none``.
    """

    method: str = option(
        "pulsar.client.authPluginClassName",
        "none",
        _method,
        Scope.CLIENT,
        "How to authenticate: `token`, `oauth2`, `basic`, `tls`, `keystore`, or Java's"
        " class for it.",
    )
    credential: Credential | None = field(
        default=None, metadata=set_by(_PARAMS, _PARAM_MAP)
    )

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """Return a key that is equal for equal identities.

        It does not hold the secret, and a token that is renewed does not change it.
        """
        return self.method, *(
            () if self.credential is None else self.credential.identity
        )


def authentication_options(given: Given) -> AuthenticationOptions:
    """Parse the options of authentication; problems are added to ``given``."""
    method_name, params_name, map_name = (
        "pulsar.client.authPluginClassName",
        _PARAMS.name,
        _PARAM_MAP.name,
    )
    both = params_name in given and map_name in given
    if both:
        given.problems.append(f"{params_name} and {map_name} say the same: give one.")
    name = map_name if map_name in given else params_name
    text: str | None = given[name]
    if method_name not in given and (params_name in given or map_name in given):
        given.problems.append(
            f"{name} is given without {method_name}: say which method it is for, such"
            " as token."
        )
    method: str = given[method_name]
    if method == "none":
        # A problem, if it is one, has been named.
        if method_name in given:
            given.leave_out(params_name)
            given.leave_out(map_name)
        return AuthenticationOptions()
    if both or (text is None and name in given):
        return AuthenticationOptions(method)
    try:
        params = _Params(text or "", name, is_map=name == map_name)
        return AuthenticationOptions(method, _READERS[method](params))
    except OptionError as error:
        given.problems.extend(error.problems)
        return AuthenticationOptions(method)


# -- what a method needs ---------------------------------------------------------------


class _Params:
    """The parameters of a method, as the user set them.

    Attributes:
        text: As it was given.
        option: Which option it is of, for errors.
    """

    def __init__(self, text: str, option: str, *, is_map: bool) -> None:
        self.text = text.strip()
        self.option = option
        self._is_map = is_map
        self._pairs: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.text)

    @property
    def is_json(self) -> bool:
        """Return whether the parameters are a JSON object."""
        return self._is_map or self.text.startswith("{")

    def read(self, *names: str, needed: tuple[str, ...] = ()) -> None:
        """Parse pairs from JSON, or from ``name:value,name:value``.

        Args:
            names: Which there are, as Java spells them. Case and underscores are free.
            needed: Which of them must be given.

        Raises:
            OptionError: They are neither, or one is unknown, doubled or missing.
        """
        spellings = {_plain(name): name for name in names}

        def unknown(key: str) -> OptionError:
            shown = f" {foreign_text(key, 40)!r}" if key.isidentifier() else ""
            return OptionError(
                f"{self.option} has a parameter{shown} that this method does not"
                f" know: it takes {', '.join(names)}.{nearest(_plain(key), spellings)}"
            )

        parameters = self._json() if self.is_json else self._listed(spellings)
        for key, value in parameters:
            name = spellings.get(_plain(key))
            if name is None:
                raise unknown(key)
            # What is no secret is shown, and must not hold another's value.
            if name not in _SECRETS:
                more = None if self.is_json else _MORE.search(value)
                if more is not None:
                    raise unknown(more[1])
                if any(
                    _plain(candidate) in spellings
                    for candidate in _HIDDEN.findall(value)
                ):
                    raise OptionError(
                        f"{self.option}: what follows {name} has another parameter in"
                        " it. Between parameters there must be a comma."
                    )
            if name in self._pairs:
                raise OptionError(f"{self.option} names {name} twice.")
            self._pairs[name] = value.strip()
        for name in needed:
            if not self._pairs.get(name):
                raise OptionError(f"{self.option} lacks {name}.")

    def __getitem__(self, name: str) -> str:
        return self._pairs.get(name, "")

    def secret(self, name: str) -> Secret:
        """Return a parameter that is a secret."""
        return Secret(self[name], f"{self.option} ({name})")

    def path(self, name: str) -> str:
        """Return a parameter that is a path, or a file URL."""
        return self[name].removeprefix("file:").removeprefix("//")

    def seconds(self, name: str, default_s: float) -> float:
        """Return a parameter that is a duration: ISO 8601, or milliseconds."""
        text = self[name]
        if not text:
            return default_s
        match = re.fullmatch(
            r"([0-9]{1,9})()()|PT(?:([0-9]{1,4})M)?(?:([0-9]{1,6})S)?", text, re.ASCII
        )
        if match is None or not any(match.groups()):
            raise OptionError(
                f"{self.option}: {name} must be a duration such as PT10S."
            )
        duration_s = int(match[1] or 0) / 1000 + int(match[4] or 0) * 60
        return max(duration_s + int(match[5] or 0), 0.001)

    def _json(self) -> list[tuple[str, str]]:
        pairs = load_object(self.text)
        if pairs is None or not all(isinstance(value, str) for _, value in pairs):
            raise OptionError(f"{self.option} must be a JSON object of strings.")
        return pairs

    def _listed(self, known: Mapping[str, str]) -> list[tuple[str, str]]:
        # A value may have commas, too: one ends where a name that is known begins.
        pairs: list[tuple[str, str]] = []
        for part in self.text.split(",") if self.text else ():
            name, colon, value = part.partition(":")
            if colon and (_plain(name) in known or not pairs):
                pairs.append((name.strip(), value))
            elif pairs:
                pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]},{part}")
            else:
                raise OptionError(
                    f"{self.option} must be JSON, or name:value pairs by comma."
                )
        return pairs


#: Parameters that are never shown, and may have any character in them.
_SECRETS = frozenset(
    {"token", "password", "keyStorePassword", "privateKey", "clientSecret"}
)

#: What looks like one more parameter, and not like a URL.
_MORE = re.compile(r",\s*([A-Za-z_]\w*)\s*:(?!//)", re.ASCII)

#: What looks like a secret behind another value, where the comma is something else.
_HIDDEN = re.compile(
    r"[\s,;&|](token|password|key_?store_?password|private_?key|client_?secret)\s*[:=]",
    re.IGNORECASE,
)


def _plain(name: str) -> str:
    """Return a parameter's name in the form used for comparisons."""
    return name.strip().lower().replace("_", "")


def _token(params: _Params) -> Token:
    text = params.text
    if params.is_json:
        params.read("token")
        text = params["token"]
    text = text.removeprefix("token:").strip()
    if not text:
        raise OptionError(
            f"{params.option} must give the token: token:..., file:/path/to/it or"
            " env:NAME."
        )
    return Token(Secret(text, params.option))


_NAMES_PASSWORD = re.compile(r",\s*password\s*:", re.IGNORECASE)


def _login(params: _Params) -> Login:
    beginning = _plain(params.text.partition(":")[0])
    if not params:
        raise OptionError(f"{params.option} must give user:password, or where it is.")
    if params.is_json or (
        beginning in ("userid", "username") and _NAMES_PASSWORD.search(params.text)
    ):
        params.read("userId", "username", "password", "method", needed=("password",))
        user = params["userId"] or params["username"]
        if not user or ":" in user:
            raise OptionError(
                f"{params.option} must have a userId, which has no colon in it."
            )
        return Login(user, params.secret("password"))
    whole = Secret(params.text, params.option)
    if not whole.is_inline:
        return Login("", whole)
    user, colon, password = params.text.partition(":")
    if not (user and colon and password):
        raise OptionError(f"{params.option} must be user:password.")
    return Login(user, Secret(password, params.option))


def _certificate(params: _Params) -> ClientCertificate:
    params.read("tlsCertFile", "tlsKeyFile")
    certificate, key = params.path("tlsCertFile"), params.path("tlsKeyFile")
    if bool(certificate) != bool(key):
        raise OptionError(
            f"{params.option} must have both of tlsCertFile and tlsKeyFile, or none."
        )
    return ClientCertificate(certificate, key)


def _key_store(params: _Params) -> ClientKeyStore:
    params.read("keyStoreType", "keyStorePath", "keyStorePassword")
    if params["keyStoreType"].upper() not in ("", "PKCS12"):
        raise OptionError(
            f"{params.option}: keyStoreType must be PKCS12. Stores of type JKS can be"
            " read by Java only: make a PKCS12 store by `keytool -importkeystore`."
        )
    return ClientKeyStore(
        params["keyStoreType"],
        params.path("keyStorePath"),
        params.secret("keyStorePassword") if params["keyStorePassword"] else None,
    )


def _client_credentials(params: _Params) -> ClientCredentials:
    params.read(
        "type",
        "issuerUrl",
        "privateKey",
        "clientId",
        "clientSecret",
        "audience",
        "scope",
        "trustCertsFilePath",
        "connectTimeout",
        "readTimeout",
        "allowHttp",
    )
    if params["type"] not in ("", "client_credentials"):
        raise OptionError(
            f"{params.option}: type must be client_credentials, which is the one way"
            " that needs nobody to log in."
        )
    is_named = bool(params["clientId"] and params["clientSecret"])
    if is_named == bool(params["privateKey"]):
        raise OptionError(
            f"{params.option} must have privateKey, or else clientId and clientSecret."
        )
    if is_named and not params["issuerUrl"]:
        raise OptionError(f"{params.option} lacks issuerUrl.")
    if params["allowHttp"].lower() not in ("", "true", "false"):
        raise OptionError(f"{params.option}: allowHttp must be true or false.")
    if params["issuerUrl"]:
        check_url(params["issuerUrl"], f"{params.option}: issuerUrl")
    return ClientCredentials(
        params.secret("clientSecret") if is_named else _private_key(params),
        client_id=params["clientId"] if is_named else "",
        issuer_url=params["issuerUrl"],
        audience=params["audience"],
        scope=params["scope"],
        trust_path=params.path("trustCertsFilePath"),
        connect_timeout_s=params.seconds("connectTimeout", 10.0),
        read_timeout_s=params.seconds("readTimeout", 30.0),
        allow_http=params["allowHttp"].lower() == "true",
    )


def _private_key(params: _Params) -> Secret:
    text, name = params["privateKey"], f"{params.option} (privateKey)"
    if text.startswith("data:"):
        head, comma, body = text.removeprefix("data:").partition(",")
        try:
            data = unquote_to_bytes(body)
            if head.endswith(";base64"):
                data = base64.b64decode(data, validate=True)
            text = data.decode()
        except (binascii.Error, ValueError):
            comma = ""
        if not comma:
            raise OptionError(
                f"{name} must be data:application/json;base64, and the key in base64."
            )
    kept = Secret(text, name)
    if kept.is_inline and not text.lstrip().startswith("{"):
        raise OptionError(
            f"{name} must be file:/path/to/the/key, env:NAME, data:... or a JSON"
            " object."
        )
    return kept


def check_url(url: str, what: str) -> None:
    """Raise unless the URL fits a token server.

    Raises:
        OptionError: It is not; begins with ``what``.
    """
    try:
        parts = urlsplit(url)
        is_good = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.username is None
            and parts.port != 0
            and url.isascii()
            and url.isprintable()
            and " " not in url
        )
    except ValueError:
        is_good = False
    if not is_good:
        # Not repeated: what stands before an "@" is a secret.
        raise OptionError(
            f"{what} must be a URL such as https://auth.example.com, without a user."
        )


_READERS: Mapping[str, Callable[[_Params], Credential]] = {
    "token": _token,
    "basic": _login,
    "tls": _certificate,
    "keystore": _key_store,
    "oauth2": _client_credentials,
}
