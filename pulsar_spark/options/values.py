"""How the text of an option becomes its value.

Each function reads one text and names the option in its errors.
"""

from __future__ import annotations

import difflib
import enum
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from pulsar_spark.errors import OptionError
from pulsar_spark.offsets import (
    Edge,
    OffsetsSpec,
    TimesSpec,
    parse_offsets,
    parse_times,
)
from pulsar_spark.options.model import (
    DEFAULT_PORT,
    METADATA_COLUMNS_ALL,
    DeliveryGuarantee,
    FilterPushdown,
)
from pulsar_spark.topics import TopicName, TopicsPattern, compile_topics_pattern

#: The largest numbers that other connectors, whose numbers are Java's, take.
MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1


class Kept(enum.Enum):
    """A start that the broker keeps, as the word that ``startingOffsets`` takes."""

    SUBSCRIPTION = "subscription"


def plain_text(text: str, option: str) -> str:
    """Any text, without spaces around it."""
    return text.strip()


# What brokers refuse: `PersistentTopic.subscribe` the names of its own cursors, and
# `ServerCnx` (since 4.0.6) new names with a slash, which divides paths of the HTTP API.
_RESERVED_NAME = "pulsar.dedup"
_RESERVED_PREFIX = "pulsar.repl"


def subscription_name(text: str, option: str) -> str:
    """A name that brokers take for a subscription."""
    name = text.strip()
    if "/" in name:
        raise OptionError(f"{option} must not contain a slash, unlike {name!r}.")
    if name == _RESERVED_NAME or name.startswith(_RESERVED_PREFIX):
        raise OptionError(
            f"{option} must not be {_RESERVED_NAME}, nor begin with {_RESERVED_PREFIX}:"
            f" brokers keep these names for themselves. Not {name!r}."
        )
    return name


def boolean(text: str, option: str) -> bool:
    """``true`` or ``false``."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise OptionError(f"{option} must be true or false, not {text!r}.")
    return word == "true"


def integer(minimum: int, maximum: int) -> Callable[[str, str], int]:
    """A whole number within limits."""

    def parse(text: str, option: str) -> int:
        # At most 19 digits: longer ones are out of every range, and slow to read.
        number = text.strip()
        if not re.fullmatch(r"[-+]?[0-9]{1,19}", number):
            raise OptionError(f"{option} must be a whole number, not {text!r}.")
        return _in_range(int(number), minimum, maximum, option)

    return parse


def size(minimum: int, maximum: int) -> Callable[[str, str], int]:
    """A number of bytes, plain or with the suffix k, m or g."""

    def parse(text: str, option: str) -> int:
        match = re.fullmatch(
            r"([0-9]{1,19})\s*([kmgt]?)(?:i?b)?", text.strip(), re.ASCII | re.IGNORECASE
        )
        if match is None:
            raise OptionError(
                f"{option} must be a number of bytes such as 4194304, 4096k or 4m,"
                f" not {text!r}."
            )
        shift = 10 * ("kmgt".index(match[2].lower()) + 1) if match[2] else 0
        return _in_range(int(match[1]) << shift, minimum, maximum, option)

    return parse


def _in_range(number: int, minimum: int, maximum: int, option: str) -> int:
    if not minimum <= number <= maximum:
        raise OptionError(
            f"{option} must be between {minimum} and {maximum}, not {number}."
        )
    return number


def seconds(unit: float, maximum_s: int, minimum: int = 1) -> Callable[..., float]:
    """Read a duration in units of so many seconds as seconds."""
    parse_integer = integer(minimum, round(maximum_s / unit))

    def parse(text: str, option: str) -> float:
        # Divided, not multiplied: 120000 ms are 120.0 s exactly.
        return parse_integer(text, option) / round(1 / unit)

    return parse


_DAY_MS = 24 * 60 * 60 * 1000
_UNITS_MS = {
    name: unit_ms
    for names, unit_ms in (
        ("ms millisecond milliseconds", 1),
        ("s second seconds", 1000),
        ("m min minute minutes", 60 * 1000),
        ("h hour hours", 60 * 60 * 1000),
        ("d day days", _DAY_MS),
    )
    for name in names.split()
}


def duration(max_days: int) -> Callable[[str, str], float]:
    """A whole number with a unit, as Spark writes durations, as seconds.

    Without a unit it is milliseconds, as where Spark's Kafka source takes a duration.
    """

    def parse(text: str, option: str) -> float:
        match = re.fullmatch(
            r"([0-9]{1,19})\s*([a-z]*)", text.strip().lower(), re.ASCII
        )
        unit_ms = _UNITS_MS.get(match[2] or "ms") if match else None
        if match is None or unit_ms is None:
            raise OptionError(
                f"{option} must be a duration such as 500ms, 30s, 15m, 2h or 1d, not"
                f" {text!r}."
            )
        total_ms = int(match[1]) * unit_ms
        if total_ms > max_days * _DAY_MS:
            raise OptionError(f"{option} must be at most {max_days}d, not {text!r}.")
        return total_ms / 1000

    return parse


#: How far publish times may be off where nothing is said of it, in seconds. Far more
#: than clocks that are kept in step, and a producer's longest try to send.
_CLOCKS_WITHIN_S = 300.0


def filter_pushdown(text: str, option: str) -> FilterPushdown | None:
    """``false``, or ``true`` with the accuracy of publish times behind it."""
    switch, comma, accuracy = text.strip().lower().partition(",")
    if boolean(switch.strip(), option):
        within = duration(max_days=365)(accuracy, option) if comma else _CLOCKS_WITHIN_S
        return FilterPushdown(within)
    if comma:
        raise OptionError(f"{option} must be false or true, such as true,10m.")
    return None


def word(
    *words: str, others: Mapping[str, str] | None = None
) -> Callable[[str, str], str]:
    """One of some words in any case, as it is spelt here.

    Args:
        words: The words.
        others: Further spellings, and the words that they stand for.
    """
    spellings = {word: word for word in words} | dict(others or {})
    known = {spelling.lower(): word for spelling, word in spellings.items()}
    *first, last = words
    choice = f"{', '.join(first)} or {last}"

    def parse(text: str, option: str) -> str:
        word = known.get(text.strip().lower())
        if word is None:
            raise OptionError(f"{option} must be {choice}, not {text!r}.")
        return word

    return parse


def topic(text: str, option: str) -> tuple[TopicName, ...]:
    """One topic name."""
    if "," in text:
        raise OptionError(
            f"{option} names one topic: use topics for several, and in a write the"
            " column __topic."
        )
    return topics(text, option)


def commit_topic(text: str, option: str) -> TopicName:
    """One topic name, of a topic that is ours alone."""
    if "," in text:
        raise OptionError(f"{option} names one topic, without a comma.")
    (name,) = topics(text, option)
    return name


def topics(text: str, option: str) -> tuple[TopicName, ...]:
    """Topic names by comma; what comes twice counts once."""
    names: dict[TopicName, None] = {}
    problems = []
    for part in filter(str.strip, text.split(",")):
        try:
            names[TopicName.parse(part)] = None
        except OptionError as error:
            problems += [f"{option}: {problem}" for problem in error.problems]
    if problems:
        raise OptionError(*problems)
    if not names:
        raise OptionError(f"{option} names no topic.")
    return tuple(names)


def topics_pattern(text: str, option: str) -> TopicsPattern:
    """See ``compile_topics_pattern``."""
    return compile_topics_pattern(text, option=option)


def starting_offsets(text: str, option: str) -> OffsetsSpec | Kept:
    """See ``parse_offsets``; or the word for where a subscription stands."""
    if text.strip().lower() == Kept.SUBSCRIPTION.value:
        return Kept.SUBSCRIPTION
    return parse_offsets(text, option=option, default=Edge.EARLIEST)


def ending_offsets(text: str, option: str) -> OffsetsSpec:
    """See ``parse_offsets``; what is not named ends at latest."""
    return parse_offsets(text, option=option, default=Edge.LATEST)


def times(text: str, option: str) -> TimesSpec:
    """See ``parse_times``."""
    return parse_times(text, option=option)


_delivery_guarantee = word(*(guarantee.value for guarantee in DeliveryGuarantee))


def delivery_guarantee(text: str, option: str) -> DeliveryGuarantee:
    """One of the guarantees."""
    return DeliveryGuarantee(_delivery_guarantee(text, option))


# What stands in names of producers and of topics without any change.
_ID_CHARACTERS = r"A-Za-z0-9._:=\-"
_MAX_ID_LENGTH = 200


def idempotence_id(text: str, option: str) -> str:
    """A text that names of producers and topics can be made from."""
    name = text.strip()
    if not re.fullmatch(rf"[{_ID_CHARACTERS}]{{1,{_MAX_ID_LENGTH}}}", name):
        raise OptionError(
            f"{option} must be at most {_MAX_ID_LENGTH} letters, digits and characters"
            f" of . _ - : =, not {_short(text)!r}."
        )
    return name


def checkpoint_id(text: str, option: str) -> str:
    """An idempotence id made from the place of a checkpoint.

    ``/a/b``, ``/a/b/``, ``file:/a/b`` and ``file:///a/b`` are one place, with the id
    ``b-`` and twelve digits of the SHA-256 of ``/a/b``. Streams that run with other
    versions of this package must find the same id: it never changes. Of a URL's
    authority, where secrets may stand, only the digits tell.
    """
    place = re.sub(r"^file:(?://)?(?=/)", "", text.strip(), flags=re.IGNORECASE)
    place = place.rstrip("/")
    digits = hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    last_part = re.sub(r"^[^/]*://[^/]*", "", place).rpartition("/")[2]
    stem = re.sub(rf"[^{_ID_CHARACTERS}]+", "-", last_part)[:64].strip("-")
    return f"{stem}-{digits}" if stem else digits


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


_message_routing_mode = word(
    "RoundRobinPartition",
    "SinglePartition",
    others={"RoundRobin": "RoundRobinPartition"},
)


def message_routing_mode(text: str, option: str) -> str:
    """How Java's producers route, but for routers that are Java classes."""
    if text.strip().lower() == "custompartition":
        raise OptionError(
            f"{option} cannot be CustomPartition: name the partition of each row in the"
            " column __partition."
        )
    return _message_routing_mode(text, option)


def chunk_size(text: str, option: str) -> int:
    """A number of bytes as for ``size``, or -1 for what the broker accepts."""
    return -1 if text.strip() == "-1" else size(1, MAX_INT)(text, option)


def properties(text: str, option: str) -> tuple[tuple[str, str], ...]:
    """Names and values from a JSON object of strings.

    The text is never repeated in an error.
    """
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        pairs = None
    if not (
        isinstance(pairs, _Pairs)
        and all(isinstance(value, str) for _, value in pairs)
        and _is_unicode("".join(name + value for name, value in pairs))
    ):
        raise OptionError(
            f'{option} must be a JSON object of strings such as {{"team": "billing"}}.'
        )
    if len(dict(pairs)) < len(pairs):
        raise OptionError(f"{option} names a property twice.")
    return tuple(pairs)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its doubled names kept, which a dict would drop silently."""


def _is_unicode(text: str) -> bool:
    # JSON can smuggle in lone surrogates, which no wire format can carry.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def metadata_columns(text: str, option: str) -> tuple[str, ...]:
    """Names of metadata columns by comma, or ``all``, or ``none``."""
    words = {"all": METADATA_COLUMNS_ALL, "none": ()}
    if (word := text.strip().lower()) in words:
        return words[word]
    known = {name.lower(): name for name in METADATA_COLUMNS_ALL}
    columns: dict[str, None] = {}
    problems = []
    for part in filter(None, map(str.strip, text.split(","))):
        if part.lower() in known:
            columns[known[part.lower()]] = None
            continue
        hint = nearest(part.lower(), known)
        problems.append(f"{option}: there is no metadata column {part!r}.{hint}")
    if problems:
        problems[-1] += f" The columns are {', '.join(METADATA_COLUMNS_ALL)}."
        raise OptionError(*problems)
    return tuple(columns)


def service_url(text: str, option: str) -> tuple[str, ...]:
    """Read ``pulsar://host[:port][,host[:port]]...`` as ``host:port`` of each host."""
    url = text.strip()
    if "@" in url:
        # The text is not repeated: what stands before the "@" is a secret.
        raise OptionError(f"{option} must not contain a user or a password.")
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise OptionError(
            f"{option} must begin with pulsar://, such as pulsar://localhost:6650."
        )
    _check_scheme(scheme.lower(), option)
    hosts: dict[str, None] = {}
    for part in rest.removesuffix("/").split(","):
        hosts[_host_and_port(part.strip().removeprefix("pulsar://"), option)] = None
    return tuple(hosts)


def _check_scheme(scheme: str, option: str) -> None:
    if scheme in ("http", "https"):
        raise OptionError(
            f"{option} begins with {scheme}://, which is the form of the admin URL. The"
            " broker's own URL begins with pulsar://, and its port is usually 6650."
        )
    if scheme == "pulsar+ssl":
        raise OptionError(
            f"{option} begins with pulsar+ssl://, but TLS is not supported yet by this"
            " version."
        )
    if scheme != "pulsar":
        raise OptionError(f"{option} must begin with pulsar://.")


_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[-.\w]+)(?::([0-9]{1,5}))?", re.ASCII)


def _host_and_port(text: str, option: str) -> str:
    match = _HOST.fullmatch(text)
    if match is None:
        raise OptionError(
            f"{option} must be hosts with optional ports, such as"
            " pulsar://broker-1:6650,broker-2:6650."
        )
    port = int(match[2] or DEFAULT_PORT)
    if not 1 <= port <= 65535:
        raise OptionError(f"{option}: {match[1]} cannot have the port {port}.")
    return f"{match[1]}:{port}"


def nearest(key: str, names: Mapping[str, str]) -> str:
    """A question after the most similar of some names, "" where none is similar.

    Args:
        key: What was written, in lower case.
        names: The names as they are compared, and as they are spelt.
    """
    near = difflib.get_close_matches(key, names, n=1)
    return f" Did you mean {names[near[0]]}?" if near else ""
