"""Operator text to tokens. Newlines inside brackets are spaces; a `#` starts a comment."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import OpError, ParseError
from ..location import Loc

_TOKEN = re.compile(
    r"(?P<number>0[xX][0-9a-fA-F_]+|(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[^\W\d]\w*)"
    r"|(?P<op>->|\*\*|//|<=|>=|==|!=|\+=|\*=|-=|/=|[-+*/%<>=()\[\]:,;&|~.])"
    r"|(?P<space>[ \t\r\f]+|\#[^\n]*)"
    r"|(?P<newline>\n)"
)
_CLOSES = {")": "(", "]": "["}


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is number, name, op, newline or end; `loc` is where its first character stands."""

    kind: str
    text: str
    loc: Loc


def fail(message: str, loc: Loc, error: type[OpError] = ParseError) -> OpError:
    """The error with its location before the message and the source line and a caret below."""
    caret = loc.caret()
    return error(f"{loc}: {message}" + (f"\n{caret}" if caret else ""))


def tokenize(text: str, start: Loc) -> list[Token]:
    """The tokens of `text`, whose first line is the line `start`; ends with an `end` token."""
    lines = text.split("\n")
    tokens: list[Token] = []
    opened: list[Token] = []
    position, line, begin = 0, 0, 0
    while position < len(text):
        loc = Loc(start.file, start.line + line, position - begin, lines[line])
        match = _TOKEN.match(text, position)
        if match is None:
            raise fail(_unknown(text[position]), loc)
        kind, word = match.lastgroup or "", match.group()
        position = match.end()
        if kind == "newline":
            line, begin = line + 1, position
            if opened:
                continue
        elif kind == "space":
            continue
        token = Token("newline" if word == ";" else kind, word, loc)
        _track(opened, token)
        tokens.append(token)
    if opened:
        raise fail(f"'{opened[-1].text}' is never closed", opened[-1].loc)
    tokens.append(Token("end", "end of text", _end(start, lines)))
    return tokens


def _track(opened: list[Token], token: Token) -> None:
    """Keeps the stack of open brackets and refuses a closing one that does not fit."""
    if token.kind != "op":
        return
    if token.text in "([":
        opened.append(token)
    elif token.text in _CLOSES:
        if not opened:
            raise fail(f"'{token.text}' closes nothing", token.loc)
        if opened[-1].text != _CLOSES[token.text]:
            raise fail(
                f"'{token.text}' does not close the '{opened[-1].text}' opened at column "
                f"{(opened[-1].loc.column or 0) + 1}",
                token.loc,
            )
        opened.pop()


def _end(start: Loc, lines: list[str]) -> Loc:
    return Loc(start.file, start.line + len(lines) - 1, len(lines[-1]), lines[-1])


def _unknown(character: str) -> str:
    if character == "^":
        return "unknown character '^'; write a ** b for powers, != for exclusive or"
    if character == "!":
        return "unknown character '!'; write ~ for not, != for unequal"
    return f"unknown character {character!r}"
