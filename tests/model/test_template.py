"""Templates: what is one, what keeps its type, what is never scanned again."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.model.template import (
    Literal,
    Reference,
    Template,
    TemplateError,
    follow_path,
    parse_template,
    render_templates,
    strip_literals,
)


@pytest.mark.parametrize(
    "text",
    ["", "plain", "{{ customer.name }}", "{% if calls %}", "{{calls_total}}", '{"a": {"b": 1}}', "{{", "{{}}", "{{ }}"],
)
def test_text_without_a_known_root_is_text(text: str) -> None:
    """Mails hold Jinja, Mustache and JSON: they must come through untouched."""
    assert parse_template(text) == text


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
