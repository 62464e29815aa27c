# SPDX-License-Identifier: Apache-2.0
"""Requests to masters and brokers, with their reply types.

What a server would answer by silence, or by making a store that no one wanted, cannot
be expressed here.

Source: InLong 2.4, MasterService and BrokerService.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.attributes import Stored
from tubemq_spark.wire.checksums import checksum
from tubemq_spark.wire.rpc import Service

ReplyT = TypeVar("ReplyT", bound="Message | memoryview")

#: errCode of a reply to what was done.
SUCCESS = 200

#: Reads and counts only what is on the broker's disk. By default what is in its memory
#: alone is delivered, too: that is lost with the process, its offsets are used again,
#: and large messages are left out of it.
FLUSHED = 1

#: What a broker does by default: memory is read, but for filtered consumers.
BROKER_DEFAULT = 301

#: Reads memory, filtered or not.
UNFLUSHED = 303

_REGISTER, _UNREGISTER = 31, 32

#: As an id: nothing is known yet.
_UNKNOWN = -2


@dataclass(frozen=True)
class Request(Generic[ReplyT]):
    """A call of a method.

    Attributes:
        name: The name in messages.
        method: Number of the method.
        service: Who answers it.
        body: What the method is given.
        reply_type: The reply; a memoryview where its bytes are for who asked to
            read, and the thread that receives them has others to look after.
        needs: Fields that an answer must have, where its errCode is 200.
    """

    name: str
    method: int
    service: Service
    body: Message
    reply_type: type[ReplyT]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Token:
    """The tokens that a client shows to a server.

    Attributes:
        visit: From a master; brokers ask for it if they are configured to.
        authorized: Proof of a password that was checked, "" for none.
    """

    visit: int
    authorized: str = ""

    def __repr__(self) -> str:
        return "Token(...)"


# -- masters ---------------------------------------------------------------------------


def register_producer(
    client_id: str,
    topics: Iterable[str],
    host: str,
    *,
    certificate: pb.MasterCertificateInfo | None = None,
) -> Request[pb.RegisterResponseM2P]:
    """Return a producer's registration; the reply has brokers, but no topics."""
    body = pb.RegisterRequestP2M(
        clientId=client_id,
        topicList=sorted(topics),
        brokerCheckSum=-1,
        hostName=host,
        authInfo=certificate,
        appdConfig=pb.ApprovedClientConfig(configId=_UNKNOWN),
    )
    return Request("producer register", 1, Service.MASTER, body, pb.RegisterResponseM2P)


def heartbeat_producer(
    client_id: str,
    topics: Iterable[str],
    host: str,
    *,
    certificate: pb.MasterCertificateInfo | None = None,
) -> Request[pb.HeartResponseM2P]:
    """Return a producer's heartbeat, which asks for all topics and brokers again."""
    body = pb.HeartRequestP2M(
        clientId=client_id,
        brokerCheckSum=-1,
        hostName=host,
        topicList=sorted(topics),
        authInfo=certificate,
        appdConfig=pb.ApprovedClientConfig(configId=_UNKNOWN),
    )
    return Request("producer heartbeat", 2, Service.MASTER, body, pb.HeartResponseM2P)


def close_producer(
    client_id: str, *, certificate: pb.MasterCertificateInfo | None = None
) -> Request[pb.CloseResponseM2P]:
    """Return the end of a producer."""
    body = pb.CloseRequestP2M(clientId=client_id, authInfo=certificate)
    return Request("producer close", 3, Service.MASTER, body, pb.CloseResponseM2P)


def register_consumer(
    client_id: str,
    group: str,
    topics: Iterable[str],
    host: str,
    *,
    certificate: pb.MasterCertificateInfo | None = None,
) -> Request[pb.RegisterResponseM2CV2]:
    """Return the registration of a consumer that chooses its own partitions."""
    body = pb.RegisterRequestC2MV2(
        clientId=client_id,
        groupName=group,
        hostName=host,
        sourceCount=_UNKNOWN,
        nodeId=_UNKNOWN,
        topicList=sorted(topics),
        subRepInfo=pb.ClientSubRepInfo(
            brokerConfigId=_UNKNOWN, topicMetaInfoId=_UNKNOWN, reportSubInfo=False
        ),
        opsTaskInfo=pb.OpsTaskInfo(),
        authInfo=certificate,
    )
    return Request(
        "consumer register", 20, Service.MASTER, body, pb.RegisterResponseM2CV2
    )


def partition_metadata(
    client_id: str, group: str, *, certificate: pb.MasterCertificateInfo | None = None
) -> Request[pb.GetPartMetaResponseM2C]:
    """Return a question about the partitions and brokers of a consumer's topics."""
    body = pb.GetPartMetaRequestC2M(
        clientId=client_id,
        groupName=group,
        brokerConfigId=_UNKNOWN,
        topicMetaInfoId=_UNKNOWN,
        authInfo=certificate,
    )
    return Request(
        "partition metadata", 22, Service.MASTER, body, pb.GetPartMetaResponseM2C
    )


def close_consumer(
    client_id: str, group: str, *, certificate: pb.MasterCertificateInfo | None = None
) -> Request[pb.CloseResponseM2C]:
    """Return the end of a consumer, for the master."""
    body = pb.CloseRequestC2M(clientId=client_id, groupName=group, authInfo=certificate)
    return Request("consumer close", 6, Service.MASTER, body, pb.CloseResponseM2C)


# -- brokers: read ---------------------------------------------------------------------


def register(
    client_id: str,
    group: str,
    topic: str,
    partition_id: int,
    offset: int,
    *,
    priority: int = FLUSHED,
    filters: Sequence[str] = (),
    token: Token | None = None,
) -> Request[pb.RegisterResponseB2C]:
    """Return the registration at a partition, held exclusively from then on.

    Args:
        client_id: Who; the same one may register again, from elsewhere, too.
        group: Whose position it is.
        topic: Name of the topic.
        partition_id: One that the metadata has: a broker makes others up.
        offset: Where to begin; a broker moves it into what it has, without a word.
        priority: `FLUSHED`, `UNFLUSHED` or `BROKER_DEFAULT`.
        filters: Message types to deliver; none for all.
        token: Where the cluster wants one.
    """
    body = pb.RegisterRequestC2B(
        opType=_REGISTER,
        clientId=client_id,
        groupName=group,
        topicName=topic,
        partitionId=partition_id,
        readStatus=0,
        filterCondStr=filters,
        currOffset=offset,
        qryPriorityId=priority,
        authInfo=_authorized(token),
    )
    return Request(
        "register",
        15,
        Service.BROKER_READ,
        body,
        pb.RegisterResponseB2C,
        ("currOffset", "maxOffset"),
    )


def unregister(
    client_id: str,
    group: str,
    topic: str,
    partition_id: int,
    token: Token | None = None,
) -> Request[pb.RegisterResponseB2C]:
    """Return the end of a registration; what was not committed is dropped."""
    body = pb.RegisterRequestC2B(
        opType=_UNREGISTER,
        clientId=client_id,
        groupName=group,
        topicName=topic,
        partitionId=partition_id,
        readStatus=1,
        authInfo=_authorized(token),
    )
    return Request("unregister", 15, Service.BROKER_READ, body, pb.RegisterResponseB2C)


def heartbeat(
    client_id: str,
    group: str,
    partition_infos: Iterable[str],
    *,
    priority: int = FLUSHED,
    token: Token | None = None,
) -> Request[pb.HeartBeatResponseB2C]:
    """Return a heartbeat for some partitions, see `metadata.encode_partition_info`.

    Args:
        client_id: Whose.
        group: Of it.
        partition_infos: All of its partitions on this broker.
        priority: As registered: one that is left out falls back to the default.
        token: Where the cluster wants one.
    """
    body = pb.HeartBeatRequestC2B(
        clientId=client_id,
        groupName=group,
        readStatus=0,
        partitionInfo=partition_infos,
        qryPriorityId=priority,
        authInfo=_authorized(token),
    )
    return Request("heartbeat", 16, Service.BROKER_READ, body, pb.HeartBeatResponseB2C)


def get(
    client_id: str, group: str, topic: str, partition_id: int
) -> Request[memoryview]:
    """Return a request for the next messages; a commit tells where the get ended.

    `gets.read_got` reads what is answered.
    """
    body = pb.GetMessageRequestC2B(
        clientId=client_id,
        partitionId=partition_id,
        groupName=group,
        topicName=topic,
        lastPackConsumed=False,
        manualCommitOffset=True,
    )
    return Request(
        "get",
        17,
        Service.BROKER_READ,
        body,
        memoryview,
        ("currOffset",),
    )


def commit(
    client_id: str, group: str, topic: str, partition_id: int
) -> Request[pb.CommitOffsetResponseB2C]:
    """Return a commit of the gets so far; the reply tells where the last get ended."""
    body = pb.CommitOffsetRequestC2B(
        clientId=client_id,
        topicName=topic,
        partitionId=partition_id,
        groupName=group,
        lastPackConsumed=True,
    )
    return Request(
        "commit",
        18,
        Service.BROKER_READ,
        body,
        pb.CommitOffsetResponseB2C,
        ("currOffset", "maxOffset"),
    )


# -- brokers: write --------------------------------------------------------------------


def send(
    client_id: str,
    topic: str,
    partition_id: int,
    stored: Stored,
    *,
    msg_type: str | None = None,
    msg_time: str | None = None,
    sent_address: int = 0,
    token: Token | None = None,
) -> Request[pb.SendMessageResponseB2P]:
    """Return a message to store.

    Args:
        client_id: Whose.
        topic: Name of the topic.
        partition_id: One that the metadata has: a broker makes others up.
        stored: Attributes and value.
        msg_type: What filters compare; the same that the attributes have.
        msg_time: As the attributes have it.
        sent_address: IPv4 address as a signed number, for statistics.
        token: Where the cluster wants one.
    """
    body = pb.SendMessageRequestP2B(
        clientId=client_id,
        topicName=topic,
        partitionId=partition_id,
        data=stored.data,
        flag=stored.flag,
        checkSum=checksum(stored.data),
        sentAddr=sent_address,
        msgType=msg_type,
        msgTime=msg_time,
        authInfo=_authorized(token),
    )
    return Request("send", 13, Service.BROKER_WRITE, body, pb.SendMessageResponseB2P)


def _authorized(token: Token | None) -> pb.AuthorizedInfo | None:
    if token is None:
        return None
    return pb.AuthorizedInfo(
        visitAuthorizedToken=token.visit,
        authAuthorizedToken=token.authorized or None,
    )
