"""Secrets out of text, for every sink: traces, run files, JUnit, cassettes.

Three sources: shapes of well-known tokens, keys that name a secret (``"api_key": "..."``), and values that the shell
knows to be secret (its environment). Text without any marker of these is returned as it is, at the cost of one search,
because this runs once per case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import TypeVar, cast

from evalkit.jsonvalue import JsonDict

REDACTED = "[redacted]"
T = TypeVar("T")

# What a token begins with, and what follows, as a pattern. No other letter stands before it.
_TOKENS: tuple[tuple[str, str], ...] = (
    ("sk-", "[A-Za-z0-9_-]{16,}"),
    *((f"{kind}k_{mode}_", "[A-Za-z0-9]{10,}") for mode in ("live", "test") for kind in "sr"),
    ("AIza", "[A-Za-z0-9_-]{30,}"),
    ("ya29.", "[A-Za-z0-9_-]{20,}"),
    ("GOCSPX-", "[A-Za-z0-9_-]{20,}"),
    ("gsk_", "[A-Za-z0-9]{20,}"),
    ("xai-", "[A-Za-z0-9]{20,}"),
    ("pplx-", "[A-Za-z0-9]{20,}"),
    ("tvly-", "[A-Za-z0-9-]{20,}"),
    ("lsv2_", "[A-Za-z0-9_]{20,}"),
    ("hf_", "[A-Za-z0-9]{20,}"),
    *((f"gh{kind}_", "[A-Za-z0-9]{20,}") for kind in "pousr"),
    ("github_pat_", "[A-Za-z0-9_]{20,}"),
    ("glpat-", "[A-Za-z0-9_-]{16,}"),
    ("npm_", "[A-Za-z0-9]{30,}"),
    ("pypi-", "[A-Za-z0-9_-]{30,}"),
    ("SG.", r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    ("xox", "[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("xapp-", "[A-Za-z0-9-]{10,}"),
    ("shpat_", "[a-fA-F0-9]{32}"),
    ("dop_v1_", "[a-f0-9]{40,}"),
    ("dapi", r"[a-f0-9]{32}\b"),
    ("dckr_pat_", "[A-Za-z0-9_-]{20,}"),
    ("hvs.", "[A-Za-z0-9_-]{20,}"),
    ("ATATT3", "[A-Za-z0-9_=-]{30,}"),
    ("lin_api_", "[A-Za-z0-9]{20,}"),
    ("r8_", "[A-Za-z0-9]{30,}"),
    ("key-", r"[a-f0-9]{32}\b"),
    ("SK", r"[a-f0-9]{32}\b"),
    ("whsec_", "[A-Za-z0-9+/]{20,}"),
    ("sq0", "(?:csp|atp|idp)-[A-Za-z0-9_-]{20,}"),
    ("ntn_", "[A-Za-z0-9]{30,}"),
    ("dp.", r"(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._-]{30,}"),
    ("pul-", r"[a-f0-9]{40}\b"),
    ("NRAK-", "[A-Z0-9]{20,}"),
    ("glsa_", "[A-Za-z0-9_]{30,}"),
    ("pscale_", "(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{20,}"),
    ("AGE-SECRET-KEY-1", "[A-Z0-9]{40,}"),
    ("AKIA", r"[A-Z0-9]{16}\b"),
    ("ASIA", r"[A-Z0-9]{16}\b"),
)

_NO_PLAIN_WORD = r"(?=[^\s\"'&,;\\]{0,200}(?:\d|(?-i:[a-z][A-Z])))"
_FLAG = r"(?:[a-z]+-){0,3}(?:password|passwd|passphrase|token|secret|api-?key|access-key|secret-key)"
_NO_WORD = r"(?![A-Za-z][a-z]*(?![\w~+/=-]|\.\w))"  # "a basic understanding" and "bearer certificates" are prose


def _build_token_pattern(begin: str, rest: str) -> str:
    """Build the pattern of a token that is whole, or cut off at an ellipsis. An escaped line break may precede it."""
    mark = re.escape(begin)
    return rf"{mark}(?:(?<!\w{mark})|(?<=\\[nrt]{mark}))(?:{rest}|[\w.=-]{{4,200}}(?=…|\\u2026|\.\.\.))"


# A marker that the text must contain, and what is then looked for. Group 1, where there is one, is kept.
# Compiled when its marker is first met: most runs meet none. A pattern begins with plain characters, because the search
# for those is fast; what stood before them is looked at afterwards.
_SHAPES: tuple[tuple[str, str], ...] = (
    *((begin, _build_token_pattern(begin, rest)) for begin, rest in _TOKENS),
    # Three runs of characters, the first two with this beginning. Looked for at the beginning of a run, and only where
    # two more follow: in text that repeats `-eyJ` the time is then linear.
    (
        "eyJ",
        r"(?<![\w-])(?=[\w-]++\.eyJ[\w-]{8,}+\.[\w-])((?:[\w-]*?-)??)eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}"
        r"\.[A-Za-z0-9_-]+",
    ),
    ("earer ", rf"([Bb]earer )(?<!\w[Bb]earer ){_NO_WORD}[A-Za-z0-9._~+/-]{{8,}}=*"),
    ("asic ", rf"([Bb]asic )(?<!\w[Bb]asic ){_NO_WORD}[A-Za-z0-9+/]{{12,}}=*"),
    (
        "PRIVATE KEY",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?!-----BEGIN |\[redacted\])[\s\S])*?"
        r"(?:-----END [A-Z ]*PRIVATE KEY-----|(?=…)|\Z)",
    ),
    ("://", r"(://[^/\s:@\"'\\]{0,200}:)[^/\s@\"'\\]{1,200}(?=@)"),
    ("://", r"(://)[0-9a-f]{32}(?=@)"),
    ("/api/webhooks/", r"(/api/webhooks/\d+/)[A-Za-z0-9_-]{20,}"),
    ("--", rf"(--{_FLAG}(?:=|[ ]))(?<![\w-]--){_NO_PLAIN_WORD}[^\s\"'&,;\\\[]{{6,}}"),
    (" -u ", r"( -u [^\s:'\"]{1,100}:)[^\s'\"]{4,}"),
    ("login ", r"(login [^\s]{1,100} password )[^\s]{4,}"),
    ("ookie: ", r"([Cc]ookie: [^=;\s]{1,60}=)[^;\s\"'\\\[]{16,}"),
    (":AA", r"\b\d{6,12}:AA[A-Za-z0-9_-]{33}\b"),
    ("hooks.slack.com/services/", r"(hooks\.slack\.com/services/)[A-Za-z0-9/]{20,}"),
    ("AccountKey=", r"(AccountKey=)[A-Za-z0-9+/]{20,}=*"),
    ("sig=", r"(?<=[?&;])(sig=)[A-Za-z0-9%+/]{20,}=*"),
)

SECRET_KEYS = (
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "client_secret",
    "api_key",
    "apikey",
    "access_key",
    "secret_key",
    "private_key",
    "access_token",
    "refresh_token",
    "auth_token",
    "id_token",
    "session_token",
    "token",
    "authorization",
    "x-api-key",
    "x-goog-api-key",
    "private_token",
    "shared_access_key",
    "connection_string",
)
# Keys that end so name a secret too, whatever stands before it: not every token is one (`next_page_token`).
_KEY_ENDINGS = tuple(
    key.replace("_", "")
    for key in SECRET_KEYS
    if key not in ("token", "id_token", "pwd", "authorization") and "-" not in key
)
_SECRET_NAME = re.compile(
    r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|CREDENTIALS|SECRETS|TOKENS)$"
    r"|(^|_)(PAT|PASS|PWD|DSN|PASSCODE|CONNECTION_STRING|CONN_STR|CONNSTR|WEBHOOK|WEBHOOK_URL|JWT|SAS|COOKIE)$"
)
_PATH = re.compile(
    r"~(?:[a-z_][a-z0-9_-]{0,15})?(/|$)|\.{1,2}/|/(etc|home|root|usr|var|tmp|opt|run|mnt|srv|data|app|apps|work|Users|private|secrets|workspace"
    r"|proc|dev|builds|github)(/|$)|[A-Za-z]:\\"
)
TOKEN_BEGINNINGS = tuple(begin for begin, _ in _TOKENS)
_SHORTEST_SECRET = 8  # shorter values of secret variables ("1", "true", "test") occur in harmless text
_SHORTEST_COPY = 6  # a shorter value of a secret key is replaced at its key, not wherever it occurs
_SHORTEST_CUT = 6  # characters of a secret before an ellipsis


def find_secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Find the values of variables whose names end like those of secrets. Paths and very short values are left out."""
    values = set()
    for name, value in environment.items():
        value = value.strip()
        is_secret = _SECRET_NAME.search(name.upper()) and len(value) >= _SHORTEST_SECRET
        if is_secret and not _PATH.match(value):
            values.add(value)
    return tuple(sorted(values, key=len, reverse=True))


_LAST_WORDS = (
    *("password", "passwd", "pwd", "passphrase", "secret", "key", "token", "authorization", "connection_string"),
)  # of all SECRET_KEYS
_CLOSER = r"""(?:["'\\=:]|\s[=:])"""  # ends a key

# The quote around the key, the one that opens the value, and what may follow it: JSON, Python's two ways to print a
# string, and JSON inside a string of JSON. As patterns.
_QUOTED = (
    ('"', '"', r"""(?:\\.|[^"\\])*"""),
    ("'", "'", r"""(?:\\.|[^'\\])*"""),
    ("'", '"', r"""(?:\\.|[^"\\])*"""),
    (r'\\"', r'\\"', r"""(?:\\\\(?:\\.|[^\\])|\\[^"\\]|[^"\\])*"""),
)


_PREFIX = r"(?:[\w-]{0,40}[_-])?"


class Redactor:
    """Replaces secrets by ``[redacted]``, or by what `hide` returns for one. `values`: known secrets; `keys`: more key
    names, beside SECRET_KEYS; `is_keyed`: what stands at such a key is a secret.

    What it returns it returns unchanged when it is called again: it goes on until nothing more is found. So `hide`
    returns what it returned itself as it is.
    """

    def __init__(
        self,
        values: Iterable[str] = (),
        keys: Iterable[str] = (),
        *,
        hide: Callable[[str], str] | None = None,
        is_keyed: bool = True,
    ) -> None:
        self._hide = hide or _hide_all
        self._is_keyed = is_keyed
        longest_first = sorted({value for value in values if value}, key=len, reverse=True)
        # In JSON text a value stands in its escaped form, so both forms are looked for.
        forms = dict.fromkeys(form for value in longest_first for form in (value, json.dumps(value)[1:-1]))
        self._values = tuple(forms)
        folded = {key.casefold().replace("-", "_") for key in (*SECRET_KEYS, *keys)}
        self._key_names = frozenset(name.replace("_", "") for name in folded)
        names = {name: re.escape(name).replace("_", "[_-]?") for name in sorted(folded, key=len, reverse=True)}
        endings = "|".join(pattern for name, pattern in names.items() if name.replace("_", "") in _KEY_ENDINGS)
        key = f"{_PREFIX}(?:{endings})|{'|'.join(names.values())}"
        quoted = "|".join(
            rf"(?P<head{n}>{key_quote}(?:{key}){key_quote}\s*:\s*{quote})(?P<value{n}>{body})(?={quote})"
            for n, (key_quote, quote, body) in enumerate(_QUOTED)
        )
        start = rf"(?<![\w-])(?:{key})"
        in_quotes = rf"""(?P<head8>{start}\s?[=:]\s?(?P<quote>["']))(?P<value8>[^"'\\\n]{{4,}})(?=(?P=quote))"""
        assigned = rf"""(?P<head>{start}=)(?P<value>[^\s"'&,;\\]{{4,}})"""
        stated = rf"""(?P<head9>{start}(?::[ ]|[ ]=[ ]))(?P<value9>{_NO_PLAIN_WORD}[^\s"'&,;\\\[]{{6,}})"""
        self._keyed = f"{quoted}|{in_quotes}|{assigned}|{stated}"
        words = (re.split("[_-]", _fold(key.casefold())) for key in (*_LAST_WORDS, *keys))
        last_words = "|".join("[_ -]*".join(map(re.escape, parts)) for parts in words)
        markers = dict.fromkeys(re.escape(marker) for marker, _ in _SHAPES)
        self._has_marker = _compile_search("|".join((*markers, f"(?i:(?:{last_words}){_CLOSER})")))

    def __call__(self, text: str) -> str:
        """Redact `text`, which may be JSON; return it unchanged if nothing in it is secret."""
        while self.may_find_secrets(text):
            copies: set[str] = set()
            clean = _redact_copies(self._redact_once(text, copies), copies, self._hide)
            if clean == text:
                break
            text = clean
        return text

    def may_find_secrets(self, text: str) -> bool:
        """Return False if `text`, or the data that it is the JSON of, holds no secret: a quick search for markers."""
        is_cut = bool(self._values) and ("…" in text or "..." in text or "\\u2026" in text)
        for value in self._values:
            if value in text or (is_cut and (value[:_SHORTEST_CUT] in text or value[-_SHORTEST_CUT:] in text)):
                return True
        if text.isascii():
            return self._has_marker(text)
        text = text.encode("utf-8", "replace").decode()
        return self._has_marker(text) or self._has_marker(_fold(text))

    def redact_data(self, data: T, copies: set[str] | None = None) -> T:
        """Copy JSON `data` with the secrets in its strings replaced, and each string at a key that names a secret.

        Keys, numbers and the structure stay. Values of such keys that are worth a search elsewhere go to `copies`.
        """
        result: object = data
        if isinstance(data, str):
            result = self._redact_leaf(data, copies)
        elif isinstance(data, Mapping):
            result = {
                key: self._redact_keyed(value, copies)
                if value and isinstance(value, str) and self.is_secret_key(key)
                else self.redact_data(value, copies)
                for key, value in data.items()
            }
        elif isinstance(data, (list, tuple)):
            result = [self.redact_data(value, copies) for value in data]
        return cast("T", result)

    def redact_all(self, data: T) -> T:
        """Copy JSON `data` as `redact_data` does, and replace values of secret keys wherever a string quotes them."""
        while True:
            copies: set[str] = set()
            clean = redact_copies(self.redact_data(data, copies), copies, self._hide)
            if clean == data:
                return data
            data = clean

    def is_secret_key(self, key: object) -> bool:
        """Return whether the values of `key` are secrets: ``apiKey``, ``api-key``, ``API_KEY``."""
        if not self._is_keyed:
            return False
        name = _fold(key).replace("-", "").replace("_", "").replace(" ", "") if isinstance(key, str) else ""
        return name in self._key_names or name.endswith(_KEY_ENDINGS)

    def _redact_keyed(self, value: str, copies: set[str] | None) -> str:
        hidden = self._hide(value)
        if copies is not None and len(value) >= _SHORTEST_COPY and value not in (REDACTED, hidden):
            copies.add(value)
        return hidden

    def _redact_leaf(self, text: str, copies: set[str] | None) -> str:
        """Redact a string of data. One that is JSON itself, as arguments of calls are, stays JSON."""
        if not self.may_find_secrets(text):
            return text
        inner = _parse_container(text)
        if inner is None:
            return self(text) if copies is None else self._redact_once(text, copies)
        clean = self.redact_all(inner) if copies is None else self.redact_data(inner, copies)
        return text if clean == inner else _write_like(text, clean)

    def _redact_once(self, text: str, copies: set[str]) -> str:
        for value in self._values:
            text = _redact_cut(_replace(text, value, self._hide), value)
        for marker, pattern in _SHAPES:
            if marker in text:
                text = re.sub(pattern, self._hide_behind_head, text)  # re keeps what it compiled
        if not self._is_keyed:
            return text

        def hide(match: re.Match[str]) -> str:
            group = match.lastgroup or ""
            value = match[group]
            if value in ("", REDACTED) or (hidden := self._hide(value)) == value:
                return match[0]
            if len(value) >= _SHORTEST_COPY:
                copies.add(value)
            return match[group.replace("value", "head")] + hidden

        return re.sub(self._keyed, hide, text, flags=re.IGNORECASE)

    def _hide_behind_head(self, match: re.Match[str]) -> str:
        head = match[1] if match.re.groups else ""
        return head + self._hide(match[0][len(head) :])


@lru_cache(maxsize=8)
def _compile_search(pattern: str) -> Callable[[str], bool]:
    """Compile a search by Rust's engine: for a hundred words in 5 kB it takes a hundredth of the time that re takes."""
    from jsonschema_rs import Draft202012Validator

    return Draft202012Validator({"pattern": pattern}).is_valid


def _fold(text: str) -> str:
    """Fold letters that are the same for IGNORECASE."""
    return text.lower() if text.isascii() else text.replace("\u0130", "i").replace("\u0131", "i").casefold()


def _hide_all(secret: str) -> str:
    return REDACTED


def redact_copies(data: T, copies: Collection[str], hide: Callable[[str], str] = _hide_all) -> T:
    """Replace `copies`, values of secret keys, in every string of JSON `data`: messages quote them far from their key.

    A plain word stays where it is a whole string, because it may be a word of the record itself.
    """
    result: object = data
    if isinstance(data, str) and (inner := _parse_container(data) if any(map(data.__contains__, copies)) else None):
        clean = redact_copies(inner, copies, hide)
        result = data if clean == inner else _write_like(data, clean)
    elif isinstance(data, str):
        result = _redact_copies(
            data, [copy for copy in copies if copy != data or not _PLAIN_WORD.fullmatch(copy)], hide
        )
    elif isinstance(data, Mapping):
        result = {key: redact_copies(value, copies, hide) for key, value in data.items()}
    elif isinstance(data, (list, tuple)):
        result = [redact_copies(value, copies, hide) for value in data]
    return cast("T", result)


_PLAIN_WORD = re.compile("[a-z_]+")


def _redact_copies(text: str, copies: Iterable[str], hide: Callable[[str], str]) -> str:
    for copy in sorted(copies, key=len, reverse=True):
        if not _PLAIN_WORD.fullmatch(copy):
            text = _redact_cut(_replace(text, copy, hide), copy)
        elif copy in text:  # in text that is JSON it may be a key
            pattern = rf"""(?<!(?<!\\)"){copy}|{copy}(?!")"""
            text = REDACTED.join(re.sub(pattern, hide(copy), part) for part in text.split(REDACTED))
    return text


def _replace(text: str, secret: str, hide: Callable[[str], str]) -> str:
    """Replace `secret`, but not within the word that stands for what is redacted already."""
    if secret not in text:
        return text
    return REDACTED.join(part.replace(secret, hide(secret)) for part in text.split(REDACTED))


def _redact_cut(text: str, secret: str) -> str:
    """Redact the beginning of a secret that was cut off at an ellipsis, and the end of one behind an ellipsis."""
    for mark in ("…", "..."):
        if mark in text and (secret[:_SHORTEST_CUT] in text or secret[-_SHORTEST_CUT:] in text):
            parts = text.split(mark)
            for index, part in enumerate(parts):
                tail = part.rpartition(REDACTED)[2]
                size = _measure_overlap(tail, secret) if index + 1 < len(parts) else 0
                part = part[:-size] + REDACTED if size else part
                size = _measure_overlap(part.partition(REDACTED)[0][::-1], secret[::-1]) if index else 0
                parts[index] = REDACTED + part[size:] if size else part
            text = mark.join(parts)
    return text


def _measure_overlap(text: str, secret: str) -> int:
    """Return the length of the longest end of `text` that `secret` begins with, 0 if it is too short to tell."""
    sizes = range(min(len(secret) - 1, len(text)), _SHORTEST_CUT - 1, -1)
    return next((size for size in sizes if text.endswith(secret[:size])), 0)


def _parse_container(text: str) -> JsonDict | list[object] | None:
    """Parse a text that is a JSON object or array; None for any other."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        data: JsonDict | list[object] = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data


def _write_like(text: str, data: object) -> str:
    separators = None if '": ' in text or ", " in text else (",", ":")
    return json.dumps(data, ensure_ascii=text.isascii(), separators=separators)


@lru_cache(maxsize=8)
def build_redactor(secrets: tuple[str, ...], *, is_keyed: bool = True) -> Redactor:
    """Build the redactor for these known secrets. It is cached, because compiling its patterns is slow."""
    return Redactor(secrets, is_keyed=is_keyed)


def redact_secrets(data: T, secrets: tuple[str, ...] = ()) -> T:
    """Copy JSON `data` with every secret replaced: in each string, and as the value of a key that names one.

    This goes string by string, so that a request does not look different because of what else stands in it.
    """
    return build_redactor(secrets).redact_data(data)
