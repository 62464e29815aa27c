"""Spark's map of strings -> options, all problems reported together."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pulsar_spark.errors import OptionError
from pulsar_spark.offsets import Edge, OffsetsSpec
from pulsar_spark.options import table, values
from pulsar_spark.options.model import ClientOptions, ReadOptions
from pulsar_spark.options.table import OptionSpec, Scope, Support

_T = TypeVar("_T")
_LOG = logging.getLogger("pulsar_spark.options")


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
    given = _Given(options, Scope.STREAM if streaming else Scope.BATCH)
    client = _client_options(given)
    one_topic, several_topics = given.get(table.TOPIC), given.get(table.TOPICS)
    starting = given.get(table.STARTING_OFFSETS)
    result = ReadOptions(
        client=client,
        topics=one_topic or several_topics or (),
        topics_pattern=given.get(table.TOPICS_PATTERN),
        starting_offsets=_starting_offsets(starting, streaming=streaming),
        start_at_subscription=starting is values.Kept.SUBSCRIPTION,
        ending_offsets=given[table.ENDING_OFFSETS],
        starting_times=given.get(table.STARTING_TIME),
        ending_times=given.get(table.ENDING_TIME),
        starting_time_strategy=given[table.STARTING_TIME_STRATEGY],
        fail_on_data_loss=given[table.FAIL_ON_DATA_LOSS],
        waiting_for_non_existed_topic=given[table.WAITING_FOR_NON_EXISTED_TOPIC],
        topic_wait_timeout_s=given[table.TOPIC_WAIT_TIMEOUT_MS],
        partition_discovery_interval_s=given[table.PARTITION_DISCOVERY_INTERVAL_MS],
        poll_timeout_s=given[table.POLL_TIMEOUT_MS],
        max_rows_per_trigger=given.get(table.MAX_ROWS_PER_TRIGGER),
        max_bytes_per_trigger=given.get(table.MAX_BYTES_PER_TRIGGER),
        min_rows_per_trigger=given.get(table.MIN_ROWS_PER_TRIGGER),
        max_trigger_delay_s=given[table.MAX_TRIGGER_DELAY],
        metadata_columns=given[table.METADATA_COLUMNS],
        rows_per_arrow_batch=given[table.ROWS_PER_ARROW_BATCH],
        bytes_per_arrow_batch=given[table.BYTES_PER_ARROW_BATCH],
        receiver_queue_size=given[table.RECEIVER_QUEUE_SIZE],
        read_compacted=given[table.READ_COMPACTED],
        reader_name=given.get(table.READER_NAME),
        subscription_role_prefix=given.get(table.SUBSCRIPTION_ROLE_PREFIX),
        subscription_prefix=given[table.SUBSCRIPTION_PREFIX],
        predefined_subscription=given.get(table.PREDEFINED_SUBSCRIPTION),
        ack_on_commit=given[table.ACK_ON_COMMIT],
        delete_subscription_on_stop=given[table.DELETE_SUBSCRIPTION_ON_STOP],
        max_pending_chunked_message=given[table.MAX_PENDING_CHUNKED_MESSAGE],
        expire_incomplete_chunk_s=given[table.EXPIRE_INCOMPLETE_CHUNK],
    )
    _check_topics(given)
    _check_range(given, result, streaming=streaming)
    _check_subscription(given, result, streaming=streaming)
    _check_trigger(given, result)
    given.finish(quiet=quiet)
    return result


def _client_options(given: _Given) -> ClientOptions:
    if table.SERVICE_URL not in given:
        given.problems.append(
            "service.url is required, such as pulsar://localhost:6650."
        )
    client = ClientOptions(
        service_urls=given.get(table.SERVICE_URL) or (),
        operation_timeout_s=given[table.OPERATION_TIMEOUT_MS],
        connection_timeout_s=given[table.CONNECTION_TIMEOUT_MS],
        lookup_timeout_s=given[table.LOOKUP_TIMEOUT_MS],
        keep_alive_interval_s=given[table.KEEP_ALIVE_INTERVAL_SECONDS],
        initial_backoff_s=given[table.INITIAL_BACKOFF_INTERVAL_NANOS],
        max_backoff_s=given[table.MAX_BACKOFF_INTERVAL_NANOS],
        max_lookup_redirects=given[table.MAX_LOOKUP_REDIRECTS],
        memory_limit_bytes=given[table.MEMORY_LIMIT_BYTES],
        listener_name=given.get(table.LISTENER_NAME),
        stats_interval_s=given[table.STATS_INTERVAL_SECONDS],
    )
    if client.initial_backoff_s > client.max_backoff_s:
        given.problems.append(
            f"{table.INITIAL_BACKOFF_INTERVAL_NANOS.name} must not be above"
            f" {table.MAX_BACKOFF_INTERVAL_NANOS.name}."
        )
    return client


def _starting_offsets(
    starting: OffsetsSpec | values.Kept | None, *, streaming: bool
) -> OffsetsSpec:
    usual = Edge.LATEST if streaming else Edge.EARLIEST
    if not isinstance(starting, OffsetsSpec):
        return OffsetsSpec(usual)
    # Partitions that JSON does not name start where they would without the option.
    return replace(starting, default=usual) if starting.topics else starting


def _check_topics(given: _Given) -> None:
    ways = [
        s.name for s in (table.TOPIC, table.TOPICS, table.TOPICS_PATTERN) if s in given
    ]
    if not ways:
        given.problems.append("One of topic, topics and topicsPattern is required.")
    elif len(ways) > 1:
        given.problems.append(
            f"{' and '.join(ways)} cannot be used together: choose one."
        )


def _check_range(given: _Given, read: ReadOptions, *, streaming: bool) -> None:
    for one, other in (
        (table.STARTING_OFFSETS, table.STARTING_TIME),
        (table.ENDING_OFFSETS, table.ENDING_TIME),
    ):
        if one in given and other in given:
            given.problems.append(
                f"{one.name} and {other.name} cannot be used together: choose one."
            )
    if streaming:
        return
    # As the Scala connector: such a read could only be empty, and is never meant.
    for spec, offsets, edge in (
        (table.STARTING_OFFSETS, read.starting_offsets, Edge.LATEST),
        (table.ENDING_OFFSETS, read.ending_offsets, Edge.EARLIEST),
    ):
        where = [name for name, at in offsets.topics.items() if at is edge]
        if offsets.default is edge or where:
            of = f" for {', '.join(where)}" if where else ""
            given.problems.append(
                f"{spec.name} cannot be {edge.value}{of} in a batch read: nothing would"
                " be read."
            )
    start = read.starting_times.default_ms if read.starting_times else None
    end = read.ending_times.default_ms if read.ending_times else None
    if start is not None and end is not None and start > end:
        given.problems.append("startingTime must not be later than endingTime.")


def _check_subscription(given: _Given, read: ReadOptions, *, streaming: bool) -> None:
    predefined = table.PREDEFINED_SUBSCRIPTION
    start = table.STARTING_OFFSETS.name
    # Spark does not say which kind of read it asks the columns for: the sentence about
    # batch reads must help with a stream that lacks the name, too.
    if read.start_at_subscription and not streaming:
        given.problems.append(
            f"{start} cannot be subscription in a batch read: that is for streams,"
            f" together with {predefined.name}."
        )
    elif read.start_at_subscription and predefined not in given:
        given.problems.append(
            f"{start}=subscription needs {predefined.name}: it names the subscription."
        )
    if read.delete_subscription_on_stop and predefined in given:
        given.problems.append(
            f"{table.DELETE_SUBSCRIPTION_ON_STOP.name} cannot be true with"
            f" {predefined.name}: a predefined subscription is never deleted."
        )


def _check_trigger(given: _Given, read: ReadOptions) -> None:
    fewest, most = read.min_rows_per_trigger, read.max_rows_per_trigger
    if fewest is not None and most is not None and fewest > most:
        given.problems.append(
            f"{table.MAX_ROWS_PER_TRIGGER.name} must not be below"
            f" {table.MIN_ROWS_PER_TRIGGER.name}."
        )


class _Given:
    """The options given that this version honours, and all problems so far."""

    def __init__(self, options: Mapping[str, str], use: Scope) -> None:
        self.problems: list[str] = []
        self._use = use
        self._texts: dict[str, str | None] = {}
        self._keys: dict[str, tuple[str, str]] = {}
        self._ignored: list[str] = []
        for key, text in options.items():
            spec = table.BY_KEY.get(table.plain_key(key))
            if spec is not None:
                self._admit(spec, key, text)
            elif table.plain_key(key).startswith(table.plain_key(table.ADMIN_PREFIX)):
                self._ignored.append(key)
            else:
                self.problems.append(_unknown(key))

    def __contains__(self, spec: OptionSpec[Any]) -> bool:
        return spec.name in self._texts

    def __getitem__(self, spec: OptionSpec[_T]) -> _T:
        """The value of an option, or its default."""
        value = self.get(spec)
        return spec.parse(spec.default, spec.name) if value is None else value

    def get(self, spec: OptionSpec[_T]) -> _T | None:
        """The value of an option; None where it was not given, or has a problem."""
        text = self._texts.get(spec.name)
        if text is None:
            return None
        try:
            return spec.parse(text, spec.name)
        except OptionError as error:
            self.problems.extend(error.problems)
            return None

    def finish(self, *, quiet: bool) -> None:
        """Report the problems, or else what was ignored."""
        if self.problems:
            raise OptionError(*self.problems)
        if not quiet:
            _warn_ignored(self._ignored)

    def _admit(self, spec: OptionSpec[Any], key: str, text: str) -> None:
        first_key, first_text = self._keys.setdefault(spec.name, (key, text))
        if first_key != key:
            if first_text != text:
                self.problems.append(
                    f"{spec.name} is given twice with different values, as {first_key}"
                    f" and as {key}."
                )
            return
        if not spec.scope & self._use:
            self._misplaced(spec)
        elif spec.support is Support.REFUSED:
            if text.strip().lower() not in spec.harmless:
                hint = f" {spec.hint}" if spec.hint else ""
                self.problems.append(
                    f"{spec.name} is not supported yet by this version.{hint}"
                )
        elif spec.support is Support.IGNORED:
            self._ignored.append(spec.name)
        elif not text.strip():
            self.problems.append(f"{spec.name} is empty: set it or leave it out.")
            # Kept as given, so that the option does not count as missing, too.
            self._texts[spec.name] = None
        else:
            self._texts[spec.name] = text

    def _misplaced(self, spec: OptionSpec[Any]) -> None:
        if spec.scope is Scope.WRITE:
            self.problems.append(
                f"{spec.name} is an option of writing: leave it out of a read."
            )
        elif spec.scope is Scope.BATCH:
            self.problems.append(
                f"{spec.name} is an option of batch reads: a stream has no end."
            )
        else:
            # One set of options often serves a stream and its backfill.
            self._ignored.append(spec.name)


def _unknown(key: str) -> str:
    if key.lower() in ("path", "paths"):
        return "Topics are no paths: use .option('topic', ...) and load()."
    names = {table.plain_key(spec.name): spec.name for spec in table.OPTIONS}
    return f"There is no option {key!r}.{values.nearest(table.plain_key(key), names)}"


_warned: set[str] = set()


def _warn_ignored(names: Iterable[str]) -> None:
    """Warn once a process: Spark reads the same options many times."""
    new = sorted(set(names) - _warned)
    if new:
        _warned.update(new)
        _LOG.warning(
            "These options have no effect on this read, and are ignored: %s",
            ", ".join(new),
        )
