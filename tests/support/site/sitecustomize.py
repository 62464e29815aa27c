# SPDX-License-Identifier: Apache-2.0
"""Python imports this as it starts, where it is in PYTHONPATH.

Spark starts many Python processes. They find pyspark in a zip file first, where each of
them compiles what it imports, and that takes most of a second. So here they find only
what is installed: the same, and compiled. (Behind that it may not stay, either: Python
3.13 cannot list an archive of which nothing was imported, python/cpython#121342.)

Names of hosts that end in ``.hangs.test`` are never resolved, as where the system asks
a name server that does not answer.

The rest is for ``tests.support.standing``.
"""

import importlib.abc
import importlib.util
import os
import socket
import sys
import time
from types import ModuleType
from typing import Any

_MODULE = "pulsar_spark.sink.exactly_once"

#: What each fork of one of Spark's daemons would load for our sources, and in half of
#: the time that it takes to begin. It still loads all that is ours.
_NEEDED_BY_FORKS = ("pyarrow", "google.protobuf.internal.builder", "http.client", "ssl")

sys.path[:] = [
    path for path in sys.path if not (path.endswith(".zip") and "pyspark" in path)
]


if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    for name in _NEEDED_BY_FORKS:
        importlib.import_module(name)


_getaddrinfo: Any = socket.getaddrinfo


def _resolve(host: Any, *more: Any, **settings: Any) -> Any:
    is_asked = not settings.get("flags", 0) & socket.AI_NUMERICHOST
    while is_asked and str(host).endswith(".hangs.test"):
        time.sleep(60)
    return _getaddrinfo(host, *more, **settings)


socket.getaddrinfo = _resolve


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module as others would, and changes it when it is loaded.

    Not before: Spark starts many Python processes, and waits for none of them long.
    """

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """The module's, and nobody else's."""
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
            from tests.support import standing

            standing.install(module)

        spec.loader.exec_module = exec_module
        return spec


if "PULSAR_SPARK_TEST_STAND" in os.environ:
    sys.meta_path.insert(0, _Finder())
