"""Secrets out of a recording: each is replaced by one stand-in of the same form, everywhere in the cassette.

On replay the agent gets the stand-in and sends it back, so that its requests match as those of the recording did. What
a model said is touched only where it holds a secret that is known for certain: a value of the environment, a credential
of a request, a token of a known shape. What merely stands at a key such as `password` is a word of the model there.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from evalkit.errors import KeyPath
from evalkit.jsonvalue import JsonDict, JsonObject, copy_json, map_strings, walk_leaves
from evalkit.models.cassettes.http.messages import unpack_content
from evalkit.models.cassettes.http.model_exchanges import is_model_exchange
from evalkit.models.cassettes.stand_ins import PLAIN_WORD, StandIns, mask_stand_ins
from evalkit.text.redact import REDACTED, Redactor, build_redactor

_SECRET_PARAMETERS = frozenset(
    {"access_token", "api-key", "api_key", "apikey", "auth", "client_secret", "code", "key", "password", "sig"}
    | {"signature", "subscription-key", "token", "x-amz-credential", "x-amz-security-token", "x-amz-signature"}
    | {"x-goog-signature"}
)
_SECRET_HEADER = re.compile(r"token|secret|password|credential|authorization|api-?key|cookie|signature")
_NO_SECRET = "token"  # noqa: S105 - a key of many services: of a piece of a text, of a page
_SHORTEST = 16  # a shorter value at this key is none
_SHORTEST_COOKIE = 6  # a shorter one is a choice of the user's, as of a language
_WORDS = frozenset({"arguments", "args", "logprobs"})  # keys of a model's own words, in a request that repeats them


def hide_secrets(
    exchanges: Sequence[JsonObject], secrets: Iterable[str], credentials: Iterable[str]
) -> tuple[list[JsonDict], list[str]]:
    """Copy `exchanges` without secrets, of which `secrets` and `credentials` are known. Return with it where a model
    said one, as paths of URLs: a check of such a value will fail on replay."""
    hider = _ExchangeHider(tuple(dict.fromkeys((*secrets, *credentials))))
    hidden = [hider.hide(exchange) for exchange in exchanges]
    names = hider.stand_ins.names
    return _replace_copies(hidden, {name: names[name] for name in hider.stand_ins.copied}), hider.touched


class _ExchangeHider:
    """Hides the secrets of one exchange after the other. `touched` is where a model said one."""

    def __init__(self, certain: tuple[str, ...]) -> None:
        self.stand_ins = StandIns()
        self.touched: list[str] = []
        self._certain = certain
        self._known = Redactor(certain, hide=self.stand_ins.hide_everywhere, is_keyed=False)
        self._in_requests = Redactor(certain, hide=self.stand_ins.hide)
        self._seen = ""  # what the agent has sent, and models have said

    def hide(self, exchange: JsonObject) -> JsonDict:
        """Copy an exchange without its secrets."""
        is_model = is_model_exchange(exchange)
        request, response = dict(exchange["request"]), dict(exchange.get("response") or {})
        self._seen += json.dumps(request, ensure_ascii=False, default=str)
        in_response = self._known if is_model else Redactor(self._certain, hide=self._hide_from_response)
        request["url"] = self._known.redact_data(hide_parameters(str(request["url"]), self.stand_ins.hide_everywhere))
        place = urlsplit(request["url"]).path
        for form in ("json", "form", "text"):
            if form in request:
                request[form] = _hide_in_data(request[form], self._in_requests, self._known if is_model else None)
            if form in response:
                was = response[form]
                response[form] = _hide_in_body(was, in_response, self.stand_ins if is_model else None)
                self.touched += [place] if is_model and response[form] != was else []
        for part in (request, response):
            if "base64" in part and _holds_secret(part, self._known):
                del part["base64"]
                part["text"] = REDACTED
                self.touched.append(place)
        if is_model:
            said = exchange.get("response") or {}
            self._seen += json.dumps({form: said.get(form) for form in ("json", "text")}, default=str)
        if "headers" in response:
            response["headers"] = _hide_in_headers(response["headers"], self._in_requests, self.stand_ins)
        return {**exchange, "request": request, **({"response": response} if response else {})}

    def _hide_from_response(self, secret: str) -> str:
        """Hide a secret that a service gave; what the agent knew before is no news of it."""
        return self.stand_ins.hide(secret) if secret in self._seen else self.stand_ins.hide_everywhere(secret)


def mask_request(request: JsonObject, secrets: tuple[str, ...]) -> JsonDict:
    """Copy a request with each secret and each stand-in as the same word, to be compared with another."""
    redactor = build_redactor(secrets)
    masked = dict(request)
    masked["url"] = redactor.redact_data(hide_parameters(str(request.get("url", "")), lambda secret: REDACTED))
    for form in ("json", "form", "text"):
        if form in masked:
            masked[form] = _hide_in_data(masked[form], redactor, None)
    copied: JsonDict = mask_stand_ins(masked)
    return copied


def hide_parameters(url: str, hide: Callable[[str], str]) -> str:
    """Hide the values of parameters of `url` that are secret."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    if not {name.lower() for name, _ in pairs} & _SECRET_PARAMETERS:
        return url
    query = "&".join(
        f"{quote(name)}={hide(value) if value and name.lower() in _SECRET_PARAMETERS else quote(value)}"
        for name, value in pairs
    )
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))


def _holds_secret(part: JsonObject, redactor: Redactor) -> bool:
    """Return whether a body that is no text holds a secret, in which no stand-in could take its place."""
    content = base64.b64decode(part["base64"])
    encoding = (part.get("headers") or {}).get("content-encoding")
    unpacked = unpack_content(content, encoding) if encoding else None
    text = (unpacked or content).decode("latin-1")
    return redactor.redact_data(text) != text


def _hide_in_data(value: Any, redactor: Redactor, of_words: Redactor | None) -> Any:
    """Copy JSON data without secrets; in a model's own words `of_words`, if given, hides what it knows."""
    if isinstance(value, Mapping):
        return {
            key: of_words.redact_data(item)
            if of_words is not None and (key in _WORDS or (key == "input" and "name" in value))
            else item
            if key == _NO_SECRET and isinstance(item, str) and len(item) < _SHORTEST
            else _hide_in_data(item, redactor, of_words)
            if isinstance(item, (Mapping, list))
            else redactor.redact_data({key: item})[key]
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_hide_in_data(item, redactor, of_words) for item in value]
    return redactor.redact_data(value)


def _hide_in_body(value: Any, redactor: Redactor, stand_ins: StandIns | None) -> Any:
    """Hide secrets in the body of a response. `stand_ins` are given for a model's, whose words come in pieces."""
    if stand_ins is not None:
        return _hide_in_pieces(redactor.redact_data(value), redactor, stand_ins)
    return _hide_in_stream(value, redactor) if isinstance(value, str) else _hide_in_data(value, redactor, None)


def _hide_in_stream(text: str, redactor: Redactor) -> str:
    """Hide secrets in a text; in one of events, in the data of each."""
    return _edit_events(text, redactor.redact_data, lambda data: _hide_in_data(data, redactor, None))


def _edit_events(text: str, edit_line: Callable[[str], str], edit_data: Callable[[Any], Any]) -> str:
    """Edit the data of each event of a stream, and other lines as texts. Events that stay the same stay as written."""
    lines = []
    for line in text.splitlines(keepends=True) if "data:" in text else [text]:
        data, head, end = _parse_event(line)
        edited = None if data is None else edit_data(copy_json(data))
        if data is None:
            line = edit_line(line)
        elif edited != data:
            separators = (", ", ": ") if '": ' in line else (",", ":")
            line = f"{head}{json.dumps(edited, ensure_ascii=line.isascii(), separators=separators)}{end}"
        lines.append(line)
    return "".join(lines)


def _parse_event(line: str) -> tuple[Any, str, str]:
    """Parse the data of an event's line; None for any other line. Return what stands before and behind it, too."""
    head, mark, rest = line.partition("data:")
    try:
        data = json.loads(rest) if mark and not head.strip() else None
    except (ValueError, RecursionError):
        data = None
    content = rest.strip()
    return (data if isinstance(data, (dict, list)) else None), line[: line.find(content)], line[len(line.rstrip()) :]


def _hide_in_pieces(value: Any, redactor: Redactor, stand_ins: StandIns) -> Any:
    """Hide secrets that a stream brings in pieces, each too short to be known: the first piece has the stand-in."""
    if not isinstance(value, str) or "data:" not in value:
        return value
    pieces: dict[KeyPath, list[str]] = {}
    for line in value.splitlines():
        for path, leaf in walk_leaves(_parse_event(line)[0]):
            if isinstance(leaf, str):
                pieces.setdefault(path, []).append(leaf)
    hidden = {path: iter(_join_and_hide(texts, redactor, stand_ins)) for path, texts in pieces.items()}

    def edit(data: Any) -> Any:
        for path, leaf in list(walk_leaves(data)):
            if isinstance(leaf, str):
                holder = data
                for key in path[:-1]:
                    holder = holder[key]
                holder[path[-1]] = next(hidden[path])
        return data

    return _edit_events(value, lambda line: line, edit)


def _join_and_hide(texts: list[str], redactor: Redactor, stand_ins: StandIns) -> list[str]:
    joined = "".join(texts)
    if len(set(texts)) == 1 or redactor.redact_data(joined) == joined:  # an id stands in each event
        return texts
    for secret in [secret for secret in stand_ins.names if secret in joined]:
        while (start := joined.find(secret)) >= 0:
            end, position, edited = start + len(secret), 0, []
            for text in texts:
                first, last = max(start - position, 0), max(end - position, 0)
                has_start = position <= start < position + len(text)
                edited.append(text[:first] + (stand_ins.names[secret] if has_start else "") + text[last:])
                position += len(text)
            texts, joined = edited, "".join(edited)
    return texts


def _hide_in_headers(headers: JsonObject, redactor: Redactor, stand_ins: StandIns) -> JsonDict:
    hidden: JsonDict = {}
    for name, value in headers.items():
        values = value if isinstance(value, list) else [value]
        if name == "set-cookie":
            values = [_hide_in_cookie(item, stand_ins.hide_everywhere) for item in values]
        elif _SECRET_HEADER.search(name) and name != "www-authenticate":
            values = [stand_ins.hide_everywhere(item) for item in values]
        else:
            values = [
                redactor.redact_data(hide_parameters(item, stand_ins.hide_everywhere) if "?" in item else item)
                for item in values
            ]
        hidden[name] = values if isinstance(value, list) else values[0]
    return hidden


def _hide_in_cookie(cookie: str, hide: Callable[[str], str]) -> str:
    """Hide a cookie's value, and leave out a date in the future, which would be over on replay."""
    pair, *attributes = cookie.split(";")
    name, mark, value = pair.partition("=")
    kept = [item for item in attributes if not item.strip().lower().startswith("expires=") or not value.strip()]
    is_secret = len(value) >= _SHORTEST_COOKIE and not PLAIN_WORD.fullmatch(value)
    return ";".join((f"{name}{mark}{hide(value)}" if is_secret else pair, *kept))


def _replace_copies(exchanges: list[JsonDict], names: Mapping[str, str]) -> list[JsonDict]:
    """Replace secrets wherever they stand, also as JSON in a text and in a URL write them."""
    if not names:
        return exchanges
    forms: dict[str, str] = {}
    for secret in sorted(names, key=len, reverse=True):
        for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe="")):
            forms.setdefault(form, names[secret])

    def replace(text: str) -> str:
        for form, name in forms.items():
            if form in text:
                text = text.replace(form, name)
        return text

    copied: list[JsonDict] = map_strings(exchanges, replace)
    return copied
