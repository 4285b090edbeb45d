"""Templates: what is one, what keeps its type, what is never scanned again."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.records.template import (
    Literal,
    Reference,
    Template,
    TemplateError,
    escape_braces,
    follow_path,
    parse_template,
    render_templates,
    strip_literals,
)


@pytest.mark.parametrize(
    "text",
    [
        *[
            "",
            "plain",
            "{% if calls %}",
            '{"a": {"b": 1}}',
            "{{",
            "{{}}",
            "{{ }}",
            "{{#each items}}",
            '{{"name": "f"}}',
        ],
        *["{{ 5 }}", "{ input.x }", "the {{ of a mail", "{{ name", "{{ it's }}"],
    ],
)
def test_braces_around_no_word_are_text(text: str) -> None:
    """Python's doubled braces, Mustache's sections and JSON: they must come through untouched."""
    assert parse_template(text) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{{ inputs.message }}",
            "template {{ inputs.message }} begins with none of arguments, input, calls, state; did you mean 'input'? "
            "(text with braces is written {{ '{{ inputs.message }}' }})",
        ),
        (
            "see {{call.send_email.result}}",
            "template {{call.send_email.result}} begins with none of arguments, input, calls, state; did you mean "
            "'calls'? (text with braces is written {{ '{{call.send_email.result}}' }})",
        ),
        (
            "{{ $input.x }}",
            "template {{ $input.x }} begins with none of arguments, input, calls, state; did you mean 'input'? "
            "(text with braces is written {{ '{{ $input.x }}' }})",
        ),
        (
            "Dear {{ customer['name'] }}",
            "template {{ customer['name'] }} begins with none of arguments, input, calls, state "
            "(text with braces is written {{ '{{' }} customer['name'] }})",
        ),
        ("{{ input.message }", "template {{ input.message } is not closed; write }} behind its path"),
        ("a {{ inputs.x b", "template {{ inputs.x b is not closed; write }} behind its path"),
    ],
)
def test_a_misspelt_template_is_an_error(text: str, message: str) -> None:
    """As text it would hold in silence, above all where a text must not be found."""
    with pytest.raises(TemplateError) as caught:
        parse_template(text)
    assert str(caught.value) == message


def test_quoted_braces_are_text() -> None:
    assert parse_template("Dear {{ '{{ name }}' }}") == "Dear {{ name }}"
    assert parse_template('{{ "{{" }} name }}') == "{{ name }}"
    assert parse_template("{{ '{{ name }}' }}: {{ input.x }}") == Template(
        ("{{ name }}: ", Reference("input", ("x",), "{{ input.x }}"))
    )


_PIECES = st.sampled_from(["{{", "}}", "{", "}", " ", "'", '"', "input", "inputs", ".x", "[0]", "a", "\n", "$"])


@given(st.lists(_PIECES, max_size=12).map("".join))
def test_any_text_can_be_written(text: str) -> None:
    assert parse_template(escape_braces(text)) == text


@given(st.lists(_PIECES, max_size=12).map("".join))
def test_a_template_reads_as_it_was_written(text: str) -> None:
    with suppress(TemplateError):
        parsed = parse_template(text)
        if isinstance(parsed, Template):
            assert parse_template(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("text", "root", "path"),
    [
        ("{{input}}", "input", ()),
        ("{{ calls.create_ticket.result.ticket_id }}", "calls", ("create_ticket", "result", "ticket_id")),
        ("{{ calls['crm.lookup'][1].result.id }}", "calls", ("crm.lookup", 1, "result", "id")),
        ('{{ arguments["odd name"] }}', "arguments", ("odd name",)),
        ("{{state.n}}", "state", ("n",)),
        ("{{ input.email.reply-to }}", "input", ("email", "reply-to")),
    ],
)
def test_a_known_root_makes_a_reference(text: str, root: str, path: tuple[str | int, ...]) -> None:
    assert parse_template(text) == Template((Reference(root, path, text),))


def test_text_around_a_reference_is_kept() -> None:
    assert parse_template("Re: {{ input.subject }}!") == Template(
        ("Re: ", Reference("input", ("subject",), "{{ input.subject }}"), "!")
    )


def test_a_known_root_with_a_path_that_does_not_parse_is_an_error() -> None:
    with pytest.raises(TemplateError) as caught:
        parse_template("{{ calls..x }}")
    assert str(caught.value) == (
        "template {{ calls..x }} does not parse at '..x'; "
        "a path is .name, [0] or ['odd name'], as in {{ calls['crm.lookup'][1].result.id }}"
    )


def test_an_index_that_no_list_has_does_not_parse() -> None:
    with pytest.raises(TemplateError, match=r"does not parse at '\[999"):
        parse_template("{{ calls.f[" + "9" * 5000 + "].result }}")


def resolve(reference: Reference) -> Any:
    return follow_path(
        {"n": 5, "who": {"name": "Łódź"}, "list": [1, [2]], "tpl": "{{ input.n }}"}, reference.path, reference.text
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ input.n }}", 5),
        ("n={{ input.n }}", "n=5"),
        ("{{ input.who }}", {"name": "Łódź"}),
        ("who: {{input.who}}", 'who: {"name": "Łódź"}'),
        ("{{ input.list[1][0] }}", 2),
        ("{{ input.tpl }}", "{{ input.n }}"),
    ],
)
def test_a_template_alone_keeps_the_type_and_is_rendered_once(text: str, value: object) -> None:
    assert render_templates({"x": [parse_template(text)]}, resolve) == {"x": [Literal(value)]}
    assert strip_literals(render_templates({"x": [parse_template(text)]}, resolve)) == {"x": [value]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{{ input.whom }}",
            "template {{ input.whom }} leads nowhere: there is no 'whom' in {n, who, list, tpl}; "
            "did you mean 'who'? (step 1 of the path)",
        ),
        (
            "{{ input.list[2] }}",
            "template {{ input.list[2] }} leads nowhere: a list of 2 has no item 2 (step 2 of the path)",
        ),
        ("{{ input.n.x }}", "template {{ input.n.x }} leads nowhere: 5 has no parts (step 2 of the path)"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ended(text: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        render_templates(parse_template(text), resolve)
    assert str(caught.value) == message
