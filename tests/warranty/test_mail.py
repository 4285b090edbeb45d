"""Mail is read as a person reads it: quotes, headers and signatures aside."""

from __future__ import annotations

import pytest

from scenarios.warranty.html_text import html_to_text, looks_like_html
from scenarios.warranty.mail import Mail, read_mail
from scenarios.warranty.thread import is_forward, split_thread

ATTRIBUTIONS = {
    "English, Gmail": "On Thu, 20 Nov 2025 at 16:02, Warranty desk <warranty@maker.example> wrote:",
    "English, Apple": "On 3 Nov 2025, at 10:15, Ann Lee <ann@example.com> wrote:",
    "English, wrapped": "On Wed, 19 Nov 2025 at 09:15, Warranty desk, Leeds\n<warranty@maker.example>\nwrote:",
    "German": "Am Di., 4. Nov. 2025 um 08:15 Uhr schrieb Warranty desk <warranty@maker.example>:",
    "German, verb late": "Am 04.11.2025 um 08:15 schrieb Anna Berg:",
    "Polish": "W dniu 4.11.2025 o 08:15, Dział Serwisu pisze:",
    "Polish, Gmail": "wt., 4 lis 2025 o 08:15 Serwis <serwis@firma.example> napisał(a):",
    "French": "Le mar. 4 nov. 2025 à 08:15, Service <sav@maker.example> a écrit :",
    "Spanish": "El mar, 4 nov 2025 a las 8:15, Soporte (<soporte@maker.example>) escribió:",
    "Italian": "Il giorno mar 4 nov 2025 alle ore 08:15 Assistenza <a@maker.example> ha scritto:",
    "Portuguese": "Em ter., 4 de nov. de 2025 às 08:15, Suporte <s@maker.example> escreveu:",
    "Dutch": "Op di 4 nov 2025 om 08:15 schreef Service <s@maker.example>:",
    "Japanese, Gmail": "2025年11月4日(火) 8:15 サポート <support@maker.example>:",
}

REPLY_HEADERS = {
    "English": "From: Desk <d@maker.example>\nSent: Tuesday, 4 November 2025\nTo: Ann\nSubject: Your fridge",
    "German": "Von: Desk <d@maker.example>\nGesendet: Dienstag, 4. November 2025\nAn: Anna\nBetreff: Kühlschrank",
    "Polish": "Od: Desk <d@maker.example>\nWysłano: wtorek, 4 listopada 2025\nDo: Anna\nTemat: Lodówka",
    "French": "De : Desk <d@maker.example>\nEnvoyé : mardi 4 novembre 2025\nÀ : Anna\nObjet : Frigo",
    "Spanish": "De: Desk <d@maker.example>\nEnviado el: martes, 4 de noviembre\nPara: Ana\nAsunto: Nevera",
    "Japanese": "差出人: Desk <d@maker.example>\n送信日時: 2025年11月4日\n宛先: 佐藤\n件名: 冷蔵庫",
    "bold": "*From:* Desk\n*Sent:* Tuesday\n*To:* Ann\n*Subject:* Your fridge",
    "original message": "-----Original Message-----\nwhatever",
    "ursprüngliche": "-----Ursprüngliche Nachricht-----\nwas auch immer",
}

FORWARD_MARKS = {
    "Gmail": "---------- Forwarded message ---------",
    "Gmail, German": "---------- Weitergeleitete Nachricht ---------",
    "Gmail, Polish": "---------- Wiadomość przekazana dalej ---------",
    "Gmail, French": "---------- Message transféré ---------",
    "Gmail, Spanish": "---------- Mensaje reenviado ---------",
    "Gmail, Italian": "---------- Messaggio inoltrato ---------",
    "Apple": "Begin forwarded message:",
    "Apple, German": "Anfang der weitergeleiteten Nachricht:",
    "Apple, Polish": "Początek przekazywanej wiadomości:",
    "Japanese": "---------- 転送メッセージ ---------",
}

DEVICE_LINES = ["Sent from my iPhone", "Von meinem iPhone gesendet", "Wysłane z iPhone'a", "Envoyé de mon iPhone"]
DEVICE_LINES += ["Enviado desde mi iPhone", "iPhoneから送信", "Get Outlook for iOS"]


@pytest.mark.parametrize("attribution", ATTRIBUTIONS.values(), ids=ATTRIBUTIONS.keys())
def test_a_quoted_reply_is_left_out(attribution: str) -> None:
    text = f"It is SN11111.\n\n{attribution}\n\n> The number looks like SN22222.\n>> SN33333\n"
    assert split_thread(text) == ("It is SN11111.", "")


@pytest.mark.parametrize("attribution", ATTRIBUTIONS.values(), ids=ATTRIBUTIONS.keys())
def test_a_reply_that_quotes_without_marks_is_cut(attribution: str) -> None:
    assert split_thread(f"It is SN11111.\n\n{attribution}\n\nThe number looks like SN22222.\n") == (
        "It is SN11111.",
        "",
    )


@pytest.mark.parametrize("headers", REPLY_HEADERS.values(), ids=REPLY_HEADERS.keys())
def test_the_history_below_reply_headers_is_left_out(headers: str) -> None:
    assert split_thread(f"It is SN11111.\n\n{headers}\n\nThe number looks like SN22222.") == ("It is SN11111.", "")


@pytest.mark.parametrize("headers", [*REPLY_HEADERS.values()][:7], ids=[*REPLY_HEADERS][:7])
def test_the_same_headers_begin_what_a_forward_sends_on(headers: str) -> None:
    own, forwarded = split_thread(f"See below.\n\n{headers}\n\nIt is SN22222.", forwarded=True)
    assert own == "See below."
    assert forwarded.endswith("\n\nIt is SN22222.")
    assert "Desk" not in forwarded


@pytest.mark.parametrize("mark", FORWARD_MARKS.values(), ids=FORWARD_MARKS.keys())
def test_forwarded_words_are_kept_apart(mark: str) -> None:
    headers = "From: Rosie <rosie@example.com>\nDate: 4 Nov 2025\nSubject: my washing machine\nTo: Tom"
    text = f"Can you help?\n\n{mark}\n{headers}\n\nThe number is SN11111.\n"
    assert split_thread(text) == ("Can you help?", "my washing machine\n\nThe number is SN11111.")


def test_a_mail_forwarded_as_a_quote_is_unquoted() -> None:
    text = "Fyi\n\nBegin forwarded message:\n\n> From: a@example.com\n> Date: today\n> Subject: oven\n>\n> SN1\n>> SN2"
    assert split_thread(text) == ("Fyi", "oven\n\nSN1")


def test_a_forward_of_a_forward_gives_the_words_of_both() -> None:
    block = "From: {0}@example.com\nDate: today\nSubject: {0}\n\nwords of {0}\n--\nsignature of {0}\n"
    mark = "---------- Forwarded message ---------\n"
    text = "Top.\n\n" + "".join(mark + block.format(name) for name in ("anna", "ben"))
    assert split_thread(text) == ("Top.", "anna\n\nwords of anna\n\nben\n\nwords of ben")


def test_answers_below_and_between_quotes_are_kept() -> None:
    text = "On 4 Nov 2025 at 08:15, Desk wrote:\n> Which number?\nSN11111\n> And the fault?\nIt hums."
    assert split_thread(text) == ("SN11111\nIt hums.", "")


@pytest.mark.parametrize("line", DEVICE_LINES)
def test_what_a_phone_adds_is_left_out(line: str) -> None:
    assert split_thread(f"SN11111\n\n{line}") == ("SN11111", "")


def test_a_signature_is_left_out_and_mail_forwarded_below_it_is_not() -> None:
    text = "Please help.\n-- \nRoth Ltd, serial number 99999\n---------- Forwarded message ---------\nSN11111"
    assert split_thread(text) == ("Please help.", "SN11111")


@pytest.mark.parametrize(
    "text",
    [
        "From: the first day on it hummed.\nTo: be honest, I ignored it.",
        "On Monday my neighbour wrote:\nbuy another one",
        "I wrote: help!",
        "- first\n- second\n---\nthird",
        "Data: 3.11.2025\nNumer: SN11111",
    ],
)
def test_prose_that_only_looks_like_a_header_stays(text: str) -> None:
    assert split_thread(text) == (text, "")


@pytest.mark.parametrize("subject", ["Fwd: a", "FW: a", "WG: a", "TR : a", "RV: a", "PD: a", "Re: Fwd: a", "転送: a"])
def test_forwarded_subjects_are_known(subject: str) -> None:
    assert is_forward(subject)


@pytest.mark.parametrize("subject", ["a", "Re: a", "AW: a", "Forward gear broken", "Trockner: laut", ""])
def test_other_subjects_are_not(subject: str) -> None:
    assert not is_forward(subject)


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>one</p><p>two &amp; three</p>", "one\ntwo & three"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("<table><tr><td>Serial</td><td>SN&nbsp;1</td></tr><tr><td>x</td></tr></table>", "Serial SN\u00a01\nx"),
        (
            "<div>new</div><blockquote>old<blockquote>older</blockquote></blockquote>after",
            "new\n> old\n> > older\nafter",
        ),
        ("<head><title>t</title><style>p {}</style></head><body>b<script>s()</script></body>", "b"),
        ('<p style="display: none">hidden</p><p>seen</p>', "seen"),
        ('<div hidden>hidden <b>too</b></div><p style="font-size:0px">and</p>seen', "seen"),
        ("<p>open <b>bold <i>both", "open bold both"),
        ("line\n   wrapped <b>here</b>", "line wrapped here"),
    ],
)
def test_html_becomes_the_text_that_is_seen(html: str, text: str) -> None:
    assert html_to_text(html) == text


def test_plain_text_with_angle_brackets_is_no_html() -> None:
    assert not looks_like_html("temperature <b 5 > 3, write to <anna@example.com>, <function>{}</function>")
    assert looks_like_html("hello<br>world")


@pytest.mark.parametrize(
    ("data", "mail"),
    [
        (
            {"email": {"subject": " Hi ", "body": "SN1\r\nSN2", "from": "Anna B <a@example.com>", "received": "today"}},
            Mail("a@example.com", "Anna B", "Hi", "today", "SN1\nSN2"),
        ),
        ({"email": {"from": '"Berg, Anna" <a@example.com>'}}, Mail("a@example.com", "Berg, Anna")),
        ({"email": {"from": "x@example.com", "reply_to": "y@example.com", "body": None}}, Mail("y@example.com")),
        ({"message": "Is SN12345 valid?"}, Mail(text="Is SN12345 valid?")),
        ({"email": {"body": "S\u200bN\u00a012345\u202f!"}}, Mail(text="SN 12345 !")),
        ({}, Mail()),
    ],
)
def test_the_input_of_a_case_is_read(data: dict[str, object], mail: Mail) -> None:
    assert read_mail(data) == mail


def test_words_are_subject_own_and_forwarded_text() -> None:
    data = {"email": {"subject": "Fwd: oven", "body": "help\n\nBegin forwarded message:\n\nSN11111"}}
    assert read_mail(data).words == "Fwd: oven\nhelp\nSN11111"


@pytest.mark.parametrize(
    "body", ["> " * 20_000, "From: a\n" * 5_000, "On 2025 " * 5_000, "<div>" * 5_000, "-- \n" * 9_000]
)
def test_hostile_mail_takes_no_time(body: str) -> None:
    assert isinstance(read_mail({"email": {"body": body}}), Mail)
