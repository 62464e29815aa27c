# SPDX-License-Identifier: Apache-2.0
"""Ways to authenticate: for each, the provider that gives connections credentials."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from pulsar_spark.client.authentication.stored import (
    CertificateCredentials,
    LoginCredentials,
    TokenCredentials,
)
from pulsar_spark.client.credentials import CredentialProvider
from pulsar_spark.options.authentication import (
    AuthenticationOptions,
    ClientCertificate,
    ClientCredentials,
    ClientKeyStore,
    Login,
    Token,
)

if TYPE_CHECKING:
    from pulsar_spark.client.authentication.oauth2 import OAuth2Credentials

#: Providers that remember something: what they got is of use to every connection.
_providers: dict[Hashable, OAuth2Credentials] = {}


def credential_provider(options: AuthenticationOptions) -> CredentialProvider | None:
    """Return the provider of credentials for these options, None without any."""
    match options.credential:
        case None:
            return None
        case Token():
            return TokenCredentials(options.credential)
        case Login():
            return LoginCredentials(options.credential)
        case ClientCertificate() | ClientKeyStore():
            return CertificateCredentials()
        case ClientCredentials():
            # HTTP, which takes long to import, is for these alone.
            from pulsar_spark.client.authentication.oauth2 import OAuth2Credentials

            made = OAuth2Credentials(options.credential)
            return _providers.setdefault(options.identity, made)


def forget_parent() -> None:
    """Drop the parent's providers in a forked child; threads may have held locks."""
    _providers.clear()
