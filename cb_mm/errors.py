"""User-facing errors, and how a command line shows them."""

from __future__ import annotations

import difflib
import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable

#: With this variable set, a tool also prints where in the program an error arose.
SHOW_TRACEBACK = 'CB_MM_TRACEBACK'
_CONTROL = re.compile(r'[\x00-\x09\x0b-\x1f\x7f-\x9f]')
#: Errors of a disk or folder that cannot take a file.
_CANNOT_WRITE = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EIO,
}  # fmt: skip


class UserError(Exception):
    """Something the user can fix: the message names the file, what is wrong and what to do.

    A parameter is named in backticks, as in "`data_root` /x is not a folder". Python users know it
    by that name; a tool calls it by its option. The library raises the error; a tool prints the
    message alone, without a traceback, and exits with 2.
    """


class MissingFile(UserError, FileNotFoundError):
    """A file that the user named is not there."""


def in_users_words(text: str) -> str:
    """Return what the library tells its user, with parameters as the running tool calls them."""
    return _reword(text)


def _as_it_is(text: str) -> str:
    return text


#: How the running tool calls parameters; Python users see them as they are.
_reword: Callable[[str], str] = _as_it_is


def exit_code(job: Callable[[], object], reword: Callable[[str], str] = _as_it_is) -> int:
    """Run ``job`` as a command line does: 0 when it returns, 2 with one message on a UserError.

    Args:
        job: What the command does.
        reword: Puts a message that names parameters into the words of the command line.
    """
    global _reword
    if hasattr(sys.stdout, 'reconfigure'):  # a name that is not UTF-8 must not end the tool
        sys.stdout.reconfigure(errors='backslashreplace')
    before, _reword = _reword, reword
    try:
        job()
        sys.stdout.flush()
    except (UserError, OSError) as error:
        if isinstance(error, BrokenPipeError) and _reader_has_gone():
            return 128 + 13  # as a shell counts SIGPIPE
        message = _message(error)
        if message is None:
            raise
        if os.environ.get(SHOW_TRACEBACK):
            traceback.print_exc()
        # A name in a file may have codes that a terminal would obey.
        print(f'error: {_CONTROL.sub("?", reword(message))}', file=sys.stderr)
        return 2
    finally:
        _reword = before
    return 0


def _reader_has_gone() -> bool:
    """Return whether nobody reads the output any more, as after ``| head``; if so, drop it."""
    try:
        print(flush=True)  # what could not be written may have been dropped
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # Python flushes once more when it ends
        os.close(nowhere)
        return True
    return False


def _message(error: UserError | OSError) -> str | None:
    """Return one message; None for a system error that concerns no file."""
    if isinstance(error, UserError):
        return str(error)
    # A name that is too long, and whatever else a file system has to say about a file.
    about = f'{str(error.filename)[:100]}: {error.strerror}.' if error.filename else None
    return cannot_write(error) or about


def did_you_mean(word: object, known: Iterable[str], most: int = 1) -> str:
    """Return ' Did you mean "x"?' for the nearest of the known words, or nothing."""
    near = difflib.get_close_matches(str(word), list(known), n=most)
    words = ', '.join(f'"{one}"' for one in near)
    return f' Did you mean {words}?' if near else ''


def require_name(value: object, what: str) -> None:
    """Refuse a file name that is not one: argparse turns the word ``--`` into a list."""
    if not isinstance(value, (str, os.PathLike)):
        raise UserError(f'the name of the {what} is missing: "--" is not one.')


def cannot_write(error: OSError, where: object = None) -> str | None:
    """Return a message for a full disk, a read-only folder and the like; None for other errors."""
    if error.errno not in _CANNOT_WRITE:
        return None
    file = error.filename or where
    return f'cannot write{f" {file}" if file else ""}: {error.strerror}.'
