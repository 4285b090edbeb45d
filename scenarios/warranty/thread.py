"""A mail's text taken apart: what its sender wrote, and what is forwarded; quotes, headers and signatures go.

Quoted history does not count as the customer's word: our own mails are quoted there, with the sample serial
number that they show. Forwarded mail does count: the forwarder sent it on to be read.
"""

from __future__ import annotations

import re

_FORWARD_WORDS = (
    "begin forwarded message|forwarded message|anfang der weitergeleiteten nachricht|weitergeleitete nachricht"
    "|początek przekazywanej wiadomości|wiadomość przekazana dalej|przekazana wiadomość|message transféré"
    "|début du message (?:transféré|réexpédié)|mensaje reenviado|inicio del mensaje reenviado|messaggio inoltrato"
    "|inizio messaggio inoltrato|mensagem encaminhada|início da mensagem reencaminhada|doorgestuurd bericht"
    "|転送(?:された)?メッセージ|转发的邮件"
)
_FORWARD_MARK = re.compile(rf"^[\s>]*+-*+\s*+(?:{_FORWARD_WORDS})\s*[:：]?\s*-*\s*$", re.IGNORECASE)
_FORWARD_SUBJECT = re.compile(r"^\s*(?:(?:re|aw|odp|sv)\s*:\s*)*(?:fwd?|wg|tr|rv|pd|enc|転送)\s*[:：]", re.IGNORECASE)
_ORIGINAL_MARK = re.compile(
    r"^\s*-{2,}\s*(?:original message|ursprüngliche nachricht|oryginalna wiadomość|wiadomość oryginalna"
    r"|message d['’]origine|message original|mensaje original|messaggio originale|mensagem original"
    r"|oorspronkelijk bericht|元のメッセージ)\s*-{2,}\s*$",
    re.IGNORECASE,
)
_SENDER_KEYS = "from|von|od|de|da|van|差出人"
_SUBJECT_KEYS = "subject|betreff|temat|objet|asunto|oggetto|assunto|onderwerp|件名"
_OTHER_KEYS = (
    "sent|gesendet|wysłano|envoyé|enviado(?: el)?|inviato|verzonden|送信日時|date|datum|data|fecha|日付|日時"
    "|to|an|do|à|para|a|aan|宛先|cc|dw|kopie|kopia|reply-to|importance|priorität|attachments?|anlagen?"
)
_HEADER = re.compile(
    rf"^[\s>*]*+(?:(?P<sender>{_SENDER_KEYS})|(?P<subject>{_SUBJECT_KEYS})|(?:{_OTHER_KEYS}))\*?\s*[:：]\*?\s*(?P<value>.*)$",
    re.IGNORECASE,
)
_WROTE = (
    r"wrote|schrieb|a écrit|escribió|ha scritto|escreveu|schreef|pisze|napisał(?:a|\(a\))?|skrev|のメール|は?書きました"
)
_DATED = r"(?=.*(?:\b\d{4}\b|\d{4}年|\d[:.]\d\d))"
_ATTRIBUTION = re.compile(
    rf"^[\s>]*+{_DATED}(?:.{{6,250}}?(?:{_WROTE})[^:：]{{0,80}}|\d{{4}}年.{{4,120}}<[^<>]+>)[:：]\s*$",
    re.IGNORECASE | re.DOTALL,
)
_ATTRIBUTION_START = re.compile(
    r"^\s*(?:on|am|le|el|il|em|op|w dniu|dnia|\d|(?:mon|tue|wed|thu|fri|sat|sun|pon|wt|śr|czw|pt|sob|niedz?)\b)",
    re.IGNORECASE,
)
_DEVICE_LINE = re.compile(
    r"^\s*(?:sent from (?:my|outlook)|get outlook for|von meinem .{1,30} gesendet|gesendet (?:mit|von)|wysłan[eo] z"
    r"|envoyé de(?:puis)? mon|enviado desde mi|enviado do meu|inviato da|verzonden (?:vanaf|met)|.{1,20}から送信)",
    re.IGNORECASE,
)


def is_forward(subject: str) -> bool:
    """Whether a subject carries one of the prefixes that mail programs give to forwarded mail."""
    return _FORWARD_SUBJECT.match(subject) is not None


def split_thread(text: str, *, forwarded: bool = False) -> tuple[str, str]:
    """The sender's own words and the forwarded words, both without quotes, headers and signatures.

    `forwarded` says that the subject marks the whole mail as forwarded; a block of headers then begins forwarded
    mail, where otherwise it begins the history of a reply.
    """
    lines = text.split("\n")
    cut = next((index for index in range(len(lines)) if _starts_older_mail(lines, index)), len(lines))
    own, older = lines[:cut], lines[cut:]
    marked = any(_FORWARD_MARK.match(line) for line in older[:1])
    return _tidy(_own_words(own)), _forwarded_words(older) if forwarded or marked else ""


def _starts_older_mail(lines: list[str], index: int) -> bool:
    line = lines[index]
    if _FORWARD_MARK.match(line) or _ORIGINAL_MARK.match(line):
        return True
    return not line.startswith(">") and _header_block(lines, index) > 0


def _header_block(lines: list[str], start: int) -> int:
    """How many lines of headers begin at `start`: a sender line and at least two more, or 0."""
    first = _HEADER.match(lines[start])
    if first is None or first["sender"] is None:
        return 0
    end = start
    while end < len(lines) and _HEADER.match(lines[end]):
        end += 1
    return end - start if end - start >= 3 else 0


def _forwarded_words(lines: list[str]) -> str:
    """Every forwarded mail's subject and words; a mail that was forwarded as one quote is unquoted first."""
    inner = [line for line in lines if line.strip() and not _FORWARD_MARK.match(line)]
    if inner and all(line.startswith(">") for line in inner):
        lines = [re.sub(r"^> ?", "", line) for line in lines]
    pieces: list[str] = []
    mail: list[str] = []
    index = 0
    while index < len(lines):
        length = _header_block(lines, index)
        if length or _FORWARD_MARK.match(lines[index]) or _ORIGINAL_MARK.match(lines[index]):
            pieces.append(_tidy(_own_words(mail)))
            mail = _subjects(lines[index : index + length])
        else:
            mail.append(lines[index])
        index += max(length, 1)
    return _tidy([*pieces, *_own_words(mail)])


def _subjects(headers: list[str]) -> list[str]:
    found = (_HEADER.match(line) for line in headers)
    return [match["value"] for match in found if match and match["subject"]]


def _own_words(lines: list[str]) -> list[str]:
    kept: list[str] = []
    index = 0
    while index < len(lines):
        length = _attribution(lines, index)
        if length:
            index = _after_quote(lines, index + length)
            continue
        if lines[index].rstrip() == "--":
            break
        if not lines[index].lstrip().startswith(">") and not _DEVICE_LINE.match(lines[index]):
            kept.append(lines[index])
        index += 1
    return kept


def _attribution(lines: list[str], index: int) -> int:
    """How many lines the "On ... wrote:" at `index` takes (mail programs wrap it), or 0."""
    if _ATTRIBUTION.match(lines[index]):
        return 1
    for length in (2, 3):
        wrapped = lines[index : index + length]
        if len(wrapped) < length or not wrapped[-1].strip() or _ATTRIBUTION.match(wrapped[-1]):
            return 0
        if _ATTRIBUTION_START.match(lines[index]) and _ATTRIBUTION.match(" ".join(wrapped)):
            return length
    return 0


def _after_quote(lines: list[str], index: int) -> int:
    """Where the sender goes on after the quote at `index`; a quote without ``>`` goes to the end."""
    while index < len(lines) and not lines[index].strip():
        index += 1
    if index < len(lines) and not lines[index].lstrip().startswith(">"):
        return len(lines)
    return index


def _tidy(lines: list[str]) -> str:
    text = "\n".join(line.rstrip() for line in lines)
    return re.sub(r"\n{3,}", "\n\n", text).strip()
