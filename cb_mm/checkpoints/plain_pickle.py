"""The pickle in a checkpoint, run by a machine that knows only plain data.

Python's unpickler imports what a file names and calls it. torch's ``weights_only=True`` calls less,
but still real functions with the arguments of the file, and those of older versions could be made
to write outside of their memory. Here a name in a pickle is only a `Name`: nothing is imported, and
what a call of it means is defined in `parts`, with every argument checked.
"""

from __future__ import annotations

import pickletools
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

#: More steps than any checkpoint has; an object takes at most some hundred bytes per step.
MOST_STEPS = 2_000_000
#: Python hashes an integer to itself below this. Above, a file could choose keys that all collide.
_LARGEST_KEY = 1 << 60
#: Names that pickles of Python 2, and of protocol 2, use.
_MODULES = {'__builtin__': 'builtins', 'copy_reg': 'copyreg'}


class Refused(Exception):
    """What is wrong with a checkpoint, as the part of a sentence after its name."""


class Foreign(Exception):
    """A class or function in a checkpoint that is not weights or plain data."""


@dataclass(frozen=True)
class Name:
    """A class or function that a pickle refers to, by name only."""

    text: str


class Parts(Protocol):
    """What names mean; see `parts`."""

    def value(self, name: str) -> Any:
        """Return what a name stands for by itself."""

    def call(self, function: Any, arguments: Any) -> Any:
        """Return what the call of a name makes."""

    def build(self, item: Any, state: Any) -> None:
        """Give ``item`` its state."""

    def storage(self, identity: Any) -> Any:
        """Return the numbers that a tensor is made of."""


def unpickle(stream: BinaryIO | Any, parts: Parts) -> Any:
    """Return what the next pickle in ``stream`` holds.

    Raises:
        Foreign: It refers to something that is neither weights nor plain data.
        Refused: It is not a pickle of a checkpoint.
        Exception: It is damaged; of any kind.
    """
    machine = _Machine(parts)
    for step, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
        if step > MOST_STEPS:
            raise Refused(f'has a pickle of more than {MOST_STEPS:,} steps')
        if opcode.name == 'STOP':
            return machine.stack.pop()
        run = _STEPS.get(opcode.name)
        if run is None:
            raise Refused(f'has a step in its pickle that no checkpoint needs ({opcode.name})')
        run(machine, argument)
    raise EOFError


class _Machine:
    """A stack, what is below its marks, and the memo of the pickle."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def mark(self, _: Any) -> None:
        self.below.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise Refused('is damaged: a name in its pickle is not a text')
        self.push(self.parts.value(f'{_MODULES.get(module, module)}.{name}'))

    def last(self, *kinds: type) -> Any:
        if type(self.stack[-1]) not in kinds:
            raise Refused(f'fills a {type(self.stack[-1]).__name__} as if it were a container')
        return self.stack[-1]


def require_keys(keys: Any) -> None:
    """Refuse keys of dictionaries and items of sets that are not plain."""
    for key in keys:
        if isinstance(key, int):
            plain = abs(key) < _LARGEST_KEY
        else:
            plain = key is None or type(key) in (str, bytes, float)
        if not plain:
            raise Refused(f'has a {type(key).__name__} as the key of a dictionary')


def _global(machine: _Machine, argument: str) -> None:
    machine.name(*argument.split(' ', 1))


def _stack_global(machine: _Machine, _: Any) -> None:
    name = machine.stack.pop()
    machine.name(machine.stack.pop(), name)


def _call(machine: _Machine, _: Any) -> None:
    arguments = machine.stack.pop()
    machine.push(machine.parts.call(machine.stack.pop(), arguments))


def _build(machine: _Machine, _: Any) -> None:
    state = machine.stack.pop()
    machine.parts.build(machine.stack[-1], state)


def _storage(machine: _Machine, _: Any) -> None:
    machine.push(machine.parts.storage(machine.stack.pop()))


def _append(machine: _Machine, _: Any) -> None:
    item = machine.stack.pop()
    machine.last(list).append(item)


def _appends(machine: _Machine, _: Any) -> None:
    items = machine.since_mark()
    machine.last(list).extend(items)


def _add_items(machine: _Machine, _: Any) -> None:
    items = machine.since_mark()
    require_keys(items)
    machine.last(set).update(items)


def _set_item(machine: _Machine, _: Any) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    require_keys([key])
    machine.last(dict, OrderedDict, Counter)[key] = value


def _set_items(machine: _Machine, _: Any) -> None:
    items = machine.since_mark()
    require_keys(items[::2])
    container = machine.last(dict, OrderedDict, Counter)
    # Not by update(): Counter's counts the pairs, and so hashes values of the file's choice.
    for key, value in zip(items[::2], items[1::2], strict=True):
        container[key] = value


def _tuple(count: int) -> Callable[[_Machine, Any], None]:
    def make(machine: _Machine, _: Any) -> None:
        items = [machine.stack.pop() for _ in range(count)]
        machine.push(tuple(items[::-1]))

    return make


def _get(machine: _Machine, index: int) -> None:
    machine.push(machine.memo[index])


def _put(machine: _Machine, index: int) -> None:
    machine.memo[index] = machine.stack[-1]


def _memoize(machine: _Machine, _: Any) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _python2_text(machine: _Machine, text: str) -> None:
    machine.push(text.encode('latin-1').decode('utf-8'))


def _nothing(machine: _Machine, _: Any) -> None:
    """Do nothing: protocol numbers and frames have no effect."""


_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(('PROTO', 'FRAME'), _nothing),
    **dict.fromkeys(
        ('BININT', 'BININT1', 'BININT2', 'LONG1', 'BINFLOAT', 'BINUNICODE', 'SHORT_BINUNICODE',
         'SHORT_BINBYTES', 'BINBYTES', 'BINBYTES8', 'BINUNICODE8', 'BYTEARRAY8'),
        _Machine.push,
    ),
    **dict.fromkeys(('BINSTRING', 'SHORT_BINSTRING'), _python2_text),
    'NONE': lambda machine, _: machine.push(None),
    'NEWTRUE': lambda machine, _: machine.push(True),
    'NEWFALSE': lambda machine, _: machine.push(False),
    'EMPTY_DICT': lambda machine, _: machine.push({}),
    'EMPTY_LIST': lambda machine, _: machine.push([]),
    'EMPTY_SET': lambda machine, _: machine.push(set()),
    'EMPTY_TUPLE': _tuple(0),
    'TUPLE1': _tuple(1),
    'TUPLE2': _tuple(2),
    'TUPLE3': _tuple(3),
    'TUPLE': lambda machine, _: machine.push(tuple(machine.since_mark())),
    'MARK': _Machine.mark,
    'APPEND': _append,
    'APPENDS': _appends,
    'ADDITEMS': _add_items,
    'SETITEM': _set_item,
    'SETITEMS': _set_items,
    'GLOBAL': _global,
    'STACK_GLOBAL': _stack_global,
    'REDUCE': _call,
    'NEWOBJ': _call,
    'BUILD': _build,
    'BINPERSID': _storage,
    'MEMOIZE': _memoize,
    **dict.fromkeys(('BINGET', 'LONG_BINGET'), _get),
    **dict.fromkeys(('BINPUT', 'LONG_BINPUT'), _put),
}  # fmt: skip
