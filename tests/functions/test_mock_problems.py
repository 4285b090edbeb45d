"""Everything that can be wrong with mocks is found at load, each with its place and words."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import pytest

from evalkit.errors import Location, PathProblem, Problem, SpecError, UsageError
from evalkit.functions.mocks.answers import MockSet
from evalkit.functions.mocks.reader import parse_mocks

PROBLEMS: list[tuple[Any, list[tuple[str, str]]]] = [
    ([1], [("mocks", "mocks must be a mapping of function names to answers, got a list")]),
    ("x", [("mocks", 'mocks must be a mapping of function names to answers, got "x"')]),
    ({"": 1}, [("mocks['']", "'' is no function name")]),
    ({3: 1}, [("mocks[3]", "3 is no function name")]),
    (
        {"f": {"$sequnce": [1]}},
        [("mocks.f.$sequnce", "unknown key '$sequnce' in mocks.f; did you mean '$sequence'?")],
    ),
    (
        {"f": {"$schema": "x", "a": 1}},
        [("mocks.f.$schema", "unknown key '$schema' in mocks.f; data with such keys goes under $literal")],
    ),
    (
        {"f": {"$ref": 1, "$foo": 2}},
        [
            ("mocks.f.$ref", "unknown key '$ref' in mocks.f; data with such keys goes under $literal"),
            ("mocks.f.$foo", "unknown key '$foo' in mocks.f; data with such keys goes under $literal"),
        ],
    ),
    (
        {"f": {"$sequence": []}},
        [("mocks.f.$sequence", "mocks.f.$sequence must be a list of one answer or more, got an empty list")],
    ),
    (
        {"f": {"$sequence": "x"}},
        [("mocks.f.$sequence", 'mocks.f.$sequence must be a list of one answer or more, got "x"')],
    ),
    (
        {"f": {"$sequence": [1], "$then": "repeat"}},
        [
            (
                "mocks.f.$then",
                "mocks.f.$then must be 'error', 'repeat_last' or 'cycle', got \"repeat\"; did you mean 'repeat_last'?",
            )
        ],
    ),
    ({"f": {"$then": "cycle"}}, [("mocks.f.$then", "'$then' in mocks.f belongs to '$sequence', which is not there")]),
    (
        {"f": {"$return": 1, "$then": "cycle"}},
        [("mocks.f.$then", "'$then' in mocks.f belongs to '$sequence', which is not there")],
    ),
    ({"f": {"$default": 1}}, [("mocks.f.$default", "'$default' in mocks.f belongs to '$match', which is not there")]),
    (
        {"f": {"$return": 1, "$error": "x"}},
        [("mocks.f", "'$return' and '$error' in mocks.f contradict each other: one mapping, one answer")],
    ),
    (
        {"f": {"$return": 1, "status": 1}},
        [
            (
                "mocks.f.status",
                "'status' in mocks.f stands beside '$return'; the answer's own keys belong under '$return'",
            )
        ],
    ),
    (
        {"f": {"status": 1, "$delay_ms": 5}},
        [
            (
                "mocks.f.status",
                "'status' in mocks.f stands beside '$delay_ms'; the answer's own keys belong under '$return'",
            )
        ],
    ),
    (
        {"f": {"$delay_ms": 5}},
        [
            (
                "mocks.f",
                "mocks.f has no answer beside '$delay_ms'; add one of $return, $sequence, $match, $error, $call, "
                "$include, $literal, $real",
            )
        ],
    ),
    (
        {"f": {"$delay_ms": -5, "$return": 1}},
        [("mocks.f.$delay_ms", "mocks.f.$delay_ms must be a number from 0, got -5")],
    ),
    (
        {"f": {"$delay_ms": "250ms", "$return": 1}},
        [("mocks.f.$delay_ms", 'mocks.f.$delay_ms must be a number from 0, got "250ms"; write it as digits')],
    ),
    (
        {"f": {"$delay_ms": True, "$return": 1}},
        [("mocks.f.$delay_ms", "mocks.f.$delay_ms must be a number from 0, got true")],
    ),
    (
        {"f": {"$match": []}},
        [("mocks.f.$match", "mocks.f.$match must be a list of one rule or more, got an empty list")],
    ),
    (
        {"f": {"$match": {"when": {}}}},
        [("mocks.f.$match", "mocks.f.$match must be a list of one rule or more, got a mapping")],
    ),
    (
        {"f": {"$match": [3]}},
        [("mocks.f.$match[0]", "mocks.f.$match[0] must be a mapping with 'when' and an answer, got 3")],
    ),
    (
        {"f": {"$match": [{"$return": 1}]}},
        [
            (
                "mocks.f.$match[0]",
                "mocks.f.$match[0] has no 'when'; an answer for all other arguments goes under '$default'",
            )
        ],
    ),
    (
        {"f": {"$match": [{"when": {}}]}},
        [("mocks.f.$match[0]", "mocks.f.$match[0] has no answer beside 'when'; add '$return' or another directive")],
    ),
    (
        {"f": {"$match": [{"when": {}, "retrun": 1}]}},
        [("mocks.f.$match[0].retrun", "unknown key 'retrun' in mocks.f.$match[0]; did you mean '$return'?")],
    ),
    (
        {"f": {"$match": [{"when": {}, "return": 1}]}},
        [("mocks.f.$match[0].return", "unknown key 'return' in mocks.f.$match[0]; did you mean '$return'?")],
    ),
    (
        {"f": {"$match": [{"wehn": {}, "$return": 1}]}},
        [("mocks.f.$match[0].wehn", "unknown key 'wehn' in mocks.f.$match[0]; did you mean 'when'?")],
    ),
    (
        {"f": {"$match": [{"when": {"a": 1}, "status": "valid"}]}},
        [
            (
                "mocks.f.$match[0].status",
                "unknown key 'status' in mocks.f.$match[0]; what the rule answers belongs under '$return'",
            )
        ],
    ),
    (
        {"f": {"$match": [{"when": 3, "$return": 1}]}},
        [("mocks.f.$match[0].when", "mocks.f.$match[0].when must be a mapping of argument names to values, got 3")],
    ),
    (
        {"f": {"$match": [{"when": {"a": {"$gtee": 1}}, "$return": 1}]}},
        [("mocks.f.$match[0].when.a.$gtee", "unknown operator '$gtee'; did you mean '$gt'?")],
    ),
    (
        {"f": {"$call": "nope"}},
        [("mocks.f.$call", "$call: 'nope' does not name a Python object; write it as 'mocks.warranty:create_ticket'")],
    ),
    (
        {"f": {"$call": "shop.check"}},
        [
            (
                "mocks.f.$call",
                "$call: 'shop.check' does not name a Python object; write it as 'shop:check'",
            )
        ],
    ),
    ({"f": {"$call": "nope:x"}}, [("mocks.f.$call", "$call: there is no module 'nope'")]),
    ({"f": {"$call": "os:sep"}}, [("mocks.f.$call", "$call: 'os:sep' is not callable but \"/\"")]),
    (
        {"f": {"$call": 5}},
        [("mocks.f.$call", "$call: 5 does not name a Python object; write it as 'mocks.warranty:create_ticket'")],
    ),
    ({"f": {"$real": False}}, [("mocks.f.$real", "mocks.f.$real must be true, got false")]),
    ({"f": {"$include": "x"}}, [("mocks.f.$include", "$include: there is no folder of mocks to find 'x' in")]),
    (
        {"f": {"$include": ""}},
        [("mocks.f.$include", 'mocks.f.$include must be the name of a file under mocks/, got ""')],
    ),
    (
        {"f": {"$error": 5}},
        [
            (
                "mocks.f.$error",
                "mocks.f.$error must be a bare type, or a mapping like {type: timeout, message: ...}, got 5",
            )
        ],
    ),
    (
        {"f": {"$error": "two words"}},
        [
            (
                "mocks.f.$error",
                'mocks.f.$error must be a bare type, or a mapping like {type: timeout, message: ...}, got "two words"',
            )
        ],
    ),
    (
        {"f": {"$error": {"typ": "x"}}},
        [("mocks.f.$error.typ", "unknown key 'typ' in mocks.f.$error; did you mean 'type'?")],
    ),
    (
        {"f": {"$error": {"after": 3}}},
        [
            (
                "mocks.f.$error.after",
                "unknown key 'after' in mocks.f.$error; known are: type, message, status, exception, detail",
            )
        ],
    ),
    (
        {"f": {"$error": 503}},
        [
            (
                "mocks.f.$error",
                "mocks.f.$error must be a bare type, or a mapping like {type: timeout, message: ...}, got 503; "
                "write {status: 503}",
            )
        ],
    ),
    (
        {"f": {"$error": {"type": 3}}},
        [("mocks.f.$error.type", "mocks.f.$error.type must be text, got 3; quote it: '3'")],
    ),
    (
        {"f": {"$error": {"message": []}}},
        [("mocks.f.$error.message", "mocks.f.$error.message must be text, got an empty list")],
    ),
    (
        {"f": {"$error": {"status": 200}}},
        [("mocks.f.$error.status", "mocks.f.$error.status must be an HTTP status from 400 to 599, got 200")],
    ),
    (
        {"f": {"$error": {"status": "503"}}},
        [
            (
                "mocks.f.$error.status",
                'mocks.f.$error.status must be an HTTP status from 400 to 599, got "503"; write 503 without quotes',
            )
        ],
    ),
    (
        {"f": {"$error": {"exception": "Timeot"}}},
        [("mocks.f.$error.exception", "exception of $error: module 'builtins' has no 'Timeot'")],
    ),
    (
        {"f": {"$error": {"exception": "TimeotError"}}},
        [
            (
                "mocks.f.$error.exception",
                "exception of $error: module 'builtins' has no 'TimeotError'; did you mean 'TimeoutError'?",
            )
        ],
    ),
    (
        {"f": {"$error": {"exception": "os:getcwd"}}},
        [("mocks.f.$error.exception", "exception of $error: 'os:getcwd' is no exception class")],
    ),
    (
        {"f": {"$error": {"detail": 3}}},
        [("mocks.f.$error.detail", "mocks.f.$error.detail must be a mapping of more keys, got 3")],
    ),
    (
        {"f": {"$error": {"detail": {"type": 3}}}},
        [("mocks.f.$error.detail.type", "'type' belongs beside 'detail', not in it")],
    ),
    (
        {"f": {"$error": {"message": "{{ calls.g.result }}"}}},
        [("mocks.f.$error.message", "template {{ calls.g.result }}: no function 'g' is mocked")],
    ),
    ({"f": {"a": [float("nan")]}}, [("mocks.f", "a mock must be JSON: at a[0]: nan is not JSON")]),
    (
        {"f": "{{ arguments.a..b }}"},
        [
            (
                "mocks.f",
                "template {{ arguments.a..b }} does not parse at '..b'; a path is .name, [0] or ['odd name'], "
                "as in {{ calls['crm.lookup'][1].result.id }}",
            )
        ],
    ),
    (
        {"f": {"a": ["{{ input }", "{{ input.x y }}"]}},
        [
            (
                "mocks.f.a[1]",
                "template {{ input.x y }} does not parse at ' y'; a path is .name, [0] or ['odd name'], "
                "as in {{ calls['crm.lookup'][1].result.id }}",
            )
        ],
    ),
    (
        {"f": "{{ calls }}", "g": 1},
        [("mocks.f", "template {{ calls }} names no function; write {{ calls.create_ticket.result.ticket_id }}")],
    ),
    (
        {"f": "{{ calls[1].result }}"},
        [
            (
                "mocks.f",
                "template {{ calls[1].result }} names no function; write {{ calls.create_ticket.result.ticket_id }}",
            )
        ],
    ),
    (
        {"f": "{{ calls.g[0].result }}", "g": 1},
        [("mocks.f", "template {{ calls.g[0].result }} counts calls from 0; the first is [1], as in the trace")],
    ),
    (
        {"f": "{{ calls.g.reslt }}", "g": 1},
        [
            (
                "mocks.f",
                "template {{ calls.g.reslt }} must go on with .result or .arguments after the function; "
                "did you mean 'result'?",
            )
        ],
    ),
    (
        {"f": "{{ calls.g }}", "g": 1},
        [("mocks.f", "template {{ calls.g }} must go on with .result or .arguments after the function")],
    ),
    (
        {"f": "{{ calls.gg.result }}", "ggg": 1},
        [("mocks.f", "template {{ calls.gg.result }}: no function 'gg' is mocked; did you mean 'ggg'?")],
    ),
]


@pytest.mark.parametrize(("mocks", "expected"), PROBLEMS, ids=lambda value: str(value)[:60])
def test_a_wrong_mock_is_a_problem_with_its_place(
    problems_of: Any, mocks: Any, expected: list[tuple[str, str]]
) -> None:
    assert problems_of(mocks) == expected


FUNCTIONS = {
    "check_warranty": {
        "parameters": {"type": "object", "properties": {"serial_number": {}, "region": {}}},
        "returns": {
            "type": "object",
            "properties": {"status": {"enum": ["valid", "expired"]}, "years": {"type": "integer"}},
            "required": ["status"],
        },
        "alias": "warranty_lookup",
    },
    "ping": {"parameters": {"type": "object", "properties": {}}},
    "search": {"parameters": {"type": "object", "properties": {"q": {}}, "additionalProperties": True}},
}

BREAKS = "the mock breaks the 'returns' schema of check_warranty"
KNOWN = "(known are region, serial_number); did you mean 'serial_number'?"

AGAINST_DECLARATIONS: list[tuple[Any, list[tuple[str, str]]]] = [
    (
        {"check_warranty": {"status": "valdi"}},
        [
            (
                "mocks.check_warranty.status",
                f'{BREAKS} at status: "valdi" is not one of ["valid", "expired"]; did you mean \'valid\'?',
            )
        ],
    ),
    (
        {"check_warranty": {"$sequence": [{"status": "valid"}, {"years": "1"}]}},
        [
            ("mocks.check_warranty.$sequence[1]", f"{BREAKS}: missing required 'status'"),
            ("mocks.check_warranty.$sequence[1].years", f'{BREAKS} at years: "1" is not of type integer'),
        ],
    ),
    (
        {"check_warranty": {"$match": [{"when": {}, "$return": None}], "$default": []}},
        [
            ("mocks.check_warranty.$match[0].$return", f"{BREAKS}: null is not of type object"),
            ("mocks.check_warranty.$default", f"{BREAKS}: [] is not of type object"),
        ],
    ),
    ({"check_warranty": {"$literal": 3}}, [("mocks.check_warranty.$literal", f"{BREAKS}: 3 is not of type object")]),
    ({"warranty_lookup": 3}, [("mocks.warranty_lookup", f"{BREAKS}: 3 is not of type object")]),
    ({"check_warranty": {"$error": "timeout"}}, []),
    ({"check_warranty": {"status": "{{ arguments.region }}"}}, []),
    (
        {"check_warranty": {"status": "{{ arguments.serial_nmber }}"}},
        [
            (
                "mocks.check_warranty.status",
                f"template {{{{ arguments.serial_nmber }}}}: check_warranty has no argument 'serial_nmber' {KNOWN}",
            )
        ],
    ),
    (
        {"ping": "{{ arguments.host }}"},
        [("mocks.ping", "template {{ arguments.host }}: ping has no argument 'host' (it takes none)")],
    ),
    ({"search": {"$match": [{"when": {"anything": 1}, "$return": "{{ arguments.goes }}"}]}}, []),
    (
        {"check_warranty": {"$match": [{"when": {"serial": 1}, "$error": "timeout"}]}},
        [("mocks.check_warranty.$match[0].when.serial", f"check_warranty has no argument 'serial' {KNOWN}")],
    ),
    (
        {"check_warranty": {"$error": "timeout"}, "warranty_lookup": {"status": "valid"}},
        [
            (
                "mocks.warranty_lookup",
                "'warranty_lookup' and 'check_warranty' are one function, 'check_warranty'; mock it once",
            )
        ],
    ),
]


@pytest.mark.parametrize(("mocks", "expected"), AGAINST_DECLARATIONS, ids=lambda value: str(value)[:60])
def test_mocks_are_held_against_the_declarations(problems_of: Any, mocks: Any, expected: list[tuple[str, str]]) -> None:
    assert problems_of(mocks, FUNCTIONS) == expected


def test_a_template_into_the_input_is_followed_at_load(problems_of: Any) -> None:
    mocks = {"f": {"to": "{{ input.email.form }}"}}
    why = "there is no 'form' in {from}; did you mean 'from'? (step 2 of the path)"
    text = f"template {{{{ input.email.form }}}} leads nowhere: {why}"
    assert problems_of(mocks, input={"email": {"from": "a@b.c"}}) == [("mocks.f.to", text)]
    assert problems_of(mocks) == []


def test_all_problems_are_reported_at_once(problems_of: Any) -> None:
    mocks = {
        "a": {"$sequnce": []},
        "b": {"$return": {"$delay_ms": -1, "$return": 1}},
        "c": {"$match": [1, {"when": {}}]},
    }
    places = [place for place, _ in problems_of(mocks)]
    assert places == ["mocks.a.$sequnce", "mocks.b.$return.$delay_ms", "mocks.c.$match[0]", "mocks.c.$match[1]"]


@pytest.mark.parametrize("nothing", [None, {}])
def test_nothing_mocked_is_fine(nothing: Any) -> None:
    assert parse_mocks(nothing) == (MockSet(), [])


def test_keys_are_pointed_at_as_keys() -> None:
    _, problems = parse_mocks({"f": {"$sequnce": 1}}, path=("m",))
    assert problems == [PathProblem(("m", "f", "$sequnce"), problems[0].message, at_key=True)]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "<object> is not JSON"),
        ({"a": {"b": b"x"}}, "at a.b: <bytes> is not JSON"),
        ([1j], "at [0]: <complex> is not JSON"),
    ],
    ids=["object", "bytes", "complex"],
)
def test_a_mock_built_in_code_must_be_json(problems_of: Any, value: Any, why: str) -> None:
    assert problems_of({"f": value}) == [("mocks.f", f"a mock must be JSON: {why}")]


def test_a_mock_built_in_code_is_converted_where_json_has_one_form(dispatcher: Any) -> None:
    subject = dispatcher({"f": {"when": datetime.date(2026, 1, 18), "pair": (1, 2)}})
    assert subject.call("f") == {"when": "2026-01-18", "pair": [1, 2]}


def test_an_exception_that_needs_more_than_a_message_is_refused(problems_of: Any, make_module: Any) -> None:
    source = "class Odd(Exception):\n    def __init__(self, *args): raise ValueError('two, please')\n"
    name = make_module(source).__name__
    why = f"'{name}:Odd' cannot be made of a message alone (two, please); raise it from a $call"
    mocks = {"f": {"$error": {"exception": f"{name}:Odd"}}}
    assert problems_of(mocks) == [("mocks.f.$error.exception", f"exception of $error: {why}")]


def test_later_changes_to_the_data_do_not_reach_the_mocks(dispatcher: Any) -> None:
    data = {"f": {"tags": ["a"]}}
    subject = dispatcher(data)
    data["f"]["tags"].append("b")
    assert subject.call("f") == {"tags": ["a"]}


def test_call_targets_are_found_at_load(problems_of: Any, make_module: Any) -> None:
    name = make_module("def create_ticket(): ...\nlimit = 3\nclass Desk:\n    def open(self): ...\n").__name__
    expected = {
        f"{name}:create_tickt": f"$call: module '{name}' has no 'create_tickt'; did you mean 'create_ticket'?",
        f"{name}:Desk.opne": "$call: class 'Desk' has no 'opne'; did you mean 'open'?",
        f"{name}:limit": f"$call: '{name}:limit' is not callable but 3",
        f"{name}.sub:f": f"$call: there is no module '{name}.sub'",
        "json.decode:f": "$call: there is no module 'json.decode'; did you mean 'decoder'?",
    }
    for target, message in expected.items():
        assert problems_of({"f": {"$call": target}}) == [("mocks.f.$call", message)]


def test_a_module_that_does_not_import_is_named_with_its_error(
    problems_of: Any, make_module: Any, tmp_path: Any
) -> None:
    make_module("")  # puts the folder on the path
    (tmp_path / "broken_mocks.py").write_text("import no_such_thing\n")
    (tmp_path / "raising_mocks.py").write_text("raise ValueError('no settings')\n")
    expected = {
        "broken_mocks:f": "$call: importing 'broken_mocks' failed: No module named 'no_such_thing'",
        "raising_mocks:f": "$call: importing 'raising_mocks' failed: ValueError: no settings",
    }
    for target, message in expected.items():
        assert problems_of({"f": {"$call": target}}) == [("mocks.f.$call", message)]


def test_an_include_that_does_not_load_brings_its_own_problems(problems_of: Any) -> None:
    def include(name: str) -> Any:
        if name == "bad":
            raise SpecError([Problem(Location("mocks/bad.yaml", 3, 1), "duplicate key 'a'")])
        raise UsageError(f"there is no '{name}'")

    mocks = {"f": {"$include": "bad"}, "g": {"$include": "gone"}}
    assert problems_of(mocks, include=include) == [
        ("mocks.f.$include", "$include 'bad': mocks/bad.yaml:3:1: duplicate key 'a'"),
        ("mocks.g.$include", "$include: there is no 'gone'"),
    ]


def test_problems_inside_an_included_answer_stand_at_the_include(problems_of: Any) -> None:
    files = {
        "a": {"$return": {"$include": "b"}},
        "b": {"$return": {"$include": "a"}},
        "c": {"$sequnce": 1},
        "d": {"status": "valdi"},
    }
    mocks = {"f": {"$include": "a"}, "g": {"$include": "c"}, "check_warranty": {"$include": "d"}}
    assert problems_of(mocks, FUNCTIONS, include=files.__getitem__) == [
        ("mocks.f.$include", "in 'b': $include goes in a circle: a -> b -> a"),
        ("mocks.g.$include", "in 'c': unknown key '$sequnce' in mocks.g.$include; did you mean '$sequence'?"),
        (
            "mocks.check_warranty.$include",
            f'in \'d\': {BREAKS} at status: "valdi" is not one of ["valid", "expired"]; did you mean \'valid\'?',
        ),
    ]


CANNOT_CHANGE = {
    "a list": ([1], "'x' can't be laid over 'file', which is [1] and no plain mapping"),
    "a text": ("abc", "'x' can't be laid over 'file', which is \"abc\" and no plain mapping"),
    "a directive": ({"$error": "timeout"}, "'x' can't be laid over 'file', which is a directive and no plain mapping"),
}


@pytest.mark.parametrize(("content", "message"), CANNOT_CHANGE.values(), ids=CANNOT_CHANGE)
def test_only_a_mapping_can_be_overridden(problems_of: Any, content: Any, message: str) -> None:
    mocks = {"f": {"$include": "file", "x": 1}}
    assert problems_of(mocks, include=lambda name: content) == [("mocks.f.x", message)]


def test_a_mock_set_survives_pickling(dispatcher: Any) -> None:
    mocks, problems = parse_mocks(
        {
            "f": {"$match": [{"when": {"n": {"$gt": 1}}, "$sequence": [1, {"a": "{{ arguments.n }}"}]}]},
            "g": {"$delay_ms": 1, "$error": {"status": 503}},
        }
    )
    assert problems == []
    assert pickle.loads(pickle.dumps(mocks)) == mocks
    assert (len(mocks), list(mocks), "f" in mocks, "h" in mocks) == (2, ["f", "g"], True, False)
