# SPDX-License-Identifier: Apache-2.0
"""All known options, and parsing of Spark's map of strings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pulsar_spark.errors import OptionError
from pulsar_spark.options.authentication import AuthenticationOptions
from pulsar_spark.options.client import ClientOptions, client_options
from pulsar_spark.options.encryption import DecryptionOptions, EncryptionOptions
from pulsar_spark.options.others import problem_of_other
from pulsar_spark.options.read import WAYS_TO_NAME_TOPICS, ReadOptions, read_options
from pulsar_spark.options.tls import TlsOptions
from pulsar_spark.options.unsupported import ADMIN_PREFIX, UNSUPPORTED
from pulsar_spark.options.write import OF_SPARK, WriteOptions, write_options
from pulsar_spark.system import PULSAR
from pulsar_spark.topics import TopicName, TopicsPattern
from spark_topics.options import document
from spark_topics.options.given import Given, KnownOptions
from spark_topics.options.spec import OptionSpec, Scope, specs_of

_service_url, *_limits = specs_of(ClientOptions)

#: Every option known, in the order of the documents.
OPTIONS: tuple[OptionSpec[Any], ...] = (
    _service_url,
    *specs_of(ReadOptions, WriteOptions),
    *OF_SPARK,
    *specs_of(AuthenticationOptions),
    *specs_of(DecryptionOptions, EncryptionOptions),
    *_limits,
    *specs_of(TlsOptions),
    *UNSUPPORTED,
)

_KNOWN = KnownOptions(
    OPTIONS, PULSAR, ignored_prefix=ADMIN_PREFIX, problem_of_other=problem_of_other
)


def parse_read_options(
    options: Mapping[str, str], *, streaming: bool = False, quiet: bool = False
) -> ReadOptions:
    """Read and check the options of a read.

    Args:
        options: The map that Spark hands over; keys in any case.
        streaming: Whether the read is a stream. It starts at latest by default.
        quiet: Whether to say nothing of options that have no effect.

    Raises:
        OptionError: With every problem found.
    """
    parsed = Given(options, _KNOWN, Scope.STREAM if streaming else Scope.BATCH)
    read = read_options(parsed)
    parsed.finish(quiet=quiet)
    return read


def parse_write_options(
    options: Mapping[str, str], *, streaming: bool, quiet: bool = False
) -> WriteOptions:
    """Read and check the options of a write.

    Args:
        options: The map that Spark hands over; keys in any case.
        streaming: Whether the write is a stream.
        quiet: Whether to say nothing of options that have no effect.

    Raises:
        OptionError: With every problem found.
    """
    use = Scope.STREAM_WRITE if streaming else Scope.BATCH_WRITE
    parsed = Given(options, _KNOWN, use)
    write = write_options(parsed)
    parsed.finish(quiet=quiet)
    return write


#: What a job may do with a set of options, in words.
_USES = {
    Scope.BATCH: "a batch read",
    Scope.STREAM: "a stream that reads",
    Scope.BATCH_WRITE: "a batch write",
    Scope.STREAM_WRITE: "a stream that writes",
}


def problems_by_use(
    options: Mapping[str, str],
) -> list[dict[str, tuple[str, ...]]]:
    """Return the problems of a job's options as each kind of read or write.

    Kinds for which an option has no meaning are left out. Where options of reading and
    of writing come together, the job is a copy: all kinds are there, and each judges
    its own options. A topic that is not named is no problem.

    Args:
        options: Options of a write, of a read, or of both, keys in any case.

    Returns:
        By kind, in groups: the job is one kind of each group.
    """
    specs = {name: spec for name in options if (spec := _KNOWN.get(name))}
    scopes = [spec.scope for spec in specs.values() if spec.available]
    fit = [use for use in _USES if all(use in scope for scope in scopes)]
    writes = [use for use in _USES if use in Scope.WRITE]
    groups = [fit] if fit else [[use for use in _USES if use not in writes], writes]

    def problems(use: Scope) -> tuple[str, ...]:
        ours = dict(options)
        if use in Scope.WRITE:
            for name in specs:
                if specs[name].in_writes:
                    del ours[name]
        elif {spec.name for spec in specs.values()}.isdisjoint(WAYS_TO_NAME_TOPICS):
            ours["topic"] = "any"
        return _problems(ours, use)

    return [{_USES[use]: problems(use) for use in group} for group in groups]


def _problems(options: Mapping[str, str], use: Scope) -> tuple[str, ...]:
    parse = write_options if use in Scope.WRITE else read_options
    parsed = Given(options, _KNOWN, use)
    try:
        parse(parsed)
        parsed.finish(quiet=True)
    except OptionError as error:
        return error.problems
    return ()


@dataclass(frozen=True)
class CommonOptions:
    """Options that reads and writes share.

    Attributes:
        client: How to reach the cluster.
        topics: Topics and single partitions named, none with a pattern.
        topics_pattern: Which topics of a namespace, None for none.
        commit_topic: Where an exactly-once stream keeps its log; None for the default.
    """

    client: ClientOptions
    topics: tuple[TopicName, ...]
    topics_pattern: TopicsPattern | None
    commit_topic: TopicName | None


def parse_common_options(options: Mapping[str, str]) -> CommonOptions:
    """Parse the options that do not depend on the kind of job.

    Args:
        options: Those of a read or a write, keys in any case.

    Raises:
        OptionError: With every problem found.
    """
    parsed = Given(options, _KNOWN, Scope.CLIENT)
    client = client_options(parsed)
    common = CommonOptions(
        client,
        parsed["topic"] or parsed["topics"] or (),
        parsed["topicsPattern"],
        parsed["commitTopic"],
    )
    parsed.finish(quiet=True)
    return common


def options_table_markdown() -> str:
    """Write the options as a Markdown table, and lists of options without a row."""
    return document.options_table_markdown(
        OPTIONS, ignored_prefix=ADMIN_PREFIX, prefix="pulsar."
    )


def has_option(text: str) -> bool:
    """Return whether a text has an option's name in it, and a ``=`` behind the name."""
    return any(map(_KNOWN.named_by, re.findall(r"([\w.-]+)\s*=", text)))


def canonical_name(name: str) -> str:
    """Return an option's name as documents spell the name; unknown names unchanged."""
    spec = _KNOWN.get(name)
    return name if spec is None else spec.name
