# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.testing.admin` on a real broker."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, wrappers_pb2

from pulsar_spark.testing.admin import Admin, AdminError
from tests.testing.test_embedded_broker import read, write


def test_admin(admin: Admin, namespace: str) -> None:
    """The admin helpers do what their names say."""
    # The odd name has no subscription: 4.0.7 never answers create_subscription there.
    plain, odd, parted = (f"persistent://{namespace}/{n}" for n in ("a", "ä ö", "p"))
    admin.create_topic(plain)
    admin.create_topic(odd)
    admin.create_partitioned(parted, 2)
    assert admin.partitions(plain) == 0
    assert admin.partitions(parted) == 2
    admin.update_partitions(parted, 3)
    assert admin.partitions(parted) == 3
    assert admin.partitioned_topics(namespace) == [parted]
    assert len(admin.topics(namespace)) == 5

    assert admin.subscriptions(plain) == []
    admin.create_subscription(plain, "s/1")
    admin.create_subscription(plain, "s2", "latest")
    assert admin.subscriptions(plain) == ["s/1", "s2"]
    admin.delete_subscription(plain, "s2")
    assert admin.subscriptions(plain) == ["s/1"]
    assert admin.stats(plain)["msgInCounter"] == 0
    assert admin.internal_stats(plain)["numberOfEntries"] == 0

    admin.set_deduplication(namespace, True)
    admin.set_policy(namespace, "messageTTL", 60)
    admin.delete(parted, partitioned=True)
    admin.delete(plain)
    admin.delete(odd)
    assert admin.topics(namespace) == []
    with pytest.raises(AdminError, match="404"):
        admin.stats(plain)


def test_admin_ledgers(service_url: str, admin: Admin, topic: str) -> None:
    """A topic can be unloaded, compacted, trimmed and terminated."""
    write(service_url, topic, [b"x"])
    admin.unload(topic)
    write(service_url, topic, [b"y"])
    admin.compact(topic)
    admin.set_retention(topic.split("://")[1].rsplit("/", 1)[0], minutes=-1, size_mb=-1)
    admin.trim(topic)
    assert read(service_url, topic) == [b"x", b"y"]
    ledger, entry = admin.terminate(topic).split(":")
    assert int(ledger) > 0
    assert entry == "0"


def test_schemas_of_each_kind(admin: Admin, topic: str) -> None:
    """The class path has what checks schemas, and a later one against the first."""
    fields: list[dict[str, Any]] = [{"name": "id", "type": "int"}]
    avro = {"type": "record", "name": "Order", "fields": fields}
    for kind in ("AVRO", "JSON"):
        versions = f"{topic}-{kind}"
        admin.create_topic(versions)
        assert admin.add_schema(versions, kind, json.dumps(avro)) == 0
        more = {"name": "at", "type": ["null", "long"], "default": None}
        second = {**avro, "fields": [*fields, more]}
        assert admin.add_schema(versions, kind, json.dumps(second)) == 1
        third = {**avro, "fields": [{"name": "id", "type": "string"}]}
        with pytest.raises(AdminError, match="schema compatibility check"):
            admin.add_schema(versions, kind, json.dumps(third))
    file = wrappers_pb2.DESCRIPTOR
    files = descriptor_pb2.FileDescriptorSet()
    file.CopyToProto(files.file.add())
    native = {
        "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
        "rootMessageTypeName": "google.protobuf.Int64Value",
        "rootFileDescriptorName": file.name,
    }
    admin.create_topic(topic)
    assert admin.add_schema(topic, "PROTOBUF_NATIVE", json.dumps(native)) == 0
