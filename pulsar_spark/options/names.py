# SPDX-License-Identifier: Apache-2.0
"""Names in options: topics, subscriptions, writes."""

from __future__ import annotations

import hashlib
import re

from pulsar_spark.errors import OptionError
from pulsar_spark.topics import TopicName, TopicsPattern, compile_topics_pattern

#: What to do in a write, where several topics cannot be named.
OF_WRITES = (
    "name the topic of all rows by topic, or that of each row in the column __topic"
)


def topic(text: str, option: str) -> tuple[TopicName, ...]:
    """Parse a topic name."""
    if "," in text:
        raise OptionError(
            f"{option} names one topic: use topics for several, and in a write the"
            " column __topic."
        )
    return topics(text, option)


def other_topic(text: str, option: str) -> TopicName:
    """Read the name of a topic that rows need not be written to."""
    if "," in text:
        raise OptionError(f"{option} names one topic, without a comma.")
    (name,) = topics(text, option)
    return name


def topics(text: str, option: str) -> tuple[TopicName, ...]:
    """Read topic names by comma; what comes twice counts once."""
    names: dict[TopicName, None] = {}
    problems = []
    for part in filter(str.strip, text.split(",")):
        try:
            name = TopicName.parse(part)
            if name.is_segment:
                raise OptionError(
                    f"{name} is a segment of a scalable topic: name the topic,"
                    f" {name.base}."
                )
            names[name] = None
        except OptionError as error:
            problems += [f"{option}: {problem}" for problem in error.problems]
    if problems:
        raise OptionError(*problems)
    if not names:
        raise OptionError(f"{option} names no topic.")
    return tuple(names)


def topics_pattern(text: str, option: str) -> TopicsPattern:
    """Read a pattern over topic names; see `compile_topics_pattern`."""
    return compile_topics_pattern(text, option=option)


def topic_in_path(path: str | None) -> TopicName | None:
    """Return the topic that ``load(...)`` or ``save(...)`` names, None for none.

    A table in Spark's catalog has a path, too: its place in a file system.
    """
    scheme, colon, _ = (path or "").partition(":")
    if path is None or (colon and scheme not in ("persistent", "topic")):
        return None
    try:
        return TopicName.parse(path)
    except OptionError:
        return None


def problem_of_path(path: str | None, call: str, *, is_alone: bool) -> str:
    """Return what is wrong with a path that names a topic.

    Args:
        path: As Spark gives it.
        call: What set it, such as ``load``.
        is_alone: Whether no option names a topic.
    """
    if is_alone:
        return f"Topics are no paths: use .option('topic', ...) and {call}()."
    return (
        f"{call}({path!r}) names another topic than the options do: topics are no"
        " paths, leave it out."
    )


# What brokers refuse: `PersistentTopic.subscribe` the names of its own cursors, and
# `ServerCnx` (since 4.0.6) new names with a slash, which divides paths of the HTTP API.
_RESERVED_NAME = "pulsar.dedup"
_RESERVED_PREFIX = "pulsar.repl"


def subscription(text: str, option: str) -> str:
    """Read a name that brokers accept for a subscription."""
    name = text.strip()
    if "/" in name:
        raise OptionError(f"{option} must not contain a slash, unlike {name!r}.")
    if name == _RESERVED_NAME or name.startswith(_RESERVED_PREFIX):
        raise OptionError(
            f"{option} must not be {_RESERVED_NAME}, nor begin with {_RESERVED_PREFIX}:"
            f" brokers keep these names for themselves. Not {name!r}."
        )
    return name


# What stands in names of producers and of topics without any change.
_ID_CHARACTERS = r"A-Za-z0-9._:=\-"
_MAX_ID_LENGTH = 200


def idempotence_id(text: str, option: str) -> str:
    """Read a text that names of producers and topics can be made from."""
    name = text.strip()
    if not re.fullmatch(rf"[{_ID_CHARACTERS}]{{1,{_MAX_ID_LENGTH}}}", name):
        raise OptionError(
            f"{option} must be at most {_MAX_ID_LENGTH} letters, digits and characters"
            f" of . _ - : =, not {_short(text)!r}."
        )
    return name


def checkpoint_id(text: str, option: str) -> str:
    """Make an idempotence id from the location of a checkpoint.

    ``/a/b``, ``/a/b/``, ``file:/a/b`` and ``file:///a/b`` are one location, with the id
    ``b-`` and twelve digits of the SHA-256 of ``/a/b``. Streams that run with other
    versions of this package must find the same id: it never changes. A URL's authority,
    which may hold secrets, has a part in the digits alone.
    """
    location = re.sub(r"^file:(?://)?(?=/)", "", text.strip(), flags=re.IGNORECASE)
    location = location.rstrip("/")
    digits = hashlib.sha256(location.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    last_part = re.sub(r"^[^/]*://[^/]*", "", location).rpartition("/")[2]
    stem = re.sub(rf"[^{_ID_CHARACTERS}]+", "-", last_part)[:64].strip("-")
    return f"{stem}-{digits}" if stem else digits


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
