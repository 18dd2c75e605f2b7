"""The values of a config file, without running it.

A config is a Python program, but rarely uses more of Python than literals, names and
``dict(...)``. This is an interpreter for that part: each kind of syntax node that it knows is
listed, and any other is refused. What comes out is plain data, as Python itself would give it.

Every step and every value is paid for from a budget, so that no text of a given length takes more
than a given time and memory.
"""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from mmengine.config import ConfigDict

from . import arithmetic
from .base_values import BaseValue, is_free
from .budget import Budget, Refusal, words
from .limits import count_values


class Evaluator:
    """Evaluation of the statements of one file; ``names`` then holds its values."""

    def __init__(self, base: ConfigDict, budget: Budget) -> None:
        self.names: MutableMapping[str, Any] = {'_base_': base}
        self.budget = budget

    def run(self, statements: list[ast.stmt]) -> dict[str, Any]:
        """Return the names that the statements leave, and their values."""
        for statement in statements:
            self._statement(statement)
        return {name: value for name, value in self.names.items() if name != '_base_'}

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._method(node.value)
        elif isinstance(node, ast.Assign):
            value = self.value(node.value)
            for target in node.targets:
                self._assign(target, value, self.names)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                self._delete(target)
        else:
            raise Refusal(node, f'"{words(node)}" is not an assignment of data')

    def _assign(self, target: ast.expr, value: Any, names: MutableMapping[str, Any]) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, (list, tuple)):
            if len(target.elts) != len(value):
                raise Refusal(target, f'"{words(target)}" is not given {len(target.elts)} values')
            for part, item in zip(target.elts, value, strict=True):
                self._assign(part, item, names)
            return
        if isinstance(target, ast.Name):
            if target.id in arithmetic.FUNCTIONS or target.id in ('_base_', 'dict'):
                raise Refusal(target, f'"{target.id}" gets another meaning')
            names[target.id] = value
            return
        if isinstance(target, ast.Attribute):
            holder: Any = self.value(target.value)
            key: str | int = target.attr
            fits = isinstance(holder, ConfigDict) and is_free(target.attr)
        elif isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            holder, key = self.value(target.value), self._key(target.slice)
            fits = isinstance(holder, dict) or (
                isinstance(holder, list)
                and isinstance(key, int)
                and -len(holder) <= key < len(holder)
            )
        else:
            fits = False
        if not fits:
            raise Refusal(target, f'"{words(target)}" is not a name, nor part of a dict or list')
        # mmengine's dicts copy what they get; a value that is used twice is copied twice.
        self.budget.spend(count_values(value), target)
        holder[key] = value

    def _delete(self, target: ast.expr) -> None:
        holder: Any
        if isinstance(target, ast.Name):
            holder, key = self.names, target.id
        elif isinstance(target, ast.Attribute):
            holder, key = self.value(target.value), target.attr
        else:
            raise Refusal(target, f'"{words(target)}" cannot be deleted')
        if not isinstance(holder, dict) or key not in holder or key == '_base_':
            raise Refusal(target, f'there is no "{words(target)}" to delete')
        del holder[key]

    def value(self, node: ast.expr) -> Any:
        """Return what an expression is worth."""
        self.budget.spend(1, node)
        found = _KINDS.get(type(node))
        if found is None:
            raise Refusal(node, f'"{words(node)}" is more than data')
        return found(self, node)

    def _constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, str) and '{{' in node.value and '_base_' in node.value:
            raise Refusal(node, 'it has a {{...}} inside a text')
        return self.budget.checked(node.value, node)

    def _name(self, node: ast.Name) -> Any:
        if node.id not in self.names:
            raise Refusal(node, f'"{node.id}" is more than data: no earlier value has this name')
        return self.names[node.id]

    def _list(self, node: ast.List) -> list:
        return list(self._items(node.elts))

    def _tuple(self, node: ast.Tuple) -> tuple:
        return tuple(self._items(node.elts))

    def _items(self, nodes: list[ast.expr]) -> Iterator[Any]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self._sequence(node.value)
            else:
                yield self.value(node)

    def _dict(self, node: ast.Dict) -> dict:
        result: dict = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                result.update(self._mapping(value))
            else:
                result[self._key(key)] = self.value(value)
        return result

    def _set(self, node: ast.Set) -> BaseValue:
        """Resolve ``{{_base_.a.b}}``, which Python parses as a set inside a set."""
        inner = node.elts[0]
        inner = inner.elts[0] if isinstance(inner, ast.Set) and len(inner.elts) == 1 else node
        keys: list[str] = []
        while isinstance(inner, ast.Attribute):
            keys.insert(0, inner.attr)
            inner = inner.value
        if len(node.elts) != 1 or not isinstance(inner, ast.Name) or inner.id != '_base_':
            raise Refusal(node, f'"{words(node)}" is more than data')
        return BaseValue(keys)

    def _attribute(self, node: ast.Attribute) -> Any:
        """Resolve ``_base_.a.b``: only mmengine's own dicts have their keys as attributes."""
        holder = self.value(node.value)
        name = node.attr
        if not isinstance(holder, ConfigDict) or name not in holder or not is_free(name):
            raise Refusal(node, f'"{words(node)}" is more than data, or not in a base')
        return holder[name]

    def _subscript(self, node: ast.Subscript) -> Any:
        holder = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            ends = [node.slice.lower, node.slice.upper, node.slice.step]
            parts = [None if end is None else self._key(end) for end in ends]
            fits = isinstance(holder, (str, list, tuple)) and parts[2] != 0
            if not fits or any(isinstance(part, str) for part in parts):
                raise Refusal(node, f'"{words(node)}" is not part of a list')
            result = holder[slice(*parts)]
            self.budget.spend(len(result), node)
            return result
        index = self._key(node.slice)
        if isinstance(holder, dict):
            known = index in holder
        else:
            fits = isinstance(holder, (str, list, tuple)) and isinstance(index, int)
            known = fits and index in range(-len(holder), len(holder))
        if not known:
            raise Refusal(node, f'"{words(node)}" does not exist')
        return holder[index]

    def _unary(self, node: ast.UnaryOp) -> Any:
        return arithmetic.unary(node, self.value(node.operand))

    def _binary(self, node: ast.BinOp) -> Any:
        return arithmetic.binary(node, self.value(node.left), self.value(node.right), self.budget)

    def _joined(self, node: ast.JoinedStr) -> str:
        """Evaluate an f-string of texts and numbers. A list could be much longer as text."""
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                if part.format_spec is not None or part.conversion != -1:
                    raise Refusal(node, f'"{words(node)}" has a format')
                value = self.value(part.value)
                if not isinstance(value, (str, int, float)):
                    raise Refusal(node, f'"{words(part.value)}" is neither a text nor a number')
                parts.append(str(value))
            else:
                parts.append(self.value(part))
        return self.budget.checked(''.join(parts), node)

    def _list_comprehension(self, node: ast.ListComp) -> list:
        return [self.value(node.elt) for _ in self._loop(node.generators)]

    def _dict_comprehension(self, node: ast.DictComp) -> dict:
        return {self._key(node.key): self.value(node.value) for _ in self._loop(node.generators)}

    def _loop(self, generators: list[ast.comprehension]) -> Iterator[None]:
        if not generators:
            yield
            return
        first = generators[0]
        if first.ifs or first.is_async:
            raise Refusal(first.iter, 'it has a condition in a comprehension')
        items = self._sequence(first.iter)
        outer = self.names
        for item in items:
            # A new scope each time, as in Python: nothing leaks out of a comprehension.
            self.names = ChainMap({}, outer)
            self._assign(first.target, item, self.names)
            yield from self._loop(generators[1:])
            self.names = outer

    def _call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Name):
            raise Refusal(node, f'"{words(node)}" is more than data')
        if node.func.id == 'dict':
            return self._call_of_dict(node)
        if node.func.id not in arithmetic.FUNCTIONS or node.keywords:
            raise Refusal(node, f'"{words(node)}" is more than data')
        return arithmetic.call(node, node.func.id, list(self._items(node.args)), self.budget)

    def _call_of_dict(self, node: ast.Call) -> dict:
        if len(node.args) > 1:
            raise Refusal(node, f'"{words(node)}" is not a dict')
        result = dict(self._mapping(node.args[0])) if node.args else {}
        given: set[str] = set()
        for keyword in node.keywords:
            if keyword.arg is None:
                more = self._mapping(keyword.value)
                if given.intersection(more) or not all(isinstance(key, str) for key in more):
                    raise Refusal(node, f'"{words(node)}" has a key twice, or one that is not text')
            else:
                more = {keyword.arg: self.value(keyword.value)}
            given.update(more)
            result.update(more)
        return result

    def _method(self, node: ast.Call) -> None:
        """Run ``value.update(...)`` or ``value.pop('key')`` on a dict; the result is not used."""
        function = node.func
        if not isinstance(function, ast.Attribute) or function.attr not in ('update', 'pop'):
            raise Refusal(node, f'"{words(node)}" is not an assignment of data')
        holder = self.value(function.value)
        if not isinstance(holder, dict):
            raise Refusal(node, f'"{words(function.value)}" is not a dict')
        if function.attr == 'update':
            more = self._call_of_dict(node)
            self.budget.spend(count_values(more), node)
            holder.update(more)
            return
        if len(node.args) != 1 or node.keywords or (key := self._key(node.args[0])) not in holder:
            raise Refusal(node, f'"{words(node)}" does not exist')
        del holder[key]

    def _key(self, node: ast.expr) -> str | int:
        value = self.value(node)
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise Refusal(node, f'"{words(node)}" is neither a text nor a whole number')
        return value

    def _mapping(self, node: ast.expr) -> dict:
        value = self.value(node)
        if not isinstance(value, dict):
            raise Refusal(node, f'"{words(node)}" is not a dict')
        self.budget.spend(len(value), node)
        return value

    def _sequence(self, node: ast.expr) -> list | tuple:
        value = self.value(node)
        if not isinstance(value, (list, tuple)):
            raise Refusal(node, f'"{words(node)}" is not a list')
        self.budget.spend(len(value), node)
        return value


_KINDS: dict[type[ast.expr], Callable[[Evaluator, Any], Any]] = {
    ast.Attribute: Evaluator._attribute,
    ast.BinOp: Evaluator._binary,
    ast.Call: Evaluator._call,
    ast.Constant: Evaluator._constant,
    ast.Dict: Evaluator._dict,
    ast.DictComp: Evaluator._dict_comprehension,
    ast.JoinedStr: Evaluator._joined,
    ast.List: Evaluator._list,
    ast.ListComp: Evaluator._list_comprehension,
    ast.Name: Evaluator._name,
    ast.Set: Evaluator._set,
    ast.Subscript: Evaluator._subscript,
    ast.Tuple: Evaluator._tuple,
    ast.UnaryOp: Evaluator._unary,
}
