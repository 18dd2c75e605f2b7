"""Answers of VQAv2: how they are compared, how they are scored, which ones a model may give.

The rules are those of the public evaluation of VQAv2, with their oddities: a comma between two
digits makes every sign vanish rather than become a space, and 'none' is the number 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...errors import MissingFile, UserError
from ...fileio.result_files import read_json

_SIGNS = ';/[]"{}()=+\\_-><@`,?!'
_COMMA_IN_NUMBER = re.compile(r'\d,\d')
_LAST_PERIOD = re.compile(r'\.(?!\d)')
_MOST_PERIODS = 32  # the evaluation removes this many
_ARTICLES = ('a', 'an', 'the')
_NUMBERS = ['zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine', 'ten']
_DIGITS = {'none': '0', **{word: str(number) for number, word in enumerate(_NUMBERS)}}
#: Words that get an apostrophe back where exactly one of theirs is missing.
_CONTRACTIONS = """
    ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't
    haven't he'd he'd've he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've
    might've mustn't must've needn't not've o'clock oughtn't 'ow's'at shan't she'd've should've
    shouldn't shouldn't've somebody'd've somebody'll somebody's someone'd someone'd've someone'll
    someone's something'd something'd've something'll that's there'd there'd've there're there's
    they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're
    what's what've when's where'd where's where've who'd who'd've who'll who's who've why'll why're
    why's won't would've wouldn't wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're
    you've
"""
_WRITTEN_OUT = {
    f'{word[:place]}{word[place + 1 :]}': word
    for word in _CONTRACTIONS.split()
    for place, sign in enumerate(word)
    if sign == "'"
} | {"somebody'd": 'somebodyd'}

#: A model learns answers that are the most frequent one of at least this many questions.
MIN_COUNT = 9


def normalize_answer(answer: str) -> str:
    """Return the answer without signs and articles, in lower case, with numbers as digits."""
    answer = plain_answer(answer)
    in_number = _COMMA_IN_NUMBER.search(answer) is not None
    text = answer
    for sign in _SIGNS:
        beside_space = f'{sign} ' in answer or f' {sign}' in answer
        text = text.replace(sign, '' if beside_space or in_number else ' ')
    text = _LAST_PERIOD.sub('', text, count=_MOST_PERIODS)
    words = [_DIGITS.get(word, word) for word in text.lower().split()]
    return ' '.join(_WRITTEN_OUT.get(word, word) for word in words if word not in _ARTICLES)


def plain_answer(answer: str) -> str:
    """Return the answer on one line, without spaces around it."""
    return answer.replace('\n', ' ').replace('\t', ' ').strip()


def answer_accuracy(answer: str, given: Sequence[str]) -> float:
    """Return the accuracy of an answer, from 0 to 1.

    Three people who gave the same answer make it right: min(count / 3, 1), averaged over all ways
    to leave one person out. Only where people disagree are answers normalised before.

    Args:
        answer: The model's.
        given: Those of the people who were asked, ten in VQAv2.
    """
    answer, given = plain_answer(answer), [plain_answer(one) for one in given]
    if len(set(given)) > 1:
        answer, given = normalize_answer(answer), [normalize_answer(one) for one in given]
    same = sum(one == answer for one in given)
    without_one = same * min((same - 1) / 3, 1.0) + (len(given) - same) * min(same / 3, 1.0)
    return without_one / len(given)


def soft_score(count: int) -> float:
    """Return the training target of an answer that so many of ten people gave, as ViLT's."""
    return (0.0, 0.3, 0.6, 0.9)[count] if count < 4 else 1.0


def soft_targets(given: Iterable[str], number_of: dict[str, int]) -> dict[int, float]:
    """Return the targets of one question: number of an answer -> its score.

    Answers are compared as people wrote them with the vocabulary, as in ViLT's code.

    Args:
        given: The answers of people.
        number_of: The vocabulary; other answers are left out.
    """
    counts = Counter(given)
    return {number_of[one]: soft_score(n) for one, n in counts.items() if one in number_of}


def build_vocabulary(frequent: Iterable[str], min_count: int = MIN_COUNT) -> list[str]:
    """Return the answers that a model may give, the most frequent ones first.

    One of them is empty where enough questions have an article alone as their answer, "A" for one.

    Args:
        frequent: The most frequent answer of every question (``multiple_choice_answer``).
        min_count: Leave out what is the answer of fewer questions.
    """
    counts = Counter(normalize_answer(answer) for answer in frequent)
    kept = [(-count, answer) for answer, count in counts.items() if count >= min_count]
    return [answer for _, answer in sorted(kept)]


def read_vocabulary(file: str | Path) -> list[str]:
    """Return the answers in a file: a JSON list, a JSON table answer -> number, or text lines."""
    file = Path(file)
    if not file.is_file():
        raise MissingFile(f'answer file {file} does not exist.')
    kind = 'JSON' if file.suffix == '.json' else 'text in UTF-8'
    try:
        if kind != 'JSON':
            lines = file.read_text(encoding='utf-8').splitlines()
            return [line.strip() for line in lines if line.strip()]
        content = read_json(file)
    except ValueError as error:
        raise UserError(f'answer file {file} is not {kind}: {error}.') from error
    if isinstance(content, dict) and sorted(map(str, content.values())) == sorted(
        map(str, range(len(content)))
    ):
        return sorted(content, key=lambda answer: int(content[answer]))
    if isinstance(content, list) and all(isinstance(answer, str) for answer in content):
        return content
    raise UserError(
        f'answer file {file}: give a list of answers, or a table of answers with the numbers 0 to '
        'N - 1.'
    )
