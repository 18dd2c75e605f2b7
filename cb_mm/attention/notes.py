"""Warnings of a run: shown as they come, and kept for its results."""

from __future__ import annotations

from typing import TextIO

from tqdm import tqdm

from ..errors import in_users_words


class Notes(list[str]):
    """Warnings of a run, each once; shown as they come.

    Args:
        console: Where to show them; None for nowhere.
    """

    def __init__(self, console: TextIO | None = None) -> None:
        super().__init__()
        self._console = console

    def add(self, note: str | None) -> None:
        """Keep and show a note that is not there yet."""
        if note and note not in self:
            self.append(note)
            if self._console is not None:
                tqdm.write(f'warning: {in_users_words(note)}', file=self._console)
