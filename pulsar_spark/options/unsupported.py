# SPDX-License-Identifier: Apache-2.0
"""Options known by name only: of other clients, versions and uses.

What would be wrong to drop is refused. What is only tuning is accepted without effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spark_topics.options.spec import OptionSpec, Scope, Support
from spark_topics.options.values import plain_text

#: Any key below it configures Java's admin client, which is never needed.
ADMIN_PREFIX = "pulsar.admin."


def _ignored(
    scope: Scope, names: str, *, below: str = "", aliases: tuple[str, ...] = ()
) -> Iterable[OptionSpec[Any]]:
    """Describe options that are accepted without effect.

    Args:
        scope: Where they have a meaning.
        names: Their names, by spaces.
        below: What each name begins with.
        aliases: Other names.
    """
    for name in names.split():
        yield OptionSpec(
            below + name, None, plain_text, scope, "", aliases, Support.IGNORED
        )


def _refused(
    scope: Scope, names: str, *harmless: str, below: str = "", hint: str = ""
) -> Iterable[OptionSpec[Any]]:
    """Describe options that are refused, but for values that ask for nothing.

    Args:
        scope: Where they have a meaning.
        names: Their names, by spaces.
        harmless: Values that ask for nothing, in lower case.
        below: What each name begins with.
        hint: What to do instead, as a sentence.
    """
    for name in names.split():
        yield OptionSpec(
            below + name,
            None,
            plain_text,
            scope,
            "",
            support=Support.REFUSED,
            harmless=frozenset(harmless),
            hint=hint,
        )


_READER = "pulsar.reader."
_PRODUCER = "pulsar.producer."
_CLIENT = "pulsar.client."

UNSUPPORTED: tuple[OptionSpec[Any], ...] = (
    # On a read these are a mistake in any version. Names below `pulsar.producer` are
    # those of Java's ProducerConfigurationData 4.0, and of its builder.
    *_refused(
        Scope.WRITE,
        "messageCrypto initialSubscriptionName isReplProducer"
        " isNonPartitionedTopicExpected",
        "false",
        below=_PRODUCER,
    ),
    *_refused(
        Scope.WRITE,
        "cryptoKeyReader defaultCryptoKeyReader defaultCryptoKeyReaderPublicKey"
        " defaultCryptoKeyReaderPublicKeys encryptionKeys",
        below=_PRODUCER,
        hint="Use encryption.keys and encryption.publicKeys.",
    ),
    *_refused(Scope.WRITE, "topicName", below=_PRODUCER, hint="Use topic."),
    *_refused(
        Scope.WRITE,
        "customMessageRouter",
        below=_PRODUCER,
        hint="Name the partition of each row in the column __partition.",
    ),
    *_ignored(
        Scope.WRITE,
        "blockIfQueueFull maxPendingMessages maxPendingMessagesAcrossPartitions"
        " batchingPartitionSwitchFrequencyByPublishDelay autoUpdatePartitions"
        " autoUpdatePartitionsIntervalSeconds multiSchema"
        " lazyStartPartitionedProducers",
        below=_PRODUCER,
    ),
    # Java's ReaderConfigurationData 4.0.
    *_refused(
        Scope.READ,
        "messageCrypto keyHashRanges subscriptionMode subscriptionInitialPosition",
        below=_READER,
    ),
    *_refused(
        Scope.READ,
        "cryptoKeyReader defaultCryptoKeyReader defaultCryptoKeyReaderPrivateKey"
        " defaultCryptoKeyReaderPrivateKeys",
        below=_READER,
        hint="Use encryption.privateKeys.",
    ),
    *_refused(Scope.READ, "topicNames", below=_READER, hint="Use topics."),
    *_refused(
        Scope.READ,
        "startMessageId startMessageFromRollbackDurationInSec",
        below=_READER,
        hint="Use startingOffsets or startingTime.",
    ),
    *_ignored(
        Scope.READ,
        "readerListener resetIncludeHead poolMessages autoUpdatePartitions"
        " autoUpdatePartitionsIntervalSeconds readerInterceptorList"
        " autoAckOldestChunkedMessageOnQueueFull startPaused",
        below=_READER,
    ),
    # Java's ClientConfigurationData 4.0. Those refused may hold secrets.
    *_refused(
        Scope.CLIENT,
        "authentication originalPrincipal"
        " sslFactoryPlugin sslFactoryPluginParams"
        " socks5ProxyAddress socks5ProxyUsername socks5ProxyPassword",
        below=_CLIENT,
    ),
    *_ignored(
        Scope.CLIENT,
        "numIoThreads numListenerThreads connectionsPerBroker useTcpNoDelay"
        " maxNumberOfRejectedRequestPerConnection requestTimeoutMs readTimeoutMs"
        " autoCertRefreshSeconds sslProvider enableBusyWait enableTransaction clock"
        " dnsLookupBindAddress dnsLookupBindPort dnsServerAddresses description"
        " lookupProperties openTelemetry",
        below=_CLIENT,
    ),
    *_ignored(Scope.CLIENT, "admin.url", aliases=("adminUrl",)),
)
