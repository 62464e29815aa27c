# SPDX-License-Identifier: Apache-2.0
"""Declarations of options, on the fields that hold their values.

A model is a frozen dataclass whose fields are made by `option`::

    poll_timeout_s: float = option(
        "pollTimeoutMs", "120000", seconds(MILLI, DAY_S), Scope.READ,
        "Longest silence of a topic partition, in milliseconds.",
    )

The field's default, how its text is read and checked, and its row in the documents
follow from that. Nothing here knows a protocol.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, Protocol, TypeVar, overload

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

#: Makes a value of an option's text, given the name for errors; raises OptionError.
Parse = Callable[[str, str], _T]


class Scope(enum.Flag):
    """Where an option has a meaning."""

    BATCH = enum.auto()
    STREAM = enum.auto()
    BATCH_WRITE = enum.auto()
    STREAM_WRITE = enum.auto()
    READ = BATCH | STREAM
    WRITE = BATCH_WRITE | STREAM_WRITE
    CLIENT = READ | WRITE


class Support(enum.Enum):
    """What this version does with an option."""

    HONOURED = "honoured"
    #: Tuning of other clients: dropping it changes no row, so one warning is enough.
    IGNORED = "accepted without effect"
    #: Dropping it would be wrong, so it is refused.
    REFUSED = "not supported yet"


@dataclass(frozen=True)
class OptionSpec(Generic[_T_co]):
    """The declaration of an option.

    Attributes:
        name: Its spelling in documents and errors.
        default: Its default as a user would write it, None where there is none.
        parse: Makes a value of its text.
        scope: If it has a meaning.
        doc: One line of meaning, in Markdown.
        aliases: Other names, case and dots apart.
        support: What this version does with it.
        harmless: Lower-case values of a refused option that ask for nothing.
        hint: What to do instead of setting a refused option, as a sentence.
        in_writes: What to do in a write instead of setting an option of reading; ""
            where leaving it out changes nothing, as for the next one.
        in_streams: Why a stream cannot have an option of batch reads.
    """

    name: str
    default: str | None
    parse: Parse[_T_co]
    scope: Scope
    doc: str
    aliases: tuple[str, ...] = ()
    support: Support = Support.HONOURED
    harmless: frozenset[str] = frozenset()
    hint: str = ""
    in_writes: str = ""
    in_streams: str = ""

    @property
    def available(self) -> bool:
        """Return whether this version does what the option asks for."""
        return self.support is Support.HONOURED

    @property
    def default_value(self) -> _T_co | None:
        """Return the value of the default, None where there is none."""
        return None if self.default is None else self.parse(self.default, self.name)

    @property
    def scope_text(self) -> str:
        """Return the scope in words."""
        return _SCOPE_TEXTS[self.scope]


_SCOPE_TEXTS = {
    Scope.BATCH: "batch read",
    Scope.STREAM: "stream read",
    Scope.READ: "read",
    Scope.STREAM_WRITE: "stream write",
    Scope.WRITE: "write",
    Scope.CLIENT: "read, write",
}


@overload
def option(
    name: str,
    default: None,
    parse: Parse[_T],
    scope: Scope,
    doc: str,
    *aliases: str,
    in_streams: str = "",
) -> _T | None: ...


@overload
def option(
    name: str,
    default: str,
    parse: Parse[_T],
    scope: Scope,
    doc: str,
    *aliases: str,
    in_streams: str = "",
) -> _T: ...


def option(
    name: str,
    default: str | None,
    parse: Parse[_T],
    scope: Scope,
    doc: str,
    *aliases: str,
    in_streams: str = "",
) -> _T | None:
    """Declare a model's field that is set by an option.

    Args:
        name: See `OptionSpec`, as for the others.
        default: Also the field's default, as text; without one that is None.
        parse: Its result is the type of the field.
        scope: Where the option has a meaning.
        doc: One line of meaning.
        aliases: Other names.
        in_streams: Why a stream cannot have it.
    """
    spec = OptionSpec(name, default, parse, scope, doc, aliases, in_streams=in_streams)
    return field(default=spec.default_value, metadata=set_by(spec))


def set_by(*specs: OptionSpec[Any]) -> Mapping[str, Any]:
    """Return the metadata of a field that options set, for what `option` cannot say.

    Of several options, the first that is given counts.
    """
    return {_SPECS: specs}


_SPECS = "spark_topics.options"


class Model(Protocol):
    """A dataclass, some of whose fields are set by options."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


def specs_by_field(model: type[Model]) -> dict[str, tuple[OptionSpec[Any], ...]]:
    """Return the options by field, in the order of the fields."""
    return {f.name: f.metadata[_SPECS] for f in fields(model) if _SPECS in f.metadata}


def specs_of(*models: type[Model]) -> tuple[OptionSpec[Any], ...]:
    """Return the options that set the fields of some models, each once, in order."""
    return tuple(
        dict.fromkeys(
            spec
            for model in models
            for specs in specs_by_field(model).values()
            for spec in specs
        )
    )
