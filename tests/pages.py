"""The pages of the documentation, taken apart: fenced blocks, their marks, commands, anchors.

A comment right before a block is a mark, which readers do not see:

    <!-- runs -->            the block is run as it stands, in a folder of its page
    <!-- runs: A B -->       and leaves the files A and B
    <!-- file: NAME -->      the block is the file NAME there
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tool import REPO

PAGES = sorted([*REPO.glob('*.md'), *(REPO / 'docs').glob('*.md'), *REPO.glob('examples/*.md')])

_BLOCK = re.compile(
    r'^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$', re.M | re.S
)
#: How a command begins that stands in a sentence, an indented block or a transcript.
_COMMAND = (
    r'(?:python (?:-m |tools/|benchmarks/|examples/)|make |pip |cb-mm |torchrun |tools/\w+\.sh )'
)


@dataclass(frozen=True)
class Block:
    """A fenced block: ``mark`` is the word of its mark, ``names`` what follows it."""

    page: Path
    language: str
    text: str
    mark: str = ''
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """One command of a page."""

    page: Path
    text: str

    @property
    def words(self) -> list[str]:
        """As a shell splits it, without its comment and without variables before it."""
        words = shlex.split(self.text, comments=True)
        return words[len(self.variables) :]

    @property
    def variables(self) -> dict[str, str]:
        """What is set before the command, such as GPUS=8."""
        found = {}
        for word in shlex.split(self.text, comments=True):
            name, equals, value = word.partition('=')
            if not (equals and name.isidentifier()):
                break
            found[name] = value
        return found


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = []
    for match in _BLOCK.finditer(page.read_text()):
        mark, _, names = (match['mark'] or '').partition(':')
        block = Block(page, match['language'], match['text'], mark.strip(), tuple(names.split()))
        if language in (None, block.language):
            found.append(block)
    return found


def split_commands(page: Path, text: str) -> list[Command]:
    """The lines of a shell script that are not empty, joined where they go on."""
    lines = re.sub(r'\\\n\s*', '', text).splitlines()
    return [Command(page, line) for line in lines if shlex.split(line, comments=True)]


def block_commands(page: Path) -> list[Command]:
    """Every command of the bash blocks."""
    return [
        command for block in blocks(page, 'bash') for command in split_commands(page, block.text)
    ]


def other_commands(page: Path) -> list[Command]:
    """Commands in sentences, in indented blocks, and behind the $ of a transcript."""
    text = page.read_text()
    found = [
        match[1]
        for block in blocks(page, 'console')
        for match in re.finditer(rf'^\$ ({_COMMAND}.*)$', block.text, re.M)
    ]
    prose = _BLOCK.sub('', text)
    found += re.findall(rf'^    ({_COMMAND}.*)$', prose, re.M)
    found += [' '.join(code.split()) for code in re.findall(rf'`({_COMMAND}[^`]*)`', prose)]
    return [Command(page, text) for text in found]


def prose(page: Path) -> str:
    """The page without its blocks."""
    return _BLOCK.sub('', page.read_text())


def anchors(page: Path) -> set[str]:
    """What ``#...`` may name, by the rule of the code hosts: a title in small letters, with hyphens
    for spaces and without other signs; a second one of the same words gets -1.
    """
    found: dict[str, int] = {}
    slugs = set()
    for title in re.findall(r'^#{1,6} (.+?)\s*$', prose(page), re.M):
        plain = re.sub(r'\[([^]]*)\]\([^)]*\)', r'\1', title).lower()
        slug = re.sub(r'[^\w\- ]', '', plain).replace(' ', '-')
        number = found.get(slug, 0)
        found[slug] = number + 1
        slugs.add(f'{slug}-{number}' if number else slug)
    return slugs
