"""The operators and functions that a config may use, on plain data and within its budget."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from .budget import Budget, Refusal, words

_MAX_EXPONENT = 64
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def unary(node: ast.UnaryOp, value: Any) -> Any:
    """Return ``-value``, ``+value`` or ``not value``."""
    if isinstance(node.op, ast.Not) and isinstance(value, bool):
        return not value
    if isinstance(node.op, (ast.USub, ast.UAdd)) and isinstance(value, (int, float)):
        return -value if isinstance(node.op, ast.USub) else +value
    raise Refusal(node, f'"{words(node)}" is more than data')


def binary(node: ast.BinOp, left: Any, right: Any, budget: Budget) -> Any:
    """Return ``left + right`` and so on: numbers, or texts and lists put together or repeated."""
    compute = _OPERATORS.get(type(node.op))
    if _are_numbers([left, right]):
        allowed = compute is not None
        if compute is operator.pow and abs(right) > _MAX_EXPONENT:
            raise Refusal(node, 'it has a number that is too large')
    elif compute is operator.add:
        allowed = _is_sequence(left) and isinstance(right, type(left))
        if allowed:
            budget.spend_on(left, 1, node)
            budget.spend_on(right, 1, node)
    else:
        sequence, times = (left, right) if _is_sequence(left) else (right, left)
        allowed = compute is operator.mul and _is_sequence(sequence) and isinstance(times, int)
        if allowed:
            budget.spend_on(sequence, max(times, 0), node)
    if compute is None or not allowed:
        raise Refusal(node, f'"{words(node)}" is more than data')
    try:
        return budget.checked(compute(left, right), node)
    except ArithmeticError as error:
        raise Refusal(node, f'"{words(node)}" cannot be computed: {error}') from error


def call(node: ast.Call, name: str, values: list[Any], budget: Budget) -> Any:
    """Return what one of the `FUNCTIONS` gives."""
    for value in values:
        if isinstance(value, (list, tuple)):
            budget.spend(len(value), node)
    try:
        return budget.checked(FUNCTIONS[name](node, values, budget), node)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise Refusal(node, f'"{words(node)}" cannot be computed: {error}') from error


def _are_numbers(values: Any) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (str, list, tuple))


def _range(node: ast.Call, values: list[Any], budget: Budget) -> list[int]:
    numbers = range(*values)
    budget.spend(len(numbers), node)
    return list(numbers)


def _sum(node: ast.Call, values: list[Any], budget: Budget) -> Any:
    if len(values) != 1 or not isinstance(values[0], (list, tuple)) or not _are_numbers(values[0]):
        raise Refusal(node, f'"{words(node)}" is not a sum of numbers')
    return sum(values[0])


def _of_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function have numbers only: int('9' * 10**6) takes its time."""

    def call(node: ast.Call, values: list[Any], budget: Budget) -> Any:
        if not _are_numbers(values) or (len(values) == 2 and abs(values[1]) > _MAX_EXPONENT):
            raise Refusal(node, f'"{words(node)}" is not given a number')
        return function(*values)

    return call


def _of_list(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(node: ast.Call, values: list[Any], budget: Budget) -> Any:
        if len(values) > 1 or not all(isinstance(value, (list, tuple)) for value in values):
            raise Refusal(node, f'"{words(node)}" is not given a list')
        return function(*values)

    return call


#: name -> function of the node, its arguments and the budget
FUNCTIONS: dict[str, Callable[[ast.Call, list[Any], Budget], Any]] = {
    'enumerate': _of_list(lambda values: list(enumerate(values))),
    'float': _of_numbers(float),
    'int': _of_numbers(int),
    'len': _of_list(len),
    'list': _of_list(list),
    'range': _range,
    'round': _of_numbers(round),
    'sum': _sum,
    'tuple': _of_list(tuple),
}
