# SPDX-License-Identifier: Apache-2.0
"""Doubles of who gives tokens in clouds: to keys of service accounts, and to machines.

The SDK's own classes come to them. What those need of others (``jwt``, ``requests``,
the stubs of the cloud) is not installed for development; where it is missing, something
with the same few calls stands in for it.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import sys
import threading
import time
import types
import urllib.error
import urllib.request
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pytest
import ydb.iam.auth
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    timestamp_pb2,
)

from tests.support.certificates import Pair

_PACKAGE = "yandex.cloud.iam.v1"
_METHOD = f"/{_PACKAGE}.IamTokenService/Create"
_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), hashes.SHA256.digest_size)

_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def account_key(id_: str = "key-1") -> str:
    """Return the authorized key of a service account, as the cloud hands it out."""
    pem = _KEY.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    key = {"id": id_, "service_account_id": "account-1", "private_key": pem.decode()}
    return json.dumps(key)


# -- What the SDK needs ----------------------------------------------------------------


def _message(name: str, *fields: tuple[str, int, str]) -> Any:
    """Return a message of the token service: names, numbers, and types of fields."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name=f"tests/{name}.proto",
        package=f"tests.{_PACKAGE}",
        syntax="proto3",
        dependency=[timestamp_pb2.DESCRIPTOR.name],
    )
    message = file.message_type.add(name=name)
    for field, number, kind in fields:
        added = message.field.add(name=field, number=number, label=kinds.LABEL_OPTIONAL)
        if kind:
            added.type, added.type_name = kinds.TYPE_MESSAGE, kind
        else:
            added.type = kinds.TYPE_STRING
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindMessageTypeByName(f"tests.{_PACKAGE}.{name}")
    return message_factory.GetMessageClass(found)


_Request = _message(
    "CreateIamTokenRequest", ("yandex_passport_oauth_token", 1, ""), ("jwt", 2, "")
)
_Response = _message(
    "CreateIamTokenResponse",
    ("iam_token", 1, ""),
    ("expires_at", 2, ".google.protobuf.Timestamp"),
)


class _Stub:
    def __init__(self, channel: grpc.Channel) -> None:
        self.Create = channel.unary_unary(  # as generated stubs are spelt
            _METHOD,
            request_serializer=_Request.SerializeToString,
            response_deserializer=_Response.FromString,
        )


def _encode_jwt(
    payload: dict[str, Any], key: str, algorithm: str, headers: dict[str, Any]
) -> str:
    assert algorithm == "PS256"
    try:
        private = serialization.load_pem_private_key(key.encode(), None)
    except Exception:
        raise ValueError(f"no key: {key}") from None  # as careless as can be
    assert isinstance(private, rsa.RSAPrivateKey)
    times = {name: int(payload[name].timestamp()) for name in ("iat", "exp")}
    parts = [headers, {**payload, **times}]
    text = ".".join(_base64(json.dumps(part).encode()) for part in parts)
    return f"{text}.{_base64(private.sign(text.encode(), _PSS, hashes.SHA256()))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class _Answer:
    """What ``requests.get`` returns."""

    def __init__(self, status: int, text: str) -> None:
        self.status_code = status
        self.text = text

    def raise_for_status(self) -> None:
        if self.status_code >= 400:
            error = OSError(f"{self.status_code} Client Error")
            error.response = self  # type: ignore[attr-defined]
            raise error


def _get(url: str, headers: dict[str, str], timeout: float) -> _Answer:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return _Answer(answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return _Answer(error.code, "")


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the SDK find what is not installed of what it needs."""
    for name, members in (
        ("jwt", {"encode": _encode_jwt}),
        ("requests", {"get": _get}),
    ):
        if importlib.util.find_spec(name) is None:
            module = types.ModuleType(name)
            vars(module).update(members)
            monkeypatch.setitem(sys.modules, name, module)
    auth: Any = ydb.iam.auth
    if auth.iam_token_service_pb2 is None:
        messages = types.SimpleNamespace(CreateIamTokenRequest=_Request)
        stubs = types.SimpleNamespace(IamTokenServiceStub=_Stub)
        monkeypatch.setattr(auth, "iam_token_service_pb2", messages)
        monkeypatch.setattr(auth, "iam_token_service_pb2_grpc", stubs)


# -- The services ----------------------------------------------------------------------


class IamService:
    """Gives tokens to whoever signs with the key of `account_key`. A context.

    Args:
        server: Its certificate and key.
        token: Makes a token.
        life_s: How long it says that one holds.

    Attributes:
        port: On loopback.
        is_closed: Whether it refuses everybody.
        given: How many tokens it gave.
    """

    def __init__(self, server: Pair, token: Any, life_s: int = 3600) -> None:
        self._token = token
        self._life_s = life_s
        self.is_closed = False
        self.given = 0
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        handler = grpc.unary_unary_rpc_method_handler(
            self._create, _Request.FromString, _Response.SerializeToString
        )
        service = grpc.method_handlers_generic_handler(
            f"{_PACKAGE}.IamTokenService", {"Create": handler}
        )
        self._server.add_generic_rpc_handlers((service,))
        credentials = grpc.ssl_server_credentials(
            [(server.key.read_bytes(), server.certificate.read_bytes())]
        )
        self.port = self._server.add_secure_port("127.0.0.1:0", credentials)

    def __enter__(self) -> IamService:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(grace=0).wait(10)

    def _create(self, request: Any, context: grpc.ServicerContext) -> Any:
        if self.is_closed or not self._is_signed(request.jwt):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the key is not known")
        self.given += 1
        response = _Response(iam_token=self._token())
        response.expires_at.seconds = int(time.time()) + self._life_s
        return response

    @staticmethod
    def _is_signed(token: str) -> bool:
        signed, _, signature = token.rpartition(".")
        header, claims = (
            json.loads(base64.urlsafe_b64decode(part + "=="))
            for part in signed.split(".")
        )
        try:
            _KEY.public_key().verify(
                base64.urlsafe_b64decode(signature + "=="),
                signed.encode(),
                _PSS,
                hashes.SHA256(),
            )
        except Exception:
            return False
        return bool(
            header["kid"] == "key-1"
            and claims["iss"] == "account-1"
            and claims["aud"].endswith("/iam/v1/tokens")
            and claims["exp"] > time.time()
        )


class MetadataService:
    """Gives tokens to the machine that it runs on. A context.

    Args:
        token: Makes a token.

    Attributes:
        url: Where.
        status: What it answers; a token with 200.
        given: How many tokens it gave.
    """

    def __init__(self, token: Any) -> None:
        self.status = 200
        self.given = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status = service.status
                if self.headers.get("Metadata-Flavor") != "Google":
                    status = 403
                self.send_response(status)
                self.end_headers()
                if status == 200:
                    service.given += 1
                    answer = {"access_token": token(), "expires_in": 3600}
                    self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/token"

    def __enter__(self) -> MetadataService:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
