# SPDX-License-Identifier: Apache-2.0
"""TLS for the servers of ``tubemq_servers.py``, with stores as Java's keytool has them.

Only TLS that asks clients for a certificate: without that, server 2.4.0 ends at the
first connection::

    authority = Authority(folder)
    TubeMQ(topics, tls_settings=tls_settings(authority, authority.issue("server")))
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.certificates import Authority, Pair

_PASSWORD = "of-the-stores"


def tls_settings(authority: Authority, server: Pair) -> dict[str, str]:
    """The settings of ``tlsSetting``, but for the port.

    Args:
        authority: Whom the servers trust.
        server: What they show.
    """
    folder = authority.folder
    keys, trust = folder / "server.jks", folder / "trust.jks"
    _keytool(
        *("-importkeystore", "-srckeystore", str(server.key_store(_PASSWORD))),
        *("-srcstoretype", "PKCS12", "-srcstorepass", _PASSWORD),
        *("-destkeystore", str(keys), "-deststoretype", "JKS"),
        *("-deststorepass", _PASSWORD),
    )
    _keytool(
        *("-importcert", "-file", str(authority.certificate), "-alias", "authority"),
        *("-keystore", str(trust), "-storetype", "JKS", "-storepass", _PASSWORD),
    )
    return {
        "tlsKeyStorePath": str(keys),
        "tlsKeyStorePassword": _PASSWORD,
        "tlsTwoWayAuthEnable": "true",
        "tlsTrustStorePath": str(trust),
        "tlsTrustStorePassword": _PASSWORD,
    }


def _keytool(*arguments: str) -> None:
    subprocess.run(
        ["keytool", *arguments, "-noprompt"],
        check=True,
        capture_output=True,
        timeout=120,
    )
