"""Spark's map of strings -> options, all problems reported together."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pulsar_spark.errors import OptionError
from pulsar_spark.offsets import Edge, OffsetsSpec
from pulsar_spark.options import table, values
from pulsar_spark.options.model import (
    ClientOptions,
    DeliveryGuarantee,
    ReadOptions,
    WriteOptions,
)
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
        min_partitions=given.get(table.MIN_PARTITIONS),
        max_records_per_partition=given.get(table.MAX_RECORDS_PER_PARTITION),
        filter_pushdown=given[table.FILTER_PUSHDOWN],
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
    given = _Given(options, Scope.STREAM_WRITE if streaming else Scope.BATCH_WRITE)
    client = _client_options(given)
    guarantee = given[table.DELIVERY_GUARANTEE]
    for spec, guarantees in _ONLY_WITH.items():
        if guarantee not in guarantees:
            given.leave_out(spec)
    topic = given.get(table.TOPIC)
    result = WriteOptions(
        client=client,
        topic=topic[0] if topic else None,
        guarantee=guarantee,
        idempotence_id=_idempotence_id(given, guarantee),
        transaction_timeout_ms=given[table.TRANSACTION_TIMEOUT_MS],
        commit_topic=given.get(table.COMMIT_TOPIC),
        topic_auto_creation=given[table.TOPIC_AUTO_CREATION],
        batching_enabled=given[table.BATCHING_ENABLED],
        batching_max_publish_delay_s=given[table.BATCHING_MAX_PUBLISH_DELAY_MICROS],
        batching_max_messages=given[table.BATCHING_MAX_MESSAGES],
        batching_max_bytes=given[table.BATCHING_MAX_BYTES],
        key_based_batching=given[table.BATCHER_BUILDER] == "KEY_BASED",
        compression_type=given[table.COMPRESSION_TYPE],
        chunking_enabled=given[table.CHUNKING_ENABLED],
        chunk_max_message_size=given[table.CHUNK_MAX_MESSAGE_SIZE],
        send_timeout_s=given[table.SEND_TIMEOUT_MS],
        hashing_scheme=given[table.HASHING_SCHEME],
        message_routing_mode=given[table.MESSAGE_ROUTING_MODE],
        access_mode=given[table.ACCESS_MODE],
        producer_name=given.get(table.PRODUCER_NAME),
        initial_sequence_id=given.get(table.INITIAL_SEQUENCE_ID),
        producer_properties=given[table.PROPERTIES],
        key_encoding=given[table.KEY_ENCODING],
    )
    _check_commit_log(given, result, streaming=streaming)
    _check_idempotence(given, result)
    given.finish(quiet=quiet)
    return result


_IDENTIFIED = (DeliveryGuarantee.IDEMPOTENT, DeliveryGuarantee.EXACTLY_ONCE)
_ONLY_WITH: dict[OptionSpec[Any], tuple[DeliveryGuarantee, ...]] = {
    table.IDEMPOTENCE_ID: _IDENTIFIED,
    table.TRANSACTION_TIMEOUT_MS: (DeliveryGuarantee.EXACTLY_ONCE,),
    table.COMMIT_TOPIC: (DeliveryGuarantee.EXACTLY_ONCE,),
}


def _idempotence_id(given: _Given, guarantee: DeliveryGuarantee) -> str | None:
    if guarantee not in _IDENTIFIED:
        return None
    idempotence_id = given.get(table.IDEMPOTENCE_ID)
    # Tasks know the id of their query, which is better: a new checkpoint has a new one.
    # But the driver, which keeps the log of an exactly-once stream, does not.
    if idempotence_id is None and guarantee is DeliveryGuarantee.EXACTLY_ONCE:
        return given.get(table.CHECKPOINT_LOCATION)
    return idempotence_id


def _check_commit_log(given: _Given, write: WriteOptions, *, streaming: bool) -> None:
    if write.guarantee is not DeliveryGuarantee.EXACTLY_ONCE or not streaming:
        return
    if not (table.IDEMPOTENCE_ID in given or table.CHECKPOINT_LOCATION in given):
        given.problems.append(
            f"An exactly-once stream needs {table.IDEMPOTENCE_ID.name}, or"
            f' .option("{table.CHECKPOINT_LOCATION.name}", ...) on the stream itself:'
            " a restart finds its log of commits by it."
        )
    log, topic = write.commit_topic, write.topic
    if log is not None and topic is not None and log.base == topic.base:
        given.problems.append(
            f"{table.COMMIT_TOPIC.name} must not be {table.TOPIC.name}: the log of"
            " commits is no place for rows."
        )


def _check_idempotence(given: _Given, write: WriteOptions) -> None:
    if write.guarantee not in _IDENTIFIED:
        return
    by = f"{table.DELIVERY_GUARANTEE.name}={write.guarantee.value}"
    for spec, why in (
        (table.PRODUCER_NAME, "such a write names its producers itself"),
        (table.INITIAL_SEQUENCE_ID, "such a write numbers its messages itself"),
    ):
        if spec in given:
            given.problems.append(f"{spec.name} cannot be set with {by}: {why}.")
    if write.guarantee is not DeliveryGuarantee.IDEMPOTENT:
        return
    if write.key_based_batching:
        given.problems.append(
            f"{table.BATCHER_BUILDER.name} cannot be KEY_BASED with {by}: sequence ids"
            " would not be in order."
        )
    if write.chunking_enabled:
        given.problems.append(
            f"{table.CHUNKING_ENABLED.name} cannot be true with {by}: chunks that are"
            " sent again would be left over."
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
                self.problems.append(_unknown(key, writing=self._writing))

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

    def leave_out(self, spec: OptionSpec[Any]) -> None:
        """Check an option, and then ignore it: beside others it has no effect."""
        if spec in self:
            self.get(spec)
            del self._texts[spec.name]
            self._ignored.append(spec.name)

    def finish(self, *, quiet: bool) -> None:
        """Report the problems, or else what was ignored."""
        if self.problems:
            raise OptionError(*self.problems)
        if not quiet:
            _warn_ignored(self._ignored, "write" if self._writing else "read")

    @property
    def _writing(self) -> bool:
        return self._use in Scope.WRITE

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
        if spec.scope in Scope.WRITE and not self._writing:
            self.problems.append(
                f"{spec.name} is an option of writing: leave it out of a read."
            )
        elif spec.scope in Scope.READ and self._writing:
            instead = (
                "name the topic of all rows by topic, or that of each row in the column"
                " __topic"
                if spec in (table.TOPICS, table.TOPICS_PATTERN)
                else "leave it out of a write"
            )
            self.problems.append(f"{spec.name} is an option of reading: {instead}.")
        elif spec.scope is Scope.BATCH:
            self.problems.append(
                f"{spec.name} is an option of batch reads: a stream has no end."
            )
        else:
            # One set of options often serves a stream and its backfill.
            self._ignored.append(spec.name)


def _unknown(key: str, *, writing: bool) -> str:
    if key.lower() in ("path", "paths"):
        calls = "save() or start()" if writing else "load()"
        return f"Topics are no paths: use .option('topic', ...) and {calls}."
    names = {table.plain_key(spec.name): spec.name for spec in table.OPTIONS}
    return f"There is no option {key!r}.{values.nearest(table.plain_key(key), names)}"


_warned: set[tuple[str, str]] = set()


def _warn_ignored(names: Iterable[str], use: str) -> None:
    """Warn once a process: Spark reads the same options many times."""
    new = sorted({(use, name) for name in names} - _warned)
    if new:
        _warned.update(new)
        _LOG.warning(
            "These options have no effect on this %s, and are ignored: %s",
            use,
            ", ".join(name for _, name in new),
        )
