# SPDX-License-Identifier: Apache-2.0
"""The packages that pip installs together with this package."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec

from pulsar_spark.errors import PackagesError

#: The packages by their modules. PySpark has pyarrow of its own accord, or fails first.
_PACKAGES = {
    "google.protobuf": "protobuf",
    "crc32c": "crc32c",
    "lz4": "lz4",
    "pyarrow": "pyarrow",
}

#: As in pyproject.toml; and the first release. Clusters may bring an older one.
PROTOBUF = "protobuf>=5.29.5,<8"
_PROTOBUF = 5, 29, 5


def require_packages() -> None:
    """Check that the packages are installed, before an import fails.

    Raises:
        PackagesError: A package is missing, or too old; the error names all that are.
    """
    missing = [name for module, name in _PACKAGES.items() if not _is_there(module)]
    if "protobuf" not in missing:
        import google.protobuf as protobuf

        numbers = re.findall(r"\d+", protobuf.__version__)[:3]
        if (tuple(map(int, numbers)) or _PROTOBUF) < _PROTOBUF:
            missing.append(f"'{PROTOBUF}'")
    if missing:
        names = " ".join(missing)
        raise PackagesError(
            f"pulsar-spark needs packages that {sys.executable} does not have: {names}."
            f" Install them there, and on each node that runs executors:"
            f" `{sys.executable} -m pip install {names}`."
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it
        return False
