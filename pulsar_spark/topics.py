# SPDX-License-Identifier: Apache-2.0
"""Topic names: every form a user may write, partition suffixes, and patterns.

::

    persistent://public/default/events-partition-3
                 tenant namespace local name
                                 base   suffix

    segment://public/default/events/0000-7fff-4        a part of topic://.../events
              tenant namespace local name
                               base   hashes and id

A short name ``events`` means ``persistent://public/default/events``. The rules are
those of the Java client's ``TopicName``. Scalable topics, ``topic://``, and their
segments are of Pulsar 5 (PIP-460).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, total_ordering
from sys import intern

from pulsar_spark.errors import OptionError
from spark_topics.text import is_unicode, shorten

PARTITION_SUFFIX = "-partition-"
DEFAULT_TENANT = "public"
DEFAULT_NAMESPACE = "default"

#: Beginning of the names of topics that the sink keeps its logs in, markers included,
#: unless its options name them otherwise.
COMMIT_LOG_PREFIX = "spark-commits-"

#: More partitions than any topic has. A number that is believed costs memory.
MAX_PARTITIONS = 100_000

_SCHEME = "persistent://"
_NON_PERSISTENT_SCHEME = "non-persistent://"
#: Of scalable topics.
SCALABLE_SCHEME = "topic://"
#: Of their parts.
SEGMENT_SCHEME = "segment://"
#: First and last hash of the keys of a segment, and its number in the topic.
_SEGMENT = re.compile(r"([0-9a-f]{4})-([0-9a-f]{4})-(0|[1-9][0-9]{0,17})", re.ASCII)
_NAMESPACE_PART = re.compile(r"[-=:.\w]+", re.ASCII)
# What means the same to Java, to RE2 and to Python, but that a dot may match less in
# Java: plain characters, dots and classes without "^", each perhaps with one of * + ?
# behind it, and groups without, which a broker might be at for ever.
_IN_COMMON = re.compile(
    r"(?:(?:[\w=:%~@/-]|\\\.|\.|\[[\w.=-]+\])[*+?]?(?![*+?])|\((?!\?)|\)(?![*+?])|\|)+",
    re.ASCII,
)
# An escape, a class, or a character of a regular expression.
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
# Canonical decimals only: "t-partition-01" is a plain topic, for the broker, too.
_MAX_PARTITION = 2**31 - 1
_MOST_DIGITS = len(str(_MAX_PARTITION))
_FORMS = (
    'Write "topic", "tenant/namespace/topic" or "persistent://tenant/namespace/topic";'
    ' "topic://tenant/namespace/topic" for a scalable topic of Pulsar 5.'
)


@total_ordering
@dataclass(frozen=True, slots=True)
class TopicName:
    """The name of a persistent or scalable topic, of a partition or a segment.

    Names sort naturally: partition 2 comes before partition 10. Full names are
    interned: a plan keeps the name of each topic partition in many places.

    Attributes:
        tenant: The tenant.
        namespace: The namespace without its tenant. For a legacy (v1) name
            ``tenant/cluster/ns/topic`` this is ``cluster/ns``.
        local_name: What follows the namespace, the suffix of a partition or what names
            a segment included.
        scheme: With which the full name begins: ``persistent://``, ``topic://`` or
            ``segment://``.
    """

    tenant: str
    namespace: str
    local_name: str
    scheme: str = _SCHEME

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Read a name in any form.

        Args:
            text: ``t``, ``tenant/ns/t``, or a name with its scheme. Legacy names with a
                cluster are accepted after ``persistent://`` only, as in Java.

        Raises:
            OptionError: The text is no topic name, or names a non-persistent topic.
        """
        return cls._parse(text.strip())

    @classmethod
    def _parse(cls, text: str) -> TopicName:
        """Read a name, in which space at either end counts."""
        topic, number = _of_partition(text)
        if topic is not None:
            local_name = f"{topic.local_name}{PARTITION_SUFFIX}{number}"
            return cls(topic.tenant, topic.namespace, local_name)
        scheme, name = _without_scheme(text)
        most_parts = 4 if scheme == _SCHEME else 3
        parts = name.split("/", most_parts - 1) if scheme else name.split("/")
        if not scheme and len(parts) == 1:
            parts = [DEFAULT_TENANT, DEFAULT_NAMESPACE, name]
        *namespace_parts, local_name = parts
        if (
            not 3 <= len(parts) <= (most_parts if scheme else 3)
            or not local_name
            or not all(map(_NAMESPACE_PART.fullmatch, namespace_parts))
            or not is_unicode(name)
            or (scheme == SCALABLE_SCHEME and "/" in local_name)
            or (scheme == SEGMENT_SCHEME and _split_segment(local_name)[1] is None)
        ):
            raise OptionError(f"{text!r} is not a topic name. {_FORMS}")
        return cls(parts[0], "/".join(parts[1:-1]), local_name, scheme or _SCHEME)

    @property
    def full_name(self) -> str:
        """Return ``persistent://tenant/namespace/local_name``, as brokers print."""
        return intern(f"{self.scheme}{self.tenant}/{self.namespace}/{self.local_name}")

    @property
    def is_scalable(self) -> bool:
        """Return whether the name is of a scalable topic or of a segment."""
        return self.scheme != _SCHEME

    @property
    def is_segment(self) -> bool:
        """Return whether this names a segment."""
        return self.scheme == SEGMENT_SCHEME

    @property
    def namespace_name(self) -> str:
        """Return ``tenant/namespace``."""
        return f"{self.tenant}/{self.namespace}"

    @property
    def partition_index(self) -> int | None:
        """Return the number after the last ``-partition-``, None for a whole topic.

        That of a segment is its id.
        """
        return self._split()[1]

    @property
    def base(self) -> TopicName:
        """Return the topic of a partition or segment; else the topic itself."""
        base, index = self._split()
        if index is None:
            return self
        scheme = SCALABLE_SCHEME if self.is_segment else self.scheme
        return TopicName(self.tenant, self.namespace, base, scheme)

    @property
    def common_name(self) -> str:
        """Return the full name as of an ordinary topic, without a partition.

        No ordinary topic has the name of a scalable one, and brokers keep the schemas
        of both kinds under the same name.
        """
        base = self.base.local_name
        return f"{_SCHEME}{self.tenant}/{self.namespace}/{base}"

    @property
    def scalable_name(self) -> str:
        """Return the full name as of a scalable topic, without a segment."""
        base = self.base.local_name
        return f"{SCALABLE_SCHEME}{self.tenant}/{self.namespace}/{base}"

    @property
    def key(self) -> str:
        """Return the key of a partition or segment within its topic.

        In JSON by topic, this is the key below the topic: ``3``, ``0000-7fff-4``.
        """
        if self.is_segment:
            return self.local_name.rpartition("/")[2]
        return "" if self.partition_index is None else str(self.partition_index)

    def _split(self) -> tuple[str, int | None]:
        if self.is_segment:
            return _split_segment(self.local_name)
        if self.is_scalable:
            return self.local_name, None
        return _split_partition(self.local_name)

    @property
    def is_system_topic(self) -> bool:
        """Return whether the topic is for Pulsar's own records, not for users."""
        local_name = self.base.local_name
        return local_name.startswith("__") or local_name.endswith(
            "__transaction_pending_ack"
        )

    def partition(self, index: int) -> TopicName:
        """Name a partition of this topic.

        Raises:
            ValueError: The index is negative or too large for Pulsar.
        """
        local_name = f"{self.local_name}{_partition_suffix(index)}"
        return TopicName(self.tenant, self.namespace, local_name)

    def partition_names(self, indices: Iterable[int]) -> Iterator[str]:
        """Yield the full names of partitions, as ``partition`` makes them."""
        full_name = self.full_name
        for index in indices:
            yield intern(f"{full_name}{_partition_suffix(index)}")

    def names_below(self, keys: Iterable[str]) -> Iterator[str]:
        """Yield the full names of partitions or segments, by their keys.

        Raises:
            ValueError: No partition or segment has such a key.
        """
        if not self.is_scalable:
            yield from self.partition_names(map(int, keys))
            return
        beginning = SEGMENT_SCHEME + self.full_name.removeprefix(self.scheme)
        for key in keys:
            if not _SEGMENT.fullmatch(key):
                raise ValueError(f"{shorten(key)} is no segment such as 0000-7fff-4")
            yield f"{beginning}/{key}"

    def segment(self, hash_start: int, hash_end: int, segment_id: int) -> TopicName:
        """Name a segment of this scalable topic."""
        local_name = f"{self.local_name}/{hash_start:04x}-{hash_end:04x}-{segment_id}"
        return TopicName(self.tenant, self.namespace, local_name, SEGMENT_SCHEME)

    def __str__(self) -> str:
        return self.full_name

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, TopicName):
            return NotImplemented
        return self.sort_key() < other.sort_key()

    def sort_key(self) -> tuple[str, str, str, str, int]:
        """Return tenant, namespace, base, scheme and partition: the order of topics.

        The partition is -1 for a whole topic, which comes right before its partitions.
        """
        base, index = self._split()
        number = -1 if index is None else index
        return self.tenant, self.namespace, base, self.scheme, number


@dataclass(frozen=True, slots=True)
class TopicsPattern:
    """A regular expression over the topics of a namespace.

    Attributes:
        text: The pattern as the user wrote it.
        namespace_name: ``tenant/namespace`` whose topics are to be listed.
        regex: What a local name without partition suffix must match entirely.
    """

    text: str
    namespace_name: str
    regex: re.Pattern[str]

    @property
    def for_brokers(self) -> str:
        """Return an expression by which a broker may shorten the list of topics, or "".

        It is one for ``tenant/namespace/local_name``, in what Java, RE2 and Python have
        in common, and matches partitions of all topics that this pattern matches, and
        perhaps more. Brokers take no more than 50 characters unless told otherwise;
        they list all topics then.
        """
        expression = self.regex.pattern.removeprefix("^").removesuffix("$")
        if not _IN_COMMON.fullmatch(expression):
            return ""
        if "|" in expression:
            expression = f"({expression})"
        suffix = "" if expression.endswith(".*") else "(-p.*)?"
        return f"(?s){self.namespace_name}/{expression}{suffix}"

    def matches(self, full_topic_name: str) -> bool:
        """Return whether the pattern covers a topic, or the topic of a partition.

        Args:
            full_topic_name: A name as a broker lists it. Non-persistent and system
                topics never match, nor do the logs of our own sink.
        """
        try:
            topic = TopicName._parse(full_topic_name)
        except OptionError:
            return False
        return (
            topic.namespace_name == self.namespace_name
            and not topic.is_system_topic
            and not topic.local_name.startswith(COMMIT_LOG_PREFIX)
            and self.regex.fullmatch(topic.base.local_name) is not None
        )


def compile_topics_pattern(
    text: str, *, option: str = "topicsPattern"
) -> TopicsPattern:
    """Read a pattern over topic names.

    The expression must match the whole name, as in Java. It is applied to the local
    name alone, so that ``a|b`` means both topics; Java puts the namespace in front of
    ``a`` only, and never finds ``b``. Further alternatives may repeat the namespace.

    Args:
        text: ``tenant/ns/regex``, with or without ``persistent://``, or only ``regex``
            for the namespace ``public/default``.
        option: The option that errors name.

    Raises:
        OptionError: The namespace is not literal, or there are several, or the
            expression is not valid.
    """
    namespaces, expressions, cuts = [], [], []
    for position, alternative, slashes in _alternatives(text):
        namespace, begin = _namespace_before(alternative, slashes, text, option=option)
        namespaces.append(namespace)
        expressions.append(alternative[begin:])
        cuts.append((position, begin))
    expression = "|".join(expressions)
    if not expression:
        raise _incomplete(text, option)
    namespace_name = namespaces[0] or f"{DEFAULT_TENANT}/{DEFAULT_NAMESPACE}"
    for other in filter(None, namespaces):
        if other != namespace_name:
            raise OptionError(
                f"{option}: {text!r} names topics of {namespace_name} and of {other}:"
                " a pattern covers the topics of one namespace."
            )
    return TopicsPattern(
        text, namespace_name, _compile(expression, text, cuts, option=option)
    )


def _alternatives(text: str) -> Iterator[tuple[int, str, list[int]]]:
    """Yield the place, the text and the slashes of alternatives outside brackets."""
    pattern = text.strip()
    shift = text.index(pattern)
    depth = begin = 0
    slashes: list[int] = []
    for token in _TOKEN.finditer(pattern):
        depth += (token[0] == "(") - (token[0] == ")")
        if token[0] in ("/", "\\/"):
            slashes.append(token.end() - 1 - begin)
        elif token[0] == "|" and depth == 0:
            yield shift + begin, pattern[begin : token.start()], slashes
            begin, slashes = token.end(), []
    yield shift + begin, pattern[begin:], slashes


def _namespace_before(
    alternative: str, slashes: Sequence[int], text: str, *, option: str
) -> tuple[str, int]:
    """Return the namespace of an alternative, "" for none, and where the rest begins.

    The "^" of an alternative without namespace stays, and does no harm.

    Args:
        alternative: Of the pattern.
        slashes: The indices of its slashes.
        text: The pattern.
        option: The option that errors name.
    """
    scheme, rest = _without_scheme(alternative.removeprefix("^"), option=option)
    begin = len(alternative) - len(rest)
    slashes = [slash for slash in slashes if slash >= begin]
    if not scheme and not slashes:
        return "", 0
    if len(slashes) < 2:
        raise _incomplete(text, option)
    first, second, *further = slashes
    tenant, namespace = alternative[begin:first], alternative[first + 1 : second]
    if not tenant or not namespace:
        raise _incomplete(text, option)
    if not all(map(_NAMESPACE_PART.fullmatch, (tenant, namespace))):
        raise OptionError(
            f"{option}: the namespace {tenant}/{namespace} of {text!r} must be"
            " written literally: a pattern covers the topics of one namespace."
        )
    if further:
        raise OptionError(
            f"{option}: {text!r} has a slash after the namespace, and no topic has one"
            " in its name. Alternatives in brackets are without the namespace:"
            f' "{tenant}/{namespace}/(a|b)-.*".'
        )
    return f"{tenant}/{namespace}", second + 1


def _incomplete(text: str, option: str) -> OptionError:
    return OptionError(
        f"{option}: {text!r} is not a pattern of topic names. Write"
        ' "persistent://tenant/namespace/regex", "tenant/namespace/regex", or'
        ' "regex" for topics of public/default.'
    )


def is_segment(name: str) -> bool:
    """Return whether the full name is of a segment of a scalable topic."""
    return name.startswith(SEGMENT_SCHEME)


def last_segments(names: Iterable[str]) -> dict[str, int]:
    """Return the highest id of a segment by the full name of its scalable topic.

    Args:
        names: Full names, also of others than segments.
    """
    last: dict[str, int] = {}
    for segment in map(TopicName.parse, filter(is_segment, names)):
        topic, number = segment.scalable_name, segment.partition_index or 0
        last[topic] = max(last.get(topic, 0), number)
    return last


def topic_of(topic_partition: str) -> str:
    """Return the full name of the topic that a topic partition belongs to.

    Raises:
        OptionError: The text is not the name of a persistent topic.
    """
    topic, _ = _of_partition(topic_partition)
    if topic is None:
        return TopicName.parse(topic_partition).base.full_name
    return topic.full_name


def sort_key(name: str) -> tuple[tuple[str, str, str, str], int]:
    """Return the key of a full name as of ``TopicName.sort_key``, the number apart.

    Raises:
        OptionError: The text is not the name of a topic.
    """
    topic, number = _of_partition(name)
    if topic is None:
        tenant, namespace, base, scheme, number = TopicName.parse(name).sort_key()
        return (tenant, namespace, base, scheme), number
    return (topic.tenant, topic.namespace, topic.local_name, topic.scheme), number


def topic_column(topic_partition: str) -> str:
    """Return what the column ``__topic`` has for rows of a topic partition.

    The full name of the topic partition; for a segment, the full name of its topic.
    """
    if not topic_partition.startswith(SEGMENT_SCHEME):
        return topic_partition
    return topic_of(topic_partition)


def schema_topic(topic_partition: str) -> str:
    """Return the full name under which the schemas of a topic partition are kept.

    Raises:
        OptionError: The text is not the name of a topic.
    """
    return TopicName.parse(topic_partition).common_name


def _compile(
    expression: str, text: str, cuts: Iterable[tuple[int, int]], *, option: str
) -> re.Pattern[str]:
    """Compile an expression.

    Args:
        expression: The text without namespaces.
        text: The pattern, for errors.
        cuts: The place of each alternative in the text, and what it has lost there.
        option: The option that errors name.
    """
    try:
        return re.compile(expression)
    except re.error as error:
        position = error.pos or 0
        lost = min(cuts)[0]
        for place, length in cuts:
            lost += length if position + lost >= place else 0
        reason = f"{error.msg} at position {position + lost}"
    except (OverflowError, RecursionError) as error:
        reason = str(error)
    raise OptionError(
        f"{option}: {text!r} is not a valid Python regular expression: {reason}."
        " Java's syntax differs in places."
    )


@lru_cache(maxsize=256)
def _parsed(text: str) -> TopicName:
    return TopicName._parse(text)


def _of_partition(text: str) -> tuple[TopicName | None, int]:
    """Return the topic and the number of a partition, by its full name.

    Plans read the names of many partitions of few topics.

    Returns:
        No topic for any other text.
    """
    base, _, digits = text.rpartition(PARTITION_SUFFIX)
    number = _partition_number(digits)
    if number is None or not base.startswith(_SCHEME) or base[-1:] == "/":
        return None, -1
    try:
        return _parsed(base), number
    except OptionError:  # which is to name the partition
        return None, -1


def _without_scheme(name: str, *, option: str = "") -> tuple[str, str]:
    """Return the scheme of a name, "" for none, and the rest."""
    where = f"{option}: " if option else ""
    if name.startswith(_NON_PERSISTENT_SCHEME):
        raise OptionError(
            f"{where}{name!r} is a non-persistent topic, which keeps nothing to read."
            " Name a persistent topic."
        )
    for scheme in (_SCHEME, SEGMENT_SCHEME, SCALABLE_SCHEME):
        if name.startswith(scheme):
            return scheme, name.removeprefix(scheme)
    if "://" in name:
        raise OptionError(f"{where}{name!r} is not a topic name. {_FORMS}")
    return "", name


def _partition_suffix(index: int) -> str:
    if not 0 <= index <= _MAX_PARTITION:
        raise ValueError(f"{index} is not a partition number")
    return f"{PARTITION_SUFFIX}{index}"


def _split_partition(local_name: str) -> tuple[str, int | None]:
    base, _, digits = local_name.rpartition(PARTITION_SUFFIX)
    index = _partition_number(digits) if base else None
    return (local_name, None) if index is None else (base, index)


def _partition_number(digits: str) -> int | None:
    # Without a regular expression: plans split the name of each topic partition.
    if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS:
        index = int(digits)
        if str(index) == digits and index <= _MAX_PARTITION:
            return index
    return None


def _split_segment(local_name: str) -> tuple[str, int | None]:
    base, _, key = local_name.rpartition("/")
    match = _SEGMENT.fullmatch(key)
    is_named = match and base and "/" not in base
    return (base, int(match[3])) if match and is_named else (local_name, None)
