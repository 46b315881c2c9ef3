"""Pseudonyms for names that keep what a plan depends on: equality, order, and how names are composed.

A name is split into words, numbers and separators (`-`, `.`, `/`). Separators stay. A word becomes another
word that has the same place in the alphabetical order of all words. A number keeps its length, and each digit
becomes its rank among the digits that follow the same beginning, like prefix-preserving anonymisation of
addresses. So ordinals from 0 upwards stay as they are, node-2 stays before node-10, and the pseudonym of
`web-7c9-x2k` still begins with that of its ReplicaSet. Two orders are kept: as plain text, and with numbers
compared as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

_PARTS = re.compile(r"[0-9]+|[-./]+|[^-./0-9]+")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(text: str) -> Iterator[str]:
    """The words of a name, without numbers and separators."""
    return (p for p in _PARTS.findall(text) if not p[0].isascii() or not (p[0].isdigit() or p[0] in "-./"))


class Pseudonyms:
    """The pseudonym of every name in `names`.

    Words that occur in `kept` stay as they are in all names. `joined`: names that consist of two other names
    and a hyphen; their pseudonym is composed of the pseudonyms of the two.
    """

    def __init__(
        self,
        names: Iterable[str],
        kept: Iterable[str] = (),
        joined: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        self._joined = dict(joined or {})
        known = {*names, *(part for parts in self._joined.values() for part in parts)}
        anchors = {w for text in kept for w in words(text)}
        self._words = _renamed({w for n in known for w in words(n)}, anchors)
        self._digits: dict[str, set[str]] = {}
        for name in known:
            for at, ch in _digits(name):
                self._digits.setdefault(name[:at], set()).add(ch)
        self._memo: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """The pseudonym of one of `names`. Raises KeyError for any other name."""
        found = self._memo.get(name)
        if found is None:
            found = self._memo[name] = self._of(name)
        return found

    def _of(self, name: str) -> str:
        if name in self._joined:
            first, second = self._joined[name]
            return f"{self(first)}-{self(second)}"
        parts, at = [], 0
        for part in _PARTS.findall(name):
            if part[0] in "-./":
                parts.append(part)
            elif part.isascii() and part.isdigit():
                parts.append("".join(self._digit(name[: at + i], d) for i, d in enumerate(part)))
            else:
                parts.append(self._words[part])
            at += len(part)
        return "".join(parts)

    def _digit(self, before: str, digit: str) -> str:
        """The rank of a digit among the digits that follow `before`. Only a leading 0 becomes a leading 0."""
        known = sorted(self._digits[before])
        rank = known.index(digit)
        if not (before and before[-1].isascii() and before[-1].isdigit()):
            rank = 0 if digit == "0" else rank + ("0" not in known)
        return str(rank)


def _digits(name: str) -> Iterator[tuple[int, str]]:
    return ((i, ch) for i, ch in enumerate(name) if ch.isascii() and ch.isdigit())


def _renamed(found: set[str], anchors: set[str]) -> dict[str, str]:
    """The pseudonym of each word, in the order of the words. Anchors stay; the others get names between
    them."""
    renamed: dict[str, str] = {}
    gap: list[str] = []
    below = ""
    for word in sorted(found | anchors):
        if word not in anchors:
            gap.append(word)
            continue
        renamed |= _between(gap, below, word)
        renamed[word] = below = word
        gap = []
    return renamed | _between(gap, below, "")


def _between(gap: list[str], below: str, above: str) -> dict[str, str]:
    """Pseudonyms in ascending order, above one word and (unless it is "") below another."""
    lead = _lead(below, above)
    width, count = 1, len(_LETTERS)
    while count < len(gap):
        width, count = width + 1, count * len(_LETTERS)
    return {word: lead + _letters(i, width) for i, word in enumerate(gap)}


def _letters(number: int, width: int) -> str:
    text = ""
    for _ in range(width):
        number, digit = divmod(number, len(_LETTERS))
        text = _LETTERS[digit] + text
    return text


def _lead(below: str, above: str) -> str:
    """A prefix such that every word with it sorts between two words, as far as letters allow."""
    same = 0
    while same < min(len(below), len(above)) and below[same] == above[same]:
        same += 1
    low = below[same] if same < len(below) else ""
    high = above[same] if same < len(above) else chr(ord("z") + 1)
    middle = [c for c in _LETTERS if low < c < high]
    if middle:
        return below[:same] + middle[len(middle) // 2]
    return below + "a"
