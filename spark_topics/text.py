# SPDX-License-Identifier: Apache-2.0
"""Texts that users wrote: quoted in errors, and read as JSON without losing a key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

#: How many names an error lists before it only counts the rest.
_NAMES_SHOWN = 5


class Pairs(list[tuple[str, Any]]):
    """A JSON object that keeps repeated keys, which a dict would drop."""


def load_pairs(text: str) -> Any:
    """Read JSON; each object becomes ``Pairs``.

    Raises:
        ValueError: It is not JSON, or a number in it has thousands of digits.
        RecursionError: It is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=Pairs)


def load_object(text: str) -> Pairs | None:
    """Parse a JSON object as ``load_pairs`` does; return None for other JSON."""
    try:
        pairs = load_pairs(text)
    except (ValueError, RecursionError):
        return None
    return pairs if isinstance(pairs, Pairs) else None


def is_unicode(text: str) -> bool:
    """Return whether the text has no lone surrogates, which JSON can smuggle in."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shorten(value: object, limit: int = 80) -> str:
    """Quote what a user wrote, bounded in length, for the text of an error."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= limit else text[: limit - 3] + "..."


#: A name before a value, such as ``authParams=``: no URI, part of a path, or host:port.
#: Or the slashes of a URI before a user, such as ``//user:password@host``.
_NAME_OF_VALUE = re.compile(
    r"(?<![\w./-])[A-Za-z][\w.-]+\s*(?:=(?!=|\s*$)|:(?!/|\s*$|[0-9]{1,5}(?:$|[,/])))"
    r"|//(?=[^/\s]*@|[^/\s]*:\S*@)",
    re.ASCII,
)


def without_value(text: str) -> str | None:
    """Return a text without what follows a name in it; None where there is no name.

    Where one plain value is expected, what follows ``name=`` or ``name:`` is the value
    of another option, perhaps a secret. So it is never quoted, nor is the user in a
    URI, whom a password may follow.
    """
    name = _NAME_OF_VALUE.search(text)
    return None if name is None else f"{text[: name.end()]}..."


#: A part of a value that an error shows as it is, or cuts; and one that tells nothing.
_WORD = re.compile(r"[^\s\"'\\,:;=/@&{}()\[\]]+")
_SMALL = re.compile(r"[0-9]{1,3}\Z")


def shows(message: str, hidden: str) -> bool:
    """Return whether a message shows a part of a text, which it may escape or cut."""
    words = _WORD.findall(hidden)
    # Shorter ones are part of any sentence.
    return any(w[:4] in message for w in words if len(w) >= 4 or len(words) == 1)


def without_words(text: str) -> str:
    """Return a text with ``...`` for each word that is no small number."""
    return _WORD.sub(lambda w: w[0] if _SMALL.match(w[0]) else "...", text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 task`` and ``2,000 entries``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1] + 'ies' if noun.endswith('y') else noun + 's'}"


def list_names(names: Iterable[object]) -> str:
    """Return the first few names, and how many more there are.

    Only what is shown becomes text.
    """
    names = list(names)
    shown = ", ".join(map(str, names[:_NAMES_SHOWN]))
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def same_but_for_case(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that only their case tells apart, which Spark does not.

    The second name is the first that repeats a name before; None if all differ.
    """
    folded: dict[str, str] = {}
    for name in names:
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            return other, name
    return None
