# SPDX-License-Identifier: Apache-2.0
"""What a user is proven by: a signature that a password makes, which is never sent.

::

    signature = url(base64(HMAC-SHA1(password, name + timestamp + nonce)))

The numbers are in decimal digits, and ``url`` is the encoding of a URL's query.

Source: InLong 2.4, TStringUtils, whose signatures these equal.
"""

from __future__ import annotations

import base64
import hmac
from urllib.parse import quote

from tubemq_spark.wire import tubemq_pb2 as pb


def signature(name: str, password: str, timestamp_ms: int, nonce: int) -> str:
    """Return the signature that proves knowledge of a password.

    Args:
        name: Of the user.
        password: Of it.
        timestamp_ms: Now, in milliseconds since 1970.
        nonce: From 0 to 2**31 - 1, another one each time.
    """
    text = f"{name}{timestamp_ms}{nonce}".encode()
    digest = hmac.digest(password.encode("utf-8", "surrogatepass"), text, "sha1")
    return quote(base64.b64encode(digest), safe="")


def certificate(
    name: str, password: str, timestamp_ms: int, nonce: int, token: str = ""
) -> pb.MasterCertificateInfo:
    """Return what a request to a master is let in by.

    Args:
        name: Of the user.
        password: Of it.
        timestamp_ms: Now, in milliseconds since 1970; masters bear some difference.
        nonce: From 0 to 2**31 - 1, another one each time.
        token: What a master gave for an earlier one, "" for none.
    """
    return pb.MasterCertificateInfo(
        authInfo=pb.AuthenticateInfo(
            userName=name,
            timestamp=timestamp_ms,
            nonce=nonce,
            othParams="",
            signature=signature(name, password, timestamp_ms, nonce),
        ),
        authorizedToken=token or None,
    )
