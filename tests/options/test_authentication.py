# SPDX-License-Identifier: Apache-2.0
"""Tests of the options that say who connects."""

from __future__ import annotations

import base64
import json
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import OptionError
from pulsar_spark.options import ClientOptions, parse_read_options, parse_write_options
from pulsar_spark.options.authentication import (
    AuthenticationOptions,
    ClientCertificate,
    ClientCredentials,
    ClientKeyStore,
    Login,
    Token,
)
from pulsar_spark.options.secret import Secret
from pulsar_spark.options.service_url import ServiceUrl

if TYPE_CHECKING:
    from pathlib import Path

BASE = {"service.url": "pulsar+ssl://h", "topic": "t"}
JAVA = "org.apache.pulsar.client.impl.auth."
PLUGIN = "pulsar.client.authPluginClassName"
PARAMS = "pulsar.client.authParams"
PARAM_MAP = "pulsar.client.authParamMap"
SECRET = "eyJhbGciOiJIUzI1NiJ9.c2VjcmV0"
KEY = {"client_id": "me", "client_secret": SECRET, "issuer_url": "https://a.example"}


def parse(**options: str) -> AuthenticationOptions:
    """Read ``plugin``, ``params``, ``param_map`` as the options of a read."""
    names = {"plugin": PLUGIN, "params": PARAMS, "param_map": PARAM_MAP}
    given_ = {names.get(name, name): text for name, text in options.items()}
    read = parse_read_options(BASE | given_).client.authentication
    write = parse_write_options(BASE | given_, streaming=True).client.authentication
    assert read == write
    return read


def problem(**options: str) -> str:
    """The one problem of such options, which does not repeat the secret."""
    with pytest.raises(OptionError) as caught:
        parse(**options)
    (only,) = caught.value.problems
    assert SECRET not in f"{caught.value!r} {caught.value.__context__!r}"
    return only


def test_nobody_by_default() -> None:
    """Without options nothing is proved."""
    assert parse() == AuthenticationOptions() == parse(plugin="none")
    assert parse(plugin=f"{JAVA}AuthenticationDisabled", params="x").method == "none"


@pytest.mark.parametrize(
    ("method", "names", "params"),
    [
        ("token", "token TOKEN AuthenticationToken", "token:x"),
        ("basic", "basic AuthenticationBasic", "a:b"),
        ("tls", "tls AuthenticationTls", "tlsCertFile:/c,tlsKeyFile:/k"),
        ("keystore", "keystore AuthenticationKeyStoreTls", "keyStorePath:/c"),
        (
            "oauth2",
            (
                "oauth2 oauth2.AuthenticationOAuth2 AuthenticationOAuth2"
                " oauth2.AuthenticationFactoryOAuth2 AuthenticationFactoryOAuth2"
            ),
            json.dumps({"privateKey": json.dumps(KEY)}),
        ),
    ],
)
def test_methods(method: str, names: str, params: str) -> None:
    """Short names and Java's classes, in any case."""
    for name in names.split():
        assert parse(plugin=name, params=params).method == method
        assert parse(plugin=f" {JAVA}{name} ", params=params).method == method


@pytest.mark.parametrize("prefix", ["pulsarClient", "pulsar.client."])
def test_spellings_of_others(prefix: str) -> None:
    """As Databricks' source has them, too."""
    options = {f"{prefix}AuthPluginClassName": "token", f"{prefix}AuthParams": "x"}
    found = parse_read_options(BASE | options).client.authentication
    assert found.credential == Token(Secret("x"))


@pytest.mark.parametrize(
    ("plugin", "text"),
    [
        (f"{JAVA}AuthenticationAthenz", "asks for Athenz, which"),
        ("athenz", "asks for Athenz, which"),
        (f"{JAVA}AuthenticationSasl", r"asks for SASL (Kerberos), which"),
        ("com.example.MyAuth", "for one of these, not com.example.MyAuth."),
        (SECRET, "Java's class for one of these."),
    ],
)
def test_what_is_not_supported(plugin: str, text: str) -> None:
    """One error that says what there is instead."""
    assert text in problem(plugin=plugin, params=f"token:{SECRET}")


def test_both_forms() -> None:
    """Nobody could say which one counts."""
    text = problem(plugin="token", params=SECRET, param_map=f'{{"token":"{SECRET}"}}')
    assert text == f"{PARAMS} and {PARAM_MAP} say the same: give one."


@pytest.mark.parametrize("name", ["params", "param_map"])
def test_no_method(name: str) -> None:
    """What is for no method would be dropped."""
    assert "is given without pulsar.client.authPluginClassName" in problem(
        **{name: f'{{"token":"{SECRET}"}}'}
    )


class TestToken:
    @pytest.mark.parametrize(
        ("params", "token"),
        [
            (f"token:{SECRET}", Secret(SECRET)),
            (f" {SECRET} ", Secret(SECRET)),
            ("file:/a/b", Secret("file:/a/b")),
            ("file:///a/b", Secret("file:///a/b")),
            ("env:NAME", Secret("env:NAME")),
            (f'{{"token": "{SECRET}"}}', Secret(SECRET)),
            ('{"token": "file:/a"}', Secret("file:/a")),
        ],
    )
    def test_forms(self, params: str, token: Secret) -> None:
        """As Java's client takes them, and where it is."""
        assert parse(plugin="token", params=params).credential == Token(token)

    @pytest.mark.parametrize(
        ("params", "text"),
        [
            (None, "must give the token"),
            ("token:", "must give the token"),
            ('{"tokn": "x"}', "Did you mean token?"),
            ("file:token", "whole path"),
        ],
    )
    def test_none(self, params: str | None, text: str) -> None:
        """The forms are named."""
        options = {} if params is None else {"params": params}
        assert text in problem(plugin="token", **options)

    def test_a_map(self) -> None:
        """The same as JSON."""
        found = parse(plugin="token", param_map=json.dumps({"token": SECRET}))
        assert found.credential == Token(Secret(SECRET))


class TestLogin:
    @pytest.mark.parametrize(
        ("params", "login"),
        [
            ("ann:se,cr:et", Login("ann", Secret("se,cr:et"))),
            ("userId:ann,password:se,cr:et", Login("ann", Secret("se,cr:et"))),
            ("username:ann,password:env:PW", Login("ann", Secret("env:PW"))),
            ("userId:ann, Password:se,cr:et", Login("ann", Secret("se,cr:et"))),
            ('{"userId":"ann","password":"a b"}', Login("ann", Secret("a b"))),
            ('{"username":"ann","password":"x"}', Login("ann", Secret("x"))),
            ("file:/login", Login("", Secret("file:/login"))),
            ("env:LOGIN", Login("", Secret("env:LOGIN"))),
        ],
    )
    def test_forms(self, params: str, login: Login) -> None:
        """A pair, Java's parameters, JSON, or where the pair is."""
        assert parse(plugin="basic", params=params).credential == login

    @pytest.mark.parametrize(
        ("params", "text"),
        [
            ({}, "must give user:password"),
            ({"params": SECRET}, "must be user:password"),
            ({"params": f":{SECRET}"}, "must be user:password"),
            ({"params": f'{{"password":"{SECRET}"}}'}, "must have a userId"),
            ({"params": '{"userId":"ann"}'}, "lacks password"),
            ({"params": f'{{"userId":"a:b","password":"{SECRET}"}}'}, "no colon"),
            ({"params": f'{{"userId":"a","password":"{SECRET}"'}, "JSON object"),
        ],
    )
    def test_problems(self, params: dict[str, str], text: str) -> None:
        """What is missing is named."""
        assert text in problem(plugin="basic", **params)


class TestCertificates:
    def test_paths(self) -> None:
        """For the connection to show them."""
        for params in (
            "tlsCertFile:/c,tlsKeyFile:/k",
            "tlsCertFile:file:///c, tlsKeyFile:file:/k",
            '{"tlsCertFile":"/c","tlsKeyFile":"/k"}',
        ):
            found = parse(plugin="tls", params=params).credential
            assert found == ClientCertificate("/c", "/k")

    def test_where_the_options_of_tls_say_it(self) -> None:
        """The method is enough."""
        pem = {"pulsar.client.tlsCertificateFilePath": "/c"}
        assert parse(plugin="tls", **pem).credential == ClientCertificate()
        store = {
            "pulsar.client.useKeyStoreTls": "true",
            "pulsar.client.tlsKeyStorePath": "/s",
        }
        assert parse(plugin="keystore", **store).credential == ClientKeyStore()

    def test_half(self) -> None:
        """A certificate without its key is of no use."""
        assert "both of tlsCertFile" in problem(plugin="tls", params="tlsCertFile:/c")

    def test_a_key_store(self) -> None:
        """With Java's parameters."""
        params = f"keyStoreType:PKCS12,keyStorePath:/s,keyStorePassword:{SECRET}"
        found = parse(plugin="keystore", params=params).credential
        assert found == ClientKeyStore("PKCS12", "/s", Secret(SECRET))

    def test_what_is_no_parameter(self) -> None:
        """It is named, not its value."""
        text = problem(plugin="tls", params=f'{{"tlsKeyFle":"{SECRET}"}}')
        assert "parameter 'tlsKeyFle'" in text
        assert text.endswith("Did you mean tlsKeyFile?")
        assert "name:value" in problem(plugin="tls", params=SECRET)
        doubled = '{"tlsKeyFile":"a","tls_key_file":"b"}'
        assert "tlsKeyFile twice" in problem(plugin="tls", params=doubled)

    @pytest.mark.parametrize("between", [";", " ", "\n", "; ", "&", "|"])
    @pytest.mark.parametrize("sign", [":", "="])
    def test_a_list_without_commas(self, between: str, sign: str) -> None:
        """Paths are shown, and so must not have the password in them."""
        text = problem(
            plugin="keystore",
            params=f"keyStorePath:/store.p12{between}keyStorePassword{sign}{SECRET}",
        )
        assert "there must be a comma" in text


class TestOAuth2:
    def found(self, **params: str) -> ClientCredentials:
        """What such parameters become."""
        found = parse(plugin="oauth2", params=json.dumps(params)).credential
        assert isinstance(found, ClientCredentials)
        return found

    def test_a_key_file(self) -> None:
        """As Java's client has it, with what else it takes."""
        found = self.found(
            type="client_credentials",
            issuerUrl="https://auth.example.com/",
            privateKey="file:///keys/me.json",
            audience="urn:pulsar",
            scope="api://pulsar/.default",
            trustCertsFilePath="/ca.pem",
            connectTimeout="PT5S",
            readTimeout="PT1M1S",
        )
        assert found == ClientCredentials(
            Secret("file:///keys/me.json"),
            issuer_url="https://auth.example.com/",
            audience="urn:pulsar",
            scope="api://pulsar/.default",
            trust_path="/ca.pem",
            connect_timeout_s=5,
            read_timeout_s=61,
        )

    @pytest.mark.parametrize("form", ["data:application/json;base64,{}", "data:,{}"])
    def test_inline_keys(self, form: str) -> None:
        """As data, or as JSON."""
        text = json.dumps(KEY)
        data = base64.b64encode(text.encode()).decode() if "base64" in form else text
        assert self.found(privateKey=form.format(data)).secret.read() == text
        assert self.found(privateKey=text).secret.read() == text

    def test_a_list_with_commas(self) -> None:
        """One ends where the next name begins."""
        key = f"data:application/json;base64,{base64.b64encode(b'{}').decode()}"
        params = f"issuerUrl:https://a.example:8443/x,privateKey:{key},audience:a,b"
        found = parse(plugin="oauth2", params=params).credential
        assert isinstance(found, ClientCredentials)
        assert found.issuer_url == "https://a.example:8443/x"
        assert found.secret.read() == "{}"
        assert found.audience == "a,b"

    @pytest.mark.parametrize(
        ("plugin", "params"),
        [
            ("tls", f"tlsCertFile:/c,tlsKeyFile:/k,tlsKeyPassword:{SECRET}"),
            ("keystore", f"keyStorePath:/k.p12, tlsKeyPassword : {SECRET}"),
            ("oauth2", f"issuerUrl:https://a/x,tlsKeyPassword:{SECRET},scope:a"),
        ],
    )
    def test_a_list_with_an_unknown_name(self, plugin: str, params: str) -> None:
        """It is no part of the value before, which errors would show."""
        assert "'tlsKeyPassword' that this" in problem(plugin=plugin, params=params)

    def test_a_password_with_commas(self) -> None:
        """It may look like anything."""
        params = "keyStorePath:/k.p12,keyStorePassword:a,b:c"
        found = parse(plugin="keystore", params=params).credential
        assert isinstance(found, ClientKeyStore)
        assert found.password == Secret("a,b:c")

    def test_a_client_by_name(self) -> None:
        """As the clients in C++ and Python have it."""
        found = self.found(
            issuer_url="https://a.example", client_id="me", client_secret="env:S"
        )
        expected = ClientCredentials(
            Secret("env:S"), client_id="me", issuer_url="https://a.example"
        )
        assert found == expected

    @pytest.mark.parametrize(
        ("params", "text"),
        [
            ({}, "must have privateKey, or else"),
            ({"clientId": "a"}, "must have privateKey, or else"),
            ({"clientId": "a", "clientSecret": SECRET}, "lacks issuerUrl"),
            ({"privateKey": SECRET}, "must be file:/path"),
            ({"privateKey": f"data:;base64,{SECRET}"}, "the key in base64"),
            ({"privateKey": "data:"}, "the key in base64"),
            ({"privateKey": "{}", "type": "password"}, "must be client_credentials"),
            ({"privateKey": "{}", "readTimeout": "5 s"}, "such as PT10S"),
            ({"privateKey": "{}", "issuerUrl": f"https://u:{SECRET}@h"}, "be a URL"),
            ({"privateKey": "{}", "issuerUrl": "auth.example.com"}, "be a URL"),
            ({"privateKey": "{}", "issuerUrl": "file:///etc/passwd"}, "be a URL"),
            ({"privateKey": "{}", "issuerUrl": "https://[x"}, "be a URL"),
            ({"privateKey": "{}", "allowHttp": "yes"}, "allowHttp must be true or"),
        ],
    )
    def test_problems(self, params: dict[str, str], text: str) -> None:
        """Each is named."""
        assert text in problem(plugin="oauth2", params=json.dumps(params))


class TestIdentity:
    """What connections are kept apart by."""

    def key(self, **options: str) -> Any:
        """The key of a pool."""
        url = ServiceUrl("pulsar", ("h:1",))
        return ClientOptions(url, authentication=parse(**options)).pool_key

    def test_it_is_what_was_given(self) -> None:
        """Another credential is another key; the same one, the same."""
        options = [
            {},
            {"plugin": "token", "params": SECRET},
            {"plugin": "token", "params": SECRET + "x"},
            {"plugin": "token", "params": "file:/a"},
            {"plugin": "basic", "params": f"ann:{SECRET}"},
            {"plugin": "basic", "params": f"bob:{SECRET}"},
            {"plugin": "tls", "params": "tlsCertFile:/c,tlsKeyFile:/k"},
            {"plugin": "tls", "params": "tlsCertFile:/c,tlsKeyFile:/l"},
            {
                "plugin": "keystore",
                "params": f"keyStorePath:/s,keyStorePassword:{SECRET}",
            },
            {"plugin": "keystore", "params": "keyStorePath:/s,keyStorePassword:x"},
            {"plugin": "oauth2", "params": json.dumps({"privateKey": json.dumps(KEY)})},
            {"plugin": "oauth2", "params": '{"privateKey":"file:/k","scope":"a"}'},
            {"plugin": "oauth2", "params": '{"privateKey":"file:/k","scope":"b"}'},
        ]
        keys = [self.key(**one) for one in options]
        assert len(set(keys)) == len(keys)
        assert keys == [self.key(**one) for one in options]
        assert SECRET not in repr(keys)
        assert SECRET.encode() not in pickle.dumps(keys)

    def test_a_token_that_is_renewed(self, tmp_path: Path) -> None:
        """The file is the same, and so is the key."""
        file = tmp_path / "token"
        keys = set()
        for text in ("a", "b"):
            file.write_text(text)
            keys.add(self.key(plugin="token", params=f"file:{file}"))
        assert len(keys) == 1


def test_options_travel_and_are_not_shown() -> None:
    """Tasks get them; nobody who prints them sees what they hold."""
    for plugin, params in (
        ("token", SECRET),
        ("basic", f"ann:{SECRET}"),
        ("keystore", f"keyStorePath:/s,keyStorePassword:{SECRET}"),
        ("oauth2", json.dumps({"privateKey": json.dumps(KEY)})),
    ):
        options = parse(plugin=plugin, params=params)
        copied = pickle.loads(pickle.dumps(options))  # noqa: S301 - our own bytes
        assert copied == options
        assert hash(copied) == hash(options)
        assert SECRET not in f"{options} {options!r} {replace(options, method='x')!r}"


texts = st.text(max_size=30) | st.sampled_from(
    ["{", "{}", "file:", "a:b", '{"a":1}', '{"token":null}', "data:;base64,=", "[1]"]
)


@given(
    st.sampled_from(["token", "basic", "tls", "keystore", "oauth2", "none"]),
    texts,
    st.booleans(),
)
def test_any_text_is_a_value_or_an_option_error(
    plugin: str, text: str, is_map: bool
) -> None:
    """Nothing fails in another way."""
    try:
        found = parse(plugin=plugin, **{"param_map" if is_map else "params": text})
    except OptionError:
        return
    assert found.method == plugin
