# SPDX-License-Identifier: Apache-2.0
"""What both ends of a connection need; nothing is left open, and files rest."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.support.certificates import Authority
from tests.support.fixtures import _nothing_left as _nothing_left
from tests.support.fixtures import files_rest as files_rest


@pytest.fixture(autouse=True)
def _files_rest(files_rest: None) -> None:
    """In all of these tests."""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A port where connections are accepted."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom the client trusts."""
    return Authority(tmp_path_factory.mktemp("certificates"))
