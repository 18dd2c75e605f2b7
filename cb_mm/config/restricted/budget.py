"""What a config may take: steps, values, and numbers and texts of a certain size."""

from __future__ import annotations

import ast
import math
from typing import Any

from ...errors import UserError
from .limits import MAX_VALUES

#: Steps and values of one config with its bases.
BUDGET = 5 * MAX_VALUES
MAX_NUMBER = 2**63
MAX_TEXT = 100_000


class Refusal(UserError):
    """What a line of a config holds that is not data."""

    def __init__(self, node: ast.AST, what: str) -> None:
        super().__init__(what)
        self.line = getattr(node, 'lineno', 1)


class Budget:
    """What is left of the steps and values that a config may take."""

    def __init__(self, amount: int = BUDGET) -> None:
        self.left = amount

    def spend(self, amount: int, node: ast.AST) -> None:
        """Take ``amount`` off, or refuse."""
        self.left -= amount
        if self.left < 0:
            raise Refusal(node, 'it computes too much, or holds too many values')

    def spend_on(self, value: Any, times: int, node: ast.AST) -> None:
        """Pay for ``times`` copies of a text or list, before they are made."""
        if isinstance(value, str) and len(value) * times > MAX_TEXT:
            raise Refusal(node, 'it has a text that is too long')
        self.spend(len(value) * times, node)

    def checked(self, value: Any, node: ast.AST) -> Any:
        """Return plain data; refuse bytes, ``...``, complex numbers and absurdly large ones."""
        if value is None or isinstance(value, (bool, list, tuple, dict)):
            return value
        if isinstance(value, (int, float)):
            if not math.isfinite(value) or (isinstance(value, int) and abs(value) > MAX_NUMBER):
                raise Refusal(node, 'it has a number that is too large')
        elif isinstance(value, str):
            if len(value) > MAX_TEXT:
                raise Refusal(node, 'it has a text that is too long')
            self.spend(len(value) // 16, node)
        else:
            raise Refusal(node, f'"{words(node)}" is more than data')
        return value


def words(node: ast.AST) -> str:
    """Return the source of a node, shortened."""
    try:
        text = ' '.join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        text = type(node).__name__
    return text if len(text) <= 60 else text[:57] + '...'
