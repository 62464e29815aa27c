# SPDX-License-Identifier: Apache-2.0
"""Values of options that must not be shown."""

from __future__ import annotations

import hmac


class Secret:
    """A text that is never shown: not printed, formatted, logged or put into an error.

    It is pickled with its text, because tasks need it, and compared in constant time.
    It has no hash, and so is no part of a key.

    Args:
        text: What to keep.
    """

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """Return the text, for the one who sends it."""
        return self.__text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_utf8(self.__text), _utf8(other.__text))

    def __repr__(self) -> str:
        return "Secret(***)"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self.__text,)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
