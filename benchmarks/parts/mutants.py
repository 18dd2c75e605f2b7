"""Small faults that can be planted in a Python file: where they fit, and what they replace.

A mutant replaces one piece of the source text by another; the rest of the file keeps its bytes, so
that line numbers stay.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_COMPARE = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip
#: Arguments that say how fast or how loud something is, not what it gives.
_NO_MATTER = {'maxsize', 'stacklevel', 'exc_info', 'encoding', 'flush', 'parents', 'description'}


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        file: path below the root of the repository.
        function: qualified name of the innermost function or class around it; '' at the level of
            the module.
        operator: the kind of fault.
        start: offset of the replaced text, in bytes.
        before: the replaced text.
        after: the text in its place.
        line: number of its first line.
    """

    file: str
    function: str
    operator: str
    start: int
    before: str
    after: str
    line: int

    @property
    def key(self) -> str:
        """Names it, wherever its function stands in the file."""
        return f'{self.file}:{self.function}:{self.operator}:{self.before}=>{self.after}'

    def apply(self, source: bytes) -> bytes:
        """Return the file with the fault in it."""
        end = self.start + len(self.before.encode())
        if source[self.start : end] != self.before.encode():
            raise ValueError(f'{self.file} is not the file that {self.key} was found in')
        return source[: self.start] + self.after.encode() + source[end:]


def find_mutants(file: str, source: str) -> list[Mutant]:
    """Every mutant of a file."""
    return list(_Finder(file, source).mutants())


def compiles(mutant: Mutant, source: bytes) -> bool:
    """Whether the file with the fault is Python at all."""
    try:
        compile(mutant.apply(source), mutant.file, 'exec')
    except SyntaxError:
        return False
    return True


def sample(
    mutants: list[Mutant],
    count: int,
    seed: str,
    accept: Callable[[Mutant], bool] = lambda mutant: True,
) -> list[Mutant]:
    """Draw so many: first a kind of fault, then one of this kind; at most one on a line."""
    draw = random.Random(seed)
    kinds: dict[str, list[Mutant]] = {}
    for mutant in sorted(mutants, key=lambda one: (one.file, one.start, one.operator, one.after)):
        kinds.setdefault(mutant.operator, []).append(mutant)
    chosen, lines = [], set()
    while kinds and len(chosen) < count:
        kind = draw.choice(sorted(kinds))
        mutant = kinds[kind].pop(draw.randrange(len(kinds[kind])))
        if not kinds[kind]:
            del kinds[kind]
        if (mutant.file, mutant.line) not in lines and accept(mutant):
            lines.add((mutant.file, mutant.line))
            chosen.append(mutant)
    return chosen


class _Finder:
    def __init__(self, file: str, source: str) -> None:
        self.file, self.source = file, source.encode()
        self.tree = ast.parse(source)
        self.starts = [0]
        for line in self.source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def mutants(self) -> Iterator[Mutant]:
        for node, function in self._walk(self.tree, ''):
            for operator, after in _changes(node):
                start = self.starts[node.lineno - 1] + node.col_offset
                end = self.starts[node.end_lineno - 1] + node.end_col_offset
                before = self.source[start:end].decode()
                mutant = Mutant(self.file, function, operator, start, before, after, node.lineno)
                if after != before:
                    yield mutant

    def _walk(self, node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str]]:
        """Nodes to change, and the function around each; without what has no effect when run."""
        for field, value in ast.iter_fields(node):
            if field in ('annotation', 'returns', 'type_comment'):
                continue
            if isinstance(node, ast.keyword) and node.arg in _NO_MATTER:
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                    continue
                if _is_text_only(child):
                    continue
                yield child, function
                name = function
                if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                    name = f'{function}.{child.name}'.lstrip('.')
                yield from self._walk(child, name)


def _is_text_only(node: ast.AST) -> bool:
    """Docstrings, ``__all__``, imports."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return True
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == '__all__'


def _changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Kinds of faults that fit a node, and the text that takes its place."""
    change = {
        ast.Compare: _compare, ast.BinOp: _arithmetic, ast.Constant: _constant,
        ast.BoolOp: _and_or, ast.UnaryOp: _negation, ast.If: _drop, ast.Expr: _drop,
        ast.AugAssign: _drop, ast.Raise: _drop, ast.Return: _return, ast.Call: _call,
        ast.Dict: _dict, ast.Slice: _slice, ast.IfExp: _choice,
    }.get(type(node))  # fmt: skip
    if change is not None:
        yield from change(node)


def _text(node: ast.AST) -> str:
    return f'({ast.unparse(ast.fix_missing_locations(node))})'


def _compare(node: ast.Compare) -> Iterator[tuple[str, str]]:
    for place, operator in enumerate(node.ops):
        other = copy.deepcopy(node)
        other.ops[place] = _COMPARE[type(operator)]()
        yield 'comparison', _text(other)


def _arithmetic(node: ast.BinOp) -> Iterator[tuple[str, str]]:
    if type(node.op) in _ARITHMETIC:
        other = copy.deepcopy(node)
        other.op = _ARITHMETIC[type(node.op)]()
        yield 'arithmetic', _text(other)


def _constant(node: ast.Constant) -> Iterator[tuple[str, str]]:
    if isinstance(node.value, bool):
        yield 'constant', str(not node.value)
    elif isinstance(node.value, int):
        yield 'constant', str(node.value + 1)
    elif isinstance(node.value, float):
        yield 'constant', repr(node.value * 1.1 or 1.0)


def _and_or(node: ast.BoolOp) -> Iterator[tuple[str, str]]:
    other = copy.deepcopy(node)
    other.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield 'and/or', _text(other)


def _negation(node: ast.UnaryOp) -> Iterator[tuple[str, str]]:
    if isinstance(node.op, (ast.Not, ast.USub)):
        yield 'negation', _text(node.operand)


def _choice(node: ast.IfExp) -> Iterator[tuple[str, str]]:
    yield 'negation', _text(ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse))


def _drop(node: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.If):
        if not node.orelse:
            yield 'dropped statement', 'pass'
    elif not (isinstance(node, ast.Expr) and isinstance(node.value, (ast.Yield, ast.YieldFrom))):
        yield 'dropped statement', 'pass'


def _return(node: ast.Return) -> Iterator[tuple[str, str]]:
    if node.value is not None and ast.unparse(node.value) != 'None':
        yield 'return None', 'return None'


def _call(node: ast.Call) -> Iterator[tuple[str, str]]:
    starred = any(isinstance(argument, ast.Starred) for argument in node.args)
    if len(node.args) > 1 and not starred:
        other = copy.deepcopy(node)
        other.args[:2] = other.args[1::-1]
        yield 'swapped arguments', _text(other)
    for place, keyword in enumerate(node.keywords):
        if keyword.arg not in (*_NO_MATTER, None):
            other = copy.deepcopy(node)
            del other.keywords[place]
            yield 'dropped keyword', _text(other)


def _dict(node: ast.Dict) -> Iterator[tuple[str, str]]:
    for place, key in enumerate(node.keys):
        if key is not None:
            other = copy.deepcopy(node)
            del other.keys[place], other.values[place]
            yield 'dropped key', _text(other)


def _slice(node: ast.Slice) -> Iterator[tuple[str, str]]:
    for bound, operator in (('lower', ast.Add()), ('upper', ast.Sub())):
        value = getattr(node, bound)
        if value is not None:
            other = copy.deepcopy(node)
            setattr(other, bound, ast.BinOp(value, operator, ast.Constant(1)))
            yield 'slice', ast.unparse(ast.fix_missing_locations(other))
