# SPDX-License-Identifier: Apache-2.0
"""Tests of the options of TLS."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from typing import Any

import pytest

from pulsar_spark.errors import OptionError
from pulsar_spark.options import (
    ClientOptions,
    ServiceUrl,
    TlsOptions,
    parse_read_options,
    parse_write_options,
)
from pulsar_spark.options.secret import Secret
from spark_topics.options.spec import specs_of

BASE = {"service.url": "pulsar+ssl://h", "topic": "t"}
C = "pulsar.client."
STORES = {f"{C}useKeyStoreTls": "true"}
PASSWORD = "not-to-be-seen"

#: Options, the fields that they set, and what else they need.
GIVEN: dict[str, tuple[str, str, Any, dict[str, str]]] = {
    f"{C}useTls": ("use_tls", "true", True, {}),
    f"{C}tlsTrustCertsFilePath": ("trust_certificates_path", "/ca", "/ca", {}),
    f"{C}tlsCertificateFilePath": ("certificate_path", "/c", "/c", {}),
    f"{C}tlsKeyFilePath": (
        "key_path",
        "/k",
        "/k",
        {f"{C}tlsCertificateFilePath": "/c"},
    ),
    f"{C}tlsAllowInsecureConnection": ("allow_insecure", "true", True, {}),
    f"{C}tlsHostnameVerificationEnable": ("verify_hostname", "false", False, {}),
    f"{C}useKeyStoreTls": ("use_key_stores", "true", True, {}),
    f"{C}tlsTrustStoreType": ("trust_store_type", "pkcs12", "PKCS12", STORES),
    f"{C}tlsTrustStorePath": ("trust_store_path", "/t.p12", "/t.p12", STORES),
    f"{C}tlsTrustStorePassword": (
        "trust_store_password",
        PASSWORD,
        Secret(PASSWORD),
        STORES,
    ),
    f"{C}tlsKeyStoreType": ("key_store_type", "PKCS12", "PKCS12", STORES),
    f"{C}tlsKeyStorePath": ("key_store_path", "/k.p12", "/k.p12", STORES),
    f"{C}tlsKeyStorePassword": (
        "key_store_password",
        "env:KEY_PASSWORD",
        Secret("env:KEY_PASSWORD"),
        STORES,
    ),
    f"{C}tlsCiphers": (
        "ciphers",
        "TLS_AES_128_GCM_SHA256, ecdhe-rsa-aes128-gcm-sha256",
        ("TLS_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        {},
    ),
    f"{C}tlsProtocols": ("protocols", "tlsv1.3", ("TLSv1.3",), {}),
    f"{C}proxyServiceUrl": ("proxy", "pulsar+ssl://p:4443", "p:4443", {}),
    f"{C}proxyProtocol": ("proxy_protocol", "sni", "SNI", {}),
}


def tls(**options: str) -> TlsOptions:
    """The options of TLS of a read, as they were parsed."""
    return parse_read_options(BASE | options).client.tls


def problems(options: dict[str, str]) -> tuple[str, ...]:
    """What is wrong with the options of a read."""
    with pytest.raises(OptionError) as caught:
        parse_read_options(BASE | options)
    return caught.value.problems


@pytest.mark.parametrize("name", GIVEN)
def test_each_option_reaches_its_field(name: str) -> None:
    """In reads and writes, in any case; nothing else changes."""
    field, text, value, others = GIVEN[name]
    with_it = tls(**{name.lower(): text, **others})
    assert getattr(with_it, field) == value
    without = tls(**others)
    changed = {f.name for f in fields(TlsOptions)} - {field}
    assert all(getattr(with_it, f) == getattr(without, f) for f in changed)
    written = parse_write_options(BASE | {name: text, **others}, streaming=True)
    assert written.client.tls == with_it


def test_every_option_is_tested_here() -> None:
    """An option added to the model is added to these tests."""
    assert {spec.name for spec in specs_of(TlsOptions)} == set(GIVEN)


def test_what_is_safe_is_the_default() -> None:
    """Certificates and hosts are verified, and TLS is 1.2 at least."""
    default = tls()
    assert default.verify_hostname
    assert not default.allow_insecure
    assert default.protocols == ("TLSv1.2", "TLSv1.3")


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("tlsTrustStoreType", "JKS", "keytool -importkeystore"),
        ("tlsKeyStoreType", "jks", "-deststoretype PKCS12"),
        ("tlsKeyStoreType", "BKS", "must be PKCS12"),
        ("tlsProtocols", "TLSv1.1,TLSv1.2", "tlsv1.1, which is not safe"),
        ("tlsProtocols", "SSLv3", "not safe"),
        ("tlsProtocols", "TLSv2", "must be TLSv1.2, TLSv1.3 or both"),
        ("tlsCiphers", "ALL:!aNULL", "names of cipher suites"),
        ("tlsAllowInsecureConnection", "yes", "must be true or false"),
        ("proxyProtocol", "SOCKS5", "must be SNI"),
        ("proxyServiceUrl", "pulsar://p:4443", "must be one proxy"),
        ("proxyServiceUrl", "pulsar+ssl://p,pulsar+ssl://q", "must be one proxy"),
    ],
)
def test_values_that_cannot_be(name: str, text: str, part: str) -> None:
    """The error says what can."""
    (problem,) = problems({C + name: text, **(STORES if "Store" in name else {})})
    assert problem.startswith(C + name)
    assert part in problem


@pytest.mark.parametrize(
    "name",
    [
        "tlsTrustCertsFilePath",
        "tlsCertificateFilePath",
        "tlsTrustStorePath",
        "tlsKeyStorePath",
        "tlsKeyStorePassword",
        "tlsCiphers",
        "tlsProtocols",
        "useTls",
        "useKeyStoreTls",
        "proxyServiceUrl",
    ],
)
def test_what_asks_for_tls_needs_the_scheme(name: str) -> None:
    """Without TLS it would be dropped, and everything sent in clear text."""
    _, text, _, _ = GIVEN[C + name]
    (problem,) = problems({"service.url": "pulsar://h", C + name: text})
    assert problem.startswith(f"{C}{name} would have no effect")
    assert "pulsar+ssl://" in problem


@pytest.mark.parametrize(
    "options",
    [
        {"useTls": "false", "useKeyStoreTls": "false"},
        {"tlsHostnameVerificationEnable": "true"},
        {"tlsHostnameVerificationEnable": "false"},
        {"tlsAllowInsecureConnection": "false"},
    ],
)
def test_what_asks_for_nothing_needs_no_scheme(options: dict[str, str]) -> None:
    """Values that other clients write down by themselves are harmless."""
    given = {C + name: text for name, text in options.items()}
    client = parse_read_options(BASE | {"service.url": "pulsar://h"} | given).client
    assert not client.service_url.uses_tls


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"tlsKeyFilePath": "/k"}, "needs pulsar.client.tlsCertificateFilePath"),
        ({"tlsKeyStorePath": "/k"}, "needs pulsar.client.useKeyStoreTls=true"),
        (
            {"useKeyStoreTls": "true", "tlsTrustCertsFilePath": "/ca"},
            "cannot be set beside pulsar.client.useKeyStoreTls=true",
        ),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, str], part: str) -> None:
    """Nothing that was given is left out in silence."""
    (problem,) = problems({C + name: text for name, text in options.items()})
    assert part in problem


def test_connections_are_shared_by_equal_options() -> None:
    """The scheme counts, whether or not an option repeats it; trust is in the key."""
    url = ServiceUrl("pulsar+ssl", ("h:6651",))
    assert tls(**{f"{C}useTls": "true"}) == tls() == tls(**{f"{C}useTls": "false"})
    one, other = ClientOptions(url, tls=tls()), ClientOptions(url, tls=tls())
    assert one.pool_key == other.pool_key
    assert hash(one.pool_key) == hash(other.pool_key)
    for name, (_, text, _, others) in GIVEN.items():
        if name != f"{C}useTls" and not name.endswith(("Type", "Protocol")):
            changed = replace(one, tls=tls(**{name: text, **others}))
            assert changed.pool_key != replace(one, tls=tls(**others)).pool_key, name


def test_no_password_is_shown() -> None:
    """It travels to executors, and is in no text on the way."""
    name = f"{C}tlsKeyStorePassword"
    options = parse_read_options(BASE | STORES | {name: PASSWORD})
    assert PASSWORD not in f"{options!r} {options.client.pool_key!r}"
    again = pickle.loads(pickle.dumps(options))  # noqa: S301 - our own
    assert again == options
    assert again.client.tls.key_store_password.read() == PASSWORD


class TestIdentity:
    """Authentication by a certificate is what TLS shows."""

    METHOD = f"{C}authPluginClassName"
    PARAMS = f"{C}authParams"

    def test_files_of_the_parameters(self) -> None:
        """As Java's client has them."""
        found = tls(
            **{self.METHOD: "tls", self.PARAMS: "tlsCertFile:/c,tlsKeyFile:/k"},
            **{f"{C}tlsTrustCertsFilePath": "/ca"},
        )
        assert (found.certificate_path, found.key_path) == ("/c", "/k")
        assert found.trust_certificates_path == "/ca"

    def test_files_of_the_options_of_tls(self) -> None:
        """Then there are no parameters."""
        found = tls(**{self.METHOD: "tls", f"{C}tlsCertificateFilePath": "/both"})
        assert found.certificate_path == "/both"

    def test_a_key_store(self) -> None:
        """Its password is as well kept as the others."""
        params = f"keyStoreType:PKCS12,keyStorePath:/k.p12,keyStorePassword:{PASSWORD}"
        found = tls(**{self.METHOD: "keystore", self.PARAMS: params})
        assert found.key_store_path == "/k.p12"
        assert found.key_store_password is not None
        assert found.key_store_password.read() == PASSWORD
        assert PASSWORD not in repr(found)

    PEM = "tlsCertFile:/c,tlsKeyFile:/k"
    STORE = "keyStorePath:/s"

    @pytest.mark.parametrize(
        ("method", "params", "options", "is_same"),
        [
            ("tls", PEM, ("/c", "/k", ""), True),
            ("tls", PEM, ("/other", "/k", ""), False),
            ("tls", PEM, ("/c", "/other", ""), False),
            ("tls", PEM, ("", "", "/s"), False),
            ("tls", "", ("", "", "/s"), True),
            ("keystore", STORE, ("", "", "/s"), True),
            ("keystore", STORE, ("", "", "/other"), False),
            ("keystore", STORE, ("/c", "/k", ""), False),
            ("keystore", "", ("/c", "/k", ""), True),
        ],
    )
    def test_it_is_named_twice(
        self, method: str, params: str, options: tuple[str, str, str], *, is_same: bool
    ) -> None:
        """The same one may be, another one may not: which would TLS show?"""
        names = "tlsCertificateFilePath", "tlsKeyFilePath", "tlsKeyStorePath"
        given = {C + n: text for n, text in zip(names, options, strict=True) if text}
        if options[2]:
            given[f"{C}useKeyStoreTls"] = "true"
        given |= {self.METHOD: method, **({self.PARAMS: params} if params else {})}
        if is_same:
            found = tls(**given)
            shown = found.certificate_path, found.key_path, found.key_store_path
            assert tuple(text or "" for text in shown) == options
        else:
            (problem,) = problems(given)
            assert "names another one" in problem

    def test_it_is_named_twice_in_other_words(self) -> None:
        """A path has several spellings."""
        given = {f"{C}tlsCertificateFilePath": "/a//c", f"{C}tlsKeyFilePath": "/a/./k"}
        params = "tlsCertFile:/a/c,tlsKeyFile:/b/../a/k"
        found = tls(**given, **{self.METHOD: "tls", self.PARAMS: params})
        assert found.certificate_path == "/a/c"

    @pytest.mark.parametrize("kind", ["JKS", "FOO"])
    def test_a_key_store_that_only_java_reads(self, kind: str) -> None:
        """The way to another one is told."""
        given = {
            self.METHOD: "keystore",
            self.PARAMS: f"keyStorePath:/k,keyStoreType:{kind}",
        }
        (problem,) = problems(given)
        assert "keyStoreType must be PKCS12" in problem
        assert "keytool" in problem

    def test_none_at_all(self) -> None:
        """It could never work."""
        (problem,) = problems({self.METHOD: "tls"})
        assert "asks for a client certificate, and there is none" in problem

    def test_without_tls(self) -> None:
        """Nothing else can show one."""
        given = {self.METHOD: "tls", self.PARAMS: "tlsCertFile:/c,tlsKeyFile:/k"}
        (problem,) = problems({"service.url": "pulsar://h", **given})
        assert "only TLS can show" in problem
