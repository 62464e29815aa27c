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
    """Return what gives credentials by these options, None where there are none."""
    match options.credential:
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
    return None


def forget_parent() -> None:
    """Forget, in a forked child, the parent's providers; threads may have held them."""
    _providers.clear()
