# SPDX-License-Identifier: Apache-2.0
"""The user's options, checked against the known options.

All problems are reported together, so that a set of options is fixed in one go. Values
of options that may hold a secret are not kept, printed or logged.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from spark_topics.errors import OptionError
from spark_topics.options.spec import Model, OptionSpec, Scope, Support, specs_by_field
from spark_topics.system import System
from spark_topics.text import is_unicode, shows, without_value, without_words

_ModelT = TypeVar("_ModelT", bound=Model)

#: What names of options are made of, those of other sources included.
_NAME = re.compile(r"[\w.-]*", re.ASCII)
_MOST_OF_A_NAME = 64
_LONGEST_WORD = 8


class KnownOptions:
    """Every option that a protocol knows.

    Args:
        specs: The options, no two with a name in common.
        system: Whose options they are.
        ignored_prefix: Beginning of further names, which are accepted without effect.
        problem_of_other: Says what to do about a name that is no option, where other
            sources have it; else "".

    Attributes:
        system: As given.
    """

    def __init__(
        self,
        specs: Iterable[OptionSpec[Any]],
        system: System,
        *,
        ignored_prefix: str | None = None,
        problem_of_other: Callable[[str], str] = lambda _: "",
    ) -> None:
        self.system = system
        self._specs = tuple(specs)
        self._by_key: dict[str, OptionSpec[Any]] = {}
        for spec in self._specs:
            for key in map(_plain, (spec.name, *spec.aliases)):
                assert self._by_key.get(key, spec) is spec, key
                self._by_key[key] = spec
        self._ignored_prefix = ignored_prefix and _plain(ignored_prefix)
        self._problem_of_other = problem_of_other

    def __getitem__(self, key: str) -> OptionSpec[Any]:
        return self._by_key[_plain(key)]

    def get(self, key: str) -> OptionSpec[Any] | None:
        """Return the option of this name or alias, case and dots apart."""
        return self._by_key.get(_plain(key))

    def ignores(self, key: str) -> bool:
        """Return whether an unknown name is accepted and ignored."""
        prefix = self._ignored_prefix
        return prefix is not None and _plain(key).startswith(prefix)

    def named_by(self, text: str) -> str:
        """Return the option that a text names, if only by the last part; "" if none.

        A short word without a dot is a value rather than a name.
        """
        if len(text) <= _LONGEST_WORD and "." not in text:
            return ""
        return next(
            (
                spec.name
                for spec in self._specs
                for name in (spec.name, *spec.aliases)
                if _plain(text) in (_plain(name), _plain(name.rpartition(".")[2]))
            ),
            "",
        )

    def problem_of_unknown(self, key: str, text: str, use: Scope) -> str:
        """Return a sentence about a name that is no option, and was given a value."""
        problem = self._problem_of_other(_shown(key))
        if problem:
            return problem
        nearest = self._nearest(key, use)
        meant = "" if nearest else self.named_by(text.strip())
        if meant:  # so the key may be a secret
            return (
                f"{meant} seems to be the value of an option, and is the name of one: "
                "exchange name and value."
            )
        question = f" Did you mean {nearest}?" if nearest else ""
        return f"There is no option {_shown(key)!r}.{question}"

    def _nearest(self, key: str, use: Scope) -> str:
        """Return the name of the most similar option, "" where none is similar.

        Options of another use count less, for a set of options may serve several.
        """
        if len(key) > _MOST_OF_A_NAME:
            return ""
        scores = (
            (score + (_OF_THIS_USE if spec.scope & use else 0), spec.name)
            for spec in self._specs
            if spec.available
            for name in (spec.name, *spec.aliases)
            if (score := _similarity(key, name)) >= _NEAR
        )
        return max(scores, default=(0, ""))[1]


def _shown(key: str) -> str:
    """Return a name in printable form.

    What no name has in it is the beginning of a value that got there, and may be a
    secret, as in ``authParams:token:c2VjcmV0==``. So may be what is longer than names.
    """
    name = _NAME.match(key)
    assert name is not None
    if name.end() > _MOST_OF_A_NAME:
        return "..."
    return key if name.end() == len(key) else f"{name[0]}..."


#: How similar a name must be, and how much the use adds.
_NEAR, _OF_THIS_USE = 0.8, 0.1


def _similarity(key: str, name: str) -> float:
    """Return how similar two names are, or their last parts if that is more."""
    import difflib  # no other call of a query needs it

    def bare(text: str) -> str:
        return re.sub(r"[^a-z0-9]", "", text.lower())

    last_parts = key.rpartition(".")[2], name.rpartition(".")[2]
    return max(
        difflib.SequenceMatcher(None, bare(left), bare(right)).ratio()
        for left, right in ((key, name), last_parts)
    )


def _plain(key: str) -> str:
    """Return a name without case and dots, for comparisons."""
    return key.lower().replace(".", "")


class Given:
    """The options given: their values, and all problems so far.

    Args:
        options: The map that Spark hands over; keys in any case.
        known: The options there are.
        use: What they are given for: one kind of read or write.

    Attributes:
        use: What they are given for.
        problems: What is wrong, in sentences. Checks of values that depend on each
            other add theirs.
        warnings: What differs from what the user may expect, in the same way.
        path: What Spark gives as ``path``, which is no option of ours: ``load(...)``
            and ``save(...)`` set it, and tables of Spark's catalog have one.
    """

    def __init__(
        self, options: Mapping[str, str], known: KnownOptions, use: Scope
    ) -> None:
        self.use = use
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.path: str | None = None
        self._known = known
        self._ignored: list[str] = []
        self._keys: dict[str, tuple[str, str]] = {}  # key and text, by name
        # By name. None where there is a problem, so that it does not count as missing.
        self._values: dict[str, Any] = {}
        for key, text in options.items():
            spec = known.get(key)
            if spec is not None:
                self._admit(spec, key, text)
            elif known.ignores(key):
                self._ignored.append(_shown(key))
            elif key.lower() in ("path", "paths"):
                self.path = text
                self._ignored.append(key)
            else:
                self.problems.append(known.problem_of_unknown(key, text, use))

    def __contains__(self, name: str) -> bool:
        """Return whether the user set an option, valid or not."""
        return self._known[name].name in self._values

    def __getitem__(self, name: str) -> Any:
        """Return an option's value, or the default."""
        spec = self._known[name]
        value = self._values.get(spec.name)
        return spec.default_value if value is None else value

    def fill(self, model: type[_ModelT], **others: Any) -> _ModelT:
        """Make a model from the values given.

        Args:
            model: Its type, whose fields say which options set them.
            others: Values of fields, instead of what options or defaults would say.
        """
        chosen = dict(others)
        for field, specs in specs_by_field(model).items():
            values = (self._values.get(spec.name) for spec in specs)
            value = next((value for value in values if value is not None), None)
            if value is not None:
                chosen.setdefault(field, value)
        return model(**chosen)

    def key_of(self, name: str) -> str:
        """Return the name under which an option was set, "" if not set."""
        return self._keys.get(self._known[name].name, ("", ""))[0]

    def has_no_effect(self, name: str) -> None:
        """Report that an option has no effect in combination with the other options."""
        if name in self:
            self._ignored.append(self._known[name].name)

    def leave_out(self, name: str) -> None:
        """Ignore an option that has no effect in combination with the other options."""
        if name in self:
            del self._values[self._known[name].name]
            self._ignored.append(self._known[name].name)

    def finish(self, *, quiet: bool) -> None:
        """Report the problems, or else what was ignored.

        Args:
            quiet: Whether to say nothing of what was ignored.

        Raises:
            OptionError: With every problem found; of the system's own class.
        """
        if self.problems:
            raise self._known.system.option_error(*self.problems)
        if not quiet:
            logger = self._known.system.logger("options")
            _warn_ignored(logger, self._ignored, "write" if self._is_write else "read")
            _warn(logger, self.warnings)

    @property
    def _is_write(self) -> bool:
        return self.use in Scope.WRITE

    def _admit(self, spec: OptionSpec[Any], key: str, text: str) -> None:
        first_key, first_text = self._keys.setdefault(spec.name, (key, text))
        if first_key != key:
            if first_text != text:
                self.problems.append(
                    f"{spec.name} is given twice with different values, as {first_key}"
                    f" and as {key}."
                )
            return
        if not spec.scope & self.use:
            self._misplaced(spec)
        elif spec.support is Support.REFUSED:
            if text.strip().lower() not in spec.harmless:
                hint = f" {spec.hint}" if spec.hint else ""
                self.problems.append(
                    f"{spec.name} is not supported yet by this version.{hint}"
                )
        elif spec.support is Support.IGNORED:
            self._ignored.append(spec.name)
        else:
            self._values[spec.name] = self._parsed(spec, text)

    def _parsed(self, spec: OptionSpec[Any], text: str) -> Any:
        if not text.strip():
            self.problems.append(f"{spec.name} is empty: set it or leave it out.")
            return None
        if not is_unicode(text):  # bytes of a command line, that no request can carry
            self.problems.append(f"{spec.name} has bytes that are not UTF-8.")
            return None
        try:
            return spec.parse(text, spec.name)
        except OptionError as error:
            self.problems.extend(_quotable(spec, text, error))
            return None

    def _misplaced(self, spec: OptionSpec[Any]) -> None:
        if self._is_write and spec.in_writes:
            self.problems.append(
                f"{spec.name} is an option of reading: {spec.in_writes}."
            )
        elif self.use is Scope.STREAM and spec.in_streams:
            self.problems.append(
                f"{spec.name} is an option of batch reads: {spec.in_streams}."
            )
        else:
            # One set of options often serves a read and a write, or a stream and its
            # backfill.
            self._ignored.append(spec.name)


def _quotable(spec: OptionSpec[Any], text: str, error: OptionError) -> Iterable[str]:
    """Return the problems of a text, which do not show another option's value in it."""
    shown = without_value(text)
    if shown is None:
        return error.problems
    kept = shown.removesuffix("...")
    hidden = text.removeprefix(kept).strip()
    sign = kept[-1]  # a letter alone would be found everywhere
    problems = [p.replace(sign + hidden, f"{sign}...") for p in error.problems]
    if not shows("".join(problems), hidden):
        return problems
    try:
        spec.parse(kept + without_words(hidden), spec.name)
    except OptionError as of_form:
        return of_form.problems
    return (f"{spec.name} cannot be read. Is a part of it for another option?",)


_warned: set[tuple[str, str, str]] = set()


def _warn(logger: logging.Logger, sentences: Iterable[str]) -> None:
    """Warn once a process, as below."""
    for sentence in sentences:
        if (logger.name, "", sentence) not in _warned:
            _warned.add((logger.name, "", sentence))
            logger.warning("%s", sentence)


def _warn_ignored(logger: logging.Logger, names: Iterable[str], use: str) -> None:
    """Warn once a process, since Spark parses options many times."""
    new = sorted({(logger.name, use, name) for name in names} - _warned)
    if new:
        _warned.update(new)
        logger.warning(
            "These options have no effect on this %s, and are ignored: %s",
            use,
            ", ".join(name for _, _, name in new),
        )
