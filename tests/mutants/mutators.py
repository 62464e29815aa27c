# SPDX-License-Identifier: Apache-2.0
"""Small mistakes, one at a time, for tests to notice.

A mutant is a module with one of them: a comparison that is off by one, an addition that
subtracts, a statement that is not there. What only a reader sees is left alone: texts,
types, docstrings, log lines, and what is asserted about our own mistakes.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Edit = Callable[[ast.AST], ast.AST]

#: The way from the module to a statement: name of a block, index in it, and so on.
Steps = tuple[tuple[str, int], ...]

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
#: Fields of nodes; a call has keywords of another kind.
_ABOUT_TYPES = ("annotation", "returns", "decorator_list", "bases", "keywords")
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """A module with one mistake in it.

    Attributes:
        where: Class and function, ``<module>`` outside of them.
        before: The statement as it is, without the block it may have.
        after: The same with the mistake; empty where it was left out.
        lines: Lines of the statement: a test that runs none of them sees nothing.
        module: The module as it is.
        steps: The way to the statement in it.
        statement: The statement with the mistake.
    """

    where: str
    before: str
    after: str
    lines: range
    module: ast.Module
    steps: Steps
    statement: ast.stmt

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it apart from others, whatever happens to lines elsewhere."""
        return self.where, self.before, self.after

    def tree(self) -> ast.Module:
        """The module with the mistake."""
        whole = copy.deepcopy(self.module)
        node: ast.AST = whole
        for block, index in self.steps[:-1]:
            node = getattr(node, block)[index]
        block, index = self.steps[-1]
        getattr(node, block)[index] = self.statement
        return ast.fix_missing_locations(whole)

    def function(self) -> tuple[list[str], ast.Module] | None:
        """The function with the mistake, where it is in one.

        Returns:
            The names of the classes that it is in, and its own; and a module with
            nothing but it in those.
        """
        classes: list[ast.ClassDef] = []
        node: ast.AST = self.module
        inner = list(self.steps)
        while isinstance(node, ast.Module | ast.ClassDef) and inner:
            block, index = inner.pop(0)
            node = getattr(node, block)[index]
            if isinstance(node, ast.ClassDef):
                classes.append(node)
        if not isinstance(node, ast.FunctionDef) or not inner:
            return None
        names = [*(one.name for one in classes), node.name]
        changed: ast.stmt = copy.deepcopy(node)
        node = changed
        for block, index in inner[:-1]:
            node = getattr(node, block)[index]
        block, index = inner[-1]
        getattr(node, block)[index] = self.statement
        for one in reversed(classes):
            outer = copy.copy(one)
            outer.bases, outer.keywords, outer.decorator_list = [], [], []
            outer.body, changed = [changed], outer
        return names, ast.fix_missing_locations(ast.Module([changed], []))


def mutants(source: str) -> Iterator[Mutant]:
    """Each mutant of a module, in the order of its source."""
    tree = ast.parse(source)
    for steps, where, statement in _statements(tree):
        before, lines = _head(statement), _lines(statement)
        meanings = set()
        for changed in _changed(statement):
            after = "" if isinstance(changed, ast.Pass) else _head(changed)
            if (meaning := _meaning(after)) in meanings:
                continue
            meanings.add(meaning)
            yield Mutant(where, before, after, lines, tree, steps, changed)


def _statements(tree: ast.Module) -> Iterator[tuple[Steps, str, ast.stmt]]:
    """Each statement that may be mutated, and where it is."""

    def within(
        node: ast.AST, steps: Steps, where: str
    ) -> Iterator[tuple[Steps, str, ast.stmt]]:
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            inner = getattr(node, block, [])
            if block == "body" and _is_for_compiled(node):
                continue
            for index, one in enumerate(inner if isinstance(inner, list) else []):
                path, name = (*steps, (block, index)), where
                if _is_left_alone(one):
                    continue
                if isinstance(one, ast.FunctionDef | ast.ClassDef):
                    name = f"{where}.{one.name}".removeprefix("<module>.")
                if isinstance(one, ast.stmt):
                    yield path, name, one
                yield from within(one, path, name)

    yield from within(tree, (), "<module>")


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Constant):
            return True  # a docstring
        return ast.unparse(node).startswith(("_log.", "logger.", "warnings."))
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]) in ("__all__", "__slots__")
    kinds = (ast.Import, ast.ImportFrom, ast.Pass, ast.Assert, ast.Global, ast.Nonlocal)
    return isinstance(node, kinds)


def _is_for_compiled(node: ast.AST) -> bool:
    """Whether this is for the compiled form of a module, which is not mutated."""
    if not isinstance(node, ast.If):
        return False
    first, *_ = ast.unparse(node.test).split(" and ")
    return first == "_IS_COMPILED"


def _head(statement: ast.stmt) -> str:
    """A statement on one line; of one with a block only what is in front of that."""
    bare = copy.copy(statement)
    for block in ("body", "orelse", "handlers", "finalbody", "cases"):
        if isinstance(getattr(bare, block, None), list):
            setattr(bare, block, [ast.Pass()] if block == "body" else [])
    if isinstance(bare, ast.FunctionDef | ast.ClassDef):
        bare.decorator_list = []
    return " ".join(ast.unparse(bare).removesuffix("pass").split())


class _WithEqual(ast.NodeTransformer):
    """Writes a comparison with a whole number in one way: ``x < 3`` as ``x <= 2``."""

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        """See `ast.NodeTransformer`."""
        self.generic_visit(node)
        last = len(node.ops) - 1
        for at, sign in ((0, 1), (last, -1)):
            side = node.left if sign > 0 else node.comparators[-1]
            if not isinstance(side, ast.Constant) or type(side.value) is not int:
                continue
            if isinstance(node.ops[at], ast.Lt):
                node.ops[at], side.value = ast.LtE(), side.value + sign
            elif isinstance(node.ops[at], ast.Gt):
                node.ops[at], side.value = ast.GtE(), side.value - sign
        return node


def _meaning(text: str) -> str:
    """Return what is the same for two texts of a statement that say the same."""
    try:
        tree = ast.parse(f"{text} pass" if text.endswith(":") else text)
    except (SyntaxError, ValueError):  # nothing, or a part like "else:"
        return text
    return ast.unparse(_WithEqual().visit(tree))


def as_here(text: str) -> str:
    """Return what names a statement as this Python would write it.

    Versions differ in the brackets that they leave out.
    """
    try:
        (statement,) = ast.parse(f"{text} pass" if text.endswith(":") else text).body
    except (SyntaxError, ValueError):  # nothing, or a part like "else:"
        return text
    return _head(statement)


def _lines(statement: ast.stmt) -> range:
    body = getattr(statement, "body", None)
    end = body[0].lineno if body else (statement.end_lineno or 0) + 1
    return range(statement.lineno, max(end, statement.lineno + 1))


# -- what is changed -------------------------------------------------------------------


def _changed(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statement with each mistake that there is for it."""
    yield from _left_out(statement)
    if isinstance(statement, ast.Return) and ast.unparse(statement) not in (
        "return",
        "return None",
        "return False",  # who asks for its truth sees no difference
    ):
        yield ast.copy_location(ast.Return(ast.Constant(None)), statement)
    if isinstance(statement, ast.If | ast.While) and not isinstance(
        statement.test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant
    ):
        changed = copy.deepcopy(statement)
        changed.test = ast.UnaryOp(ast.Not(), changed.test)
        yield changed
    for steps, node in _expressions(statement):
        for edit in _edits(node):
            changed = copy.deepcopy(statement)
            parent: ast.AST = changed
            for name, index in steps[:-1]:
                parent = _child(parent, name, index)
            name, index = steps[-1]
            new = edit(_child(parent, name, index))
            if index is None:
                setattr(parent, name, new)
            else:
                getattr(parent, name)[index] = new
            yield changed


def _left_out(statement: ast.stmt) -> Iterator[ast.stmt]:
    if isinstance(statement, ast.Continue | ast.Break):
        other = ast.Break if isinstance(statement, ast.Continue) else ast.Continue
        yield ast.copy_location(other(), statement)
    elif isinstance(statement, ast.AugAssign):
        yield ast.copy_location(ast.Pass(), statement)
        if type(statement.op) in _OPERATORS:
            changed = copy.deepcopy(statement)
            changed.op = _OPERATORS[type(statement.op)]()
            yield changed
    elif isinstance(statement, ast.Expr | ast.Raise | ast.Delete) or _stores(statement):
        yield ast.copy_location(ast.Pass(), statement)


def _stores(statement: ast.stmt) -> bool:
    """Whether it changes what is there already; a name less would be missed by all."""
    return isinstance(statement, ast.Assign) and any(
        isinstance(node, ast.Attribute | ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        for target in statement.targets
        for node in ast.walk(target)
    )


_Way = tuple[tuple[str, int | None], ...]


def _child(node: ast.AST, name: str, index: int | None) -> ast.AST:
    found = getattr(node, name)
    child: ast.AST = found if index is None else found[index]
    return child


def _expressions(node: ast.AST, way: _Way = ()) -> Iterator[tuple[_Way, ast.AST]]:
    """Each expression of a statement that may be changed, not those of its blocks."""
    for name, value in ast.iter_fields(node):
        if name in _ABOUT_TYPES and not isinstance(node, ast.Call):
            continue
        several = isinstance(value, list)
        for index, child in enumerate(value if several else [value]):
            if not isinstance(child, ast.AST) or _is_text(node, child):
                continue
            step = (*way, (name, index if several else None))
            if isinstance(child, ast.expr):
                yield step, child
            inner = (ast.expr, ast.keyword, ast.arguments, ast.comprehension)
            if _is_below_zero(child) and not isinstance(node, ast.Subscript):
                continue  # no -2: all that is said by -1 is that there is none
            if isinstance(child, inner) or type(child).__name__ == "withitem":
                yield from _expressions(child, step)


def _is_below_zero(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
    )


def _is_text(parent: ast.AST, node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr | ast.Lambda):
        return isinstance(node, ast.JoinedStr)
    if isinstance(parent, ast.Call):
        called = ast.unparse(parent.func)
        return called in ("TypeVar", "NewType", "cast", "struct.Struct")
    return isinstance(parent, ast.Raise)


def _edits(node: ast.AST) -> Iterator[Edit]:
    """What can be done to an expression."""
    if isinstance(node, ast.Constant):
        yield from _of_constant(node.value)
    elif isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            for other in _COMPARISONS[type(operator)]:
                yield _with("ops", [*node.ops[:index], other(), *node.ops[index + 1 :]])
    elif isinstance(node, ast.BoolOp):
        yield _with("op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        yield _with("op", _OPERATORS[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield _operand
    elif isinstance(node, ast.IfExp):
        yield _with("test", ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Name) and node.id in _NAMES:
        yield _with("id", _NAMES[node.id])


def _of_constant(value: object) -> Iterator[Edit]:
    if isinstance(value, bool):
        yield _with("value", not value)
    elif isinstance(value, int):
        yield _with("value", value + 1)
        if value > 1:
            yield _with("value", value - 1)
    elif isinstance(value, float):
        yield _with("value", value * 2 + 1)


def _with(name: str, value: object) -> Edit:
    def edit(node: ast.AST) -> ast.AST:
        setattr(node, name, value)
        return node

    return edit


def _operand(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.UnaryOp)
    return node.operand
