"""Damage to text files: bytes, lines, keys, values and YAML's own machinery, one to three mistakes at a time."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

ODD_TEXTS = [
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\t", b"\r", b"\x0b", b"\x85", b"\xe2\x80\xa8",
    b"\xe2\x80\xae", b"\xe2\x80\x8b", b"\xf0\x9f\xa4\xa6", b"\x1b[2J", b"\n::error::x\n", b"\n---\n", b"\n...\n",
    b"%YAML 9.9\n", b"{{", b"}}",
    b"{{ input.message }}", b"${HOME}", b"`", b"@", b"<<: *x", b"&a [*a, *a]", b"*nothing",
    b"!!python/object/apply:os.system [id]", b"!!binary aGk=", b"? ", b"- ", b": ", b"#", b"|", b">", b"'", b'"',
    b"\\ud800", b"\\", b"[" * 300, b"{a: " * 150, b"x" * 100_000,
]  # fmt: skip
ODD_VALUES = [
    b"null", b"~", b"true", b"no", b"0", b"-1", b"1e999", b".nan", b"-.inf", b"9" * 5000, b"0x" + b"f" * 4000, b"1_000",
    b"0o17", b"2026-02-30", b"12:30:45", b"''", b'""', b"[]", b"{}", b"[[[]]]", b"{a: {a: {a: }}}", b"[1, two, null]",
    b"{$regex: '('}", b"{$one_of: []}", b"{$not: {$not: 1}}", b"{$nothing: 1}", b"{$literal: {$call: x}}", b"'$call'",
    b"{$call: 'os:system'}", b"{$sequence: []}", b"{$error: 3}", b"../../../etc/passwd", b"/dev/zero", b"'{{ 1 }}'",
    b"'(a+)+$'", b"\xc5\xbc\xc3\xb3\xc5\x82w", b"&a 1", b"*a",
]  # fmt: skip
_VALUE = re.compile(rb"(?m)(?<=: )[^\n#{\[]+$|(?<=: )[^\n,\]}]+(?=[,\]}])")
_KEY = re.compile(rb"(?m)^\s*(?:- )?[\w$\"']+(?=:)|\"\w+\"(?=:)")

Mutation = Callable[[bytes, random.Random], bytes]


def flip_byte(text: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(text))
    return text[:at] + bytes([text[at] ^ (1 << rng.randrange(8))]) + text[at + 1 :]


def cut_end(text: bytes, rng: random.Random) -> bytes:
    return text[: rng.randrange(len(text))]


def cut_out(text: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(text))
    return text[:at] + text[at + rng.randint(1, 30) :]


def insert(text: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(ODD_TEXTS) + text[at:]


def repeat_line(text: bytes, rng: random.Random) -> bytes:
    lines = text.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    return b"".join([*lines[: at + 1], *lines[at : at + rng.randint(1, 4)], *lines[at + 1 :]])


def swap_lines(text: bytes, rng: random.Random) -> bytes:
    lines = text.splitlines(keepends=True)
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def drop_line(text: bytes, rng: random.Random) -> bytes:
    lines = text.splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    return b"".join(lines)


def indent_line(text: bytes, rng: random.Random) -> bytes:
    lines = text.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    lines[at] = b" " * rng.randint(1, 5) + lines[at] if rng.random() < 0.5 else lines[at].lstrip()
    return b"".join(lines)


def replace_found(pattern: re.Pattern[bytes], new: Callable[[bytes, random.Random], bytes]) -> Mutation:
    def mutate(text: bytes, rng: random.Random) -> bytes:
        places = list(pattern.finditer(text))
        if not places:
            return flip_byte(text, rng)
        place = rng.choice(places)
        return text[: place.start()] + new(place[0], rng) + text[place.end() :]

    return mutate


def misspell(key: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(key))
    return key[:at] + rng.choice([b"", b"x", key[at : at + 1] * 2, key[at : at + 1].swapcase()]) + key[at + 1 :]


MUTATIONS: list[Mutation] = [
    flip_byte,
    cut_end,
    cut_out,
    insert,
    repeat_line,
    swap_lines,
    drop_line,
    indent_line,
    replace_found(_VALUE, lambda _, rng: rng.choice(ODD_VALUES)),
    replace_found(_VALUE, lambda _, rng: rng.choice(ODD_VALUES)),
    replace_found(_KEY, misspell),
]


def damage(text: bytes, rng: random.Random) -> bytes:
    """Return `text` with one to three mistakes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice(MUTATIONS)(text, rng) or b"\n"
    return text
