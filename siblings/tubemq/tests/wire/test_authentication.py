# SPDX-License-Identifier: Apache-2.0
"""Signatures: those of the Java client, and what goes to a master."""

from __future__ import annotations

import pytest

from tubemq_spark.wire.authentication import certificate, signature

MOMENT_MS = 1795315003673


@pytest.mark.parametrize(
    ("name", "password", "timestamp_ms", "nonce", "text"),
    [
        ("reports", "of-the-user", MOMENT_MS, 0, "xwrbt%2FLFcvrb%2BeRFqm9HUBpkST4%3D"),
        (
            "reports",
            "of-the-user",
            MOMENT_MS,
            2**31 - 1,
            "SqUgTeLMxn8PYjQipVGiCoGNTi4%3D",
        ),
        ("jürgen", "päss wörd", 1, 17, "29BMm1hJHyGmfKG78E7zn5PzikM%3D"),
        ("u", "p", 1, 0, "tsf3rCQy9C%2F%2B95LYOM5Lm%2FAF6zA%3D"),
    ],
)
def test_a_signature_is_that_of_the_java_client(
    name: str, password: str, timestamp_ms: int, nonce: int, text: str
):
    """What TStringUtils.getAuthSignature of tubemq-core 1.13.0 returned."""
    assert signature(name, password, timestamp_ms, nonce) == text


def test_a_certificate_has_no_password():
    found = certificate("me", "very-secret", 1, 2, "token")
    assert found.authInfo.userName == "me"
    assert (found.authInfo.timestamp, found.authInfo.nonce) == (1, 2)
    assert found.authInfo.signature == signature("me", "very-secret", 1, 2)
    assert found.authorizedToken == "token"
    assert b"very-secret" not in found.SerializeToString()
    assert not certificate("me", "x", 1, 2).HasField("authorizedToken")
