# SPDX-License-Identifier: Apache-2.0
"""The settings of a broker for tests: small, quick, on loopback, with all features."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_spark.testing.processes import LOOPBACK

#: Broker and bookie read the same file. Other settings have Pulsar's defaults.
SETTINGS: Mapping[str, str] = {
    "clusterName": "standalone",
    "bindAddress": LOOPBACK,
    "advertisedAddress": LOOPBACK,
    # One bookie, so one copy.
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    # The features that the tests are about.
    "transactionCoordinatorEnabled": "true",
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    # Two topics of a namespace that recover from its one reader of snapshots may both
    # see the same last snapshot. The topic that does not get the snapshot waits 30 s,
    # and does not answer meanwhile.
    "numTransactionReplayThreadPoolSize": "1",
    # On, as in production: a reader that creates topics by accident must be caught.
    "allowAutoTopicCreation": "true",
    # Nothing may vanish while a test looks away.
    "brokerDeleteInactiveTopicsEnabled": "false",
    "loadBalancerEnabled": "false",
    # The bookie listens on loopback, on a fixed port: the identity of a bookie contains
    # the port, so that a restart on another port could not find the ledgers.
    "allowEphemeralPorts": "true",
    "allowLoopback": "true",
    # Above maxMessageSize with its metadata; the bookie's own default is exactly 5 MiB.
    "nettyMaxFrameSizeBytes": str(6 * 1024 * 1024),
    # A killed JVM loses nothing that is in the page cache; only a power cut would.
    "journalSyncData": "false",
    # Entries go to the journal in whole groups, each by one write. The journal has no
    # checksums, and zeros ahead of its end: a bookie that was killed between two writes
    # takes half an entry for a whole one when it starts again. With no other bookie to
    # ask, that ledger cannot be opened any more ("Digest mismatch", error -10).
    "journalWriteBufferSizeKB": "8192",
    "journalPreAllocSizeMB": "4",
    # The bookie turns read-only, and no topic can be opened any more, when more than
    # this share of the disk is used. What is left of a large disk is much even then:
    # 0.2 % of 250 GB are half a gigabyte. BookKeeper wants less than 1.
    "diskUsageThreshold": "0.999999",
    "diskUsageWarnThreshold": "0.999999",
    # An entry is in a journal and in an entry log. A journal goes once the entry logs
    # have all its entries, which is when an entry log is full. An entry log goes when
    # all its topics are deleted. So both are small, and are collected often.
    "journalMaxSizeMB": "16",
    # A crash may leave lastMark at the journal before the right one. A bookie that does
    # not find that journal does not start.
    "journalMaxBackups": "2",
    "skipListSizeLimit": str(
        8 * 1024 * 1024
    ),  # entries that are not in an entry log yet
    "logSizeLimit": str(16 * 1024 * 1024),
    "gcWaitTime": "2000",
    # The default is 10 ms, for all topics: a run of tests leaves thousands of topics.
    "managedLedgerCacheEvictionIntervalMs": "500",
    # Threads for one machine's tests, whatever its number of cores.
    "numIOThreads": "4",
    "numHttpServerThreads": "32",  # the broker calls itself, too
    "numOrderedExecutorThreads": "4",
    "managedLedgerNumSchedulerThreads": "4",
    "bookkeeperClientNumWorkerThreads": "4",
    "bookkeeperClientNumIoThreads": "2",
    "serverNumIOThreads": "4",
}

ENTRY_METADATA_SETTINGS: Mapping[str, str] = {
    "exposingBrokerEntryMetadataToClientEnabled": "true",
    "brokerEntryMetadataInterceptors": ",".join(
        f"org.apache.pulsar.common.intercept.{name}"
        for name in (
            "AppendBrokerTimestampMetadataInterceptor",
            "AppendIndexMetadataInterceptor",
        )
    ),
}

#: Releases before 4.0 look for the speed of a network card, and give up without a card.
OLD_SETTINGS: Mapping[str, str] = {"loadBalancerOverrideBrokerNicSpeedGbps": "1"}
