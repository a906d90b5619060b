"""A small tokenizer: lower case, words and marks apart, long words in pieces, each piece a number by its hash."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

START, SEPARATOR = 1, 2
FIRST_WORD = 4
PIECE = 6  # letters
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text: its number, and where it stands."""

    number: int
    begin: int
    end: int


def tokens_of(text: str, words: int) -> list[Token]:
    """The pieces of a text, numbered below `words`."""
    return [piece for word in _WORD.finditer(text) for piece in _pieces(word.group(), word.start(), words)]


def _pieces(word: str, begin: int, words: int) -> list[Token]:
    found = []
    for start in range(0, len(word), PIECE):
        part = word[start : start + PIECE]
        mark = "##" if start else ""
        number = FIRST_WORD + zlib.crc32((mark + part.lower()).encode()) % (words - FIRST_WORD)
        found.append(Token(number, begin + start, begin + start + len(part)))
    return found
