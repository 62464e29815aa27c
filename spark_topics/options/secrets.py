# SPDX-License-Identifier: Apache-2.0
"""Values of options that must not be shown."""

from __future__ import annotations

import errno
import hmac
import os
import platform
import stat
from typing import ClassVar, TypeVar

from spark_topics.errors import OptionError, foreign_text

#: How a secret is named that each node finds for itself.
_FILE = "file:"
_ENV = "env:"

#: No key or password is longer; what is, is the wrong file.
_MAX_BYTES = 1 << 20

#: What fingerprints are made with: of no use outside of this process and its forks.
_SALT = os.urandom(32)


_S = TypeVar("_S", bound="Secret")


class Secret:
    """A text that is never shown: not printed, formatted, logged or put into an error.

    It is given as it is, or by where each node finds it: ``file:/path``, ``env:NAME``.
    It is pickled with what was given, because tasks need it, and compared by that, in
    constant time.

    Args:
        given: The text, or if it is.
        option: The option that errors name.

    Raises:
        OptionError: It names a file by a path that is not absolute, or no variable.
    """

    #: What is raised of it; a messaging system's own secrets name their own class.
    error: ClassVar[type[OptionError]] = OptionError

    __slots__ = ("__given", "__option")

    def __init__(self, given: str, option: str = "A secret") -> None:
        self.__given = given
        self.__option = option
        path = self.path
        if path is not None and not os.path.isabs(path):
            raise self.error(
                f"{option} must name a file by its whole path, as file:/path/to/it."
            )
        if given.startswith(_ENV) and not given.removeprefix(_ENV).strip():
            raise self.error(f"{option} must name a variable, as env:NAME.")

    @classmethod
    def parse(cls: type[_S], text: str, option: str) -> _S:
        """Parse a secret, or the place where each node reads the secret."""
        return cls(text.strip(), option)

    @property
    def path(self) -> str | None:
        """Return the path of the file that has the text, None where none has."""
        if not self.__given.startswith(_FILE):
            return None
        return self.__given.removeprefix(_FILE).strip().removeprefix("//")

    @property
    def place(self) -> str:
        """Return where the secret comes from, for messages."""
        if self.path is not None:
            return f"the file {foreign_text(self.path)}"
        if self.is_inline:
            return self.__option
        name = self.__given.removeprefix(_ENV).strip()
        return f"the environment variable {foreign_text(name)}"

    @property
    def is_inline(self) -> bool:
        """Return whether the text itself was given, and so travels with the options."""
        return not self.__given.startswith((_FILE, _ENV))

    @property
    def fingerprint(self) -> bytes:
        """Return a digest that is equal for equal secrets and reveals nothing else.

        Of those that each node finds for itself, it is equal whatever they are now. It
        has no meaning in another process.
        """
        return hmac.digest(_SALT, _utf8(self.__given), "sha256")

    def read(self) -> str:
        """Return the secret, read now on this node.

        Line breaks at the end of a file are no part of it, nor is the mark of UTF-8
        that editors put at its beginning.

        Raises:
            OptionError: There is no such file or variable on this node, or it is empty.
        """
        path = self.path
        if path is not None:
            text = self._file(path)
        elif self.is_inline:
            return self.__given
        else:
            name = self.__given.removeprefix(_ENV).strip()
            text = os.environ.get(name, "")
        if not text:
            raise self.error(
                f"{self.__option} names {self.place}, which is not set or empty on"
                f" {platform.node()}."
            )
        return text

    def _file(self, path: str) -> str:
        problem = ""
        try:
            data = read_file(path, _MAX_BYTES + 1)
            if len(data) <= _MAX_BYTES:
                return data.decode("utf-8-sig").rstrip("\r\n")
            problem = f"it has more than {_MAX_BYTES} bytes"
        except UnicodeDecodeError:  # its text would show the bytes
            problem = "it is not UTF-8"
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or type(error).__name__
        raise self.error(
            f"{self.__option} names the file {foreign_text(path)}, which cannot be read"
            f" on {platform.node()}: {problem}."
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_utf8(self.__given), _utf8(other.__given))

    def __hash__(self) -> int:
        # Not that of the text: Spark's workers have one that anybody can compute.
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return "<secret>"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __reduce__(self) -> tuple[type[Secret], tuple[str, str]]:
        return type(self), (self.__given, self.__option)


def read_file(path: str, most_bytes: int = -1) -> bytes:
    """Return what a file has that a node has been given.

    Raises:
        OSError: It cannot be read, or is none: for a pipe one would wait for ever.
    """

    def at_once(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    with open(path, "rb", opener=at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read(most_bytes)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
