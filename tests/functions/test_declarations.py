"""`functions:` is read whole, and everything that is wrong with it is found at once."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.errors import format_path
from evalkit.functions.declarations import parse_declarations
from evalkit.records.case import Declaration

TYPES = "object, array, string, boolean, null, integer, number"

PROBLEMS: list[tuple[Any, list[tuple[str, str]]]] = [
    ("x", [("functions", 'functions must be a mapping of names to declarations, or a list of declarations, got "x"')]),
    (3, [("functions", "functions must be a mapping of names to declarations, or a list of declarations, got 3")]),
    (
        {"a b": {}},
        [
            (
                "functions['a b']",
                "'a b' cannot name a function: a letter or _ first, then letters, digits, _ . : -, at most 128",
            )
        ],
    ),
    (
        {"1x": {}},
        [
            (
                "functions['1x']",
                "'1x' cannot name a function: a letter or _ first, then letters, digits, _ . : -, at most 128",
            )
        ],
    ),
    (
        {"f": 3},
        [
            (
                "functions.f",
                "functions.f must be a mapping of description, parameters, returns, patch, alias, answered_by, "
                "needs_approval, got 3",
            )
        ],
    ),
    (
        {"f": {"descripton": "x"}},
        [("functions.f.descripton", "unknown key 'descripton' in functions.f; did you mean 'description'?")],
    ),
    (
        {"f": {"inputSchema": {}}},
        [("functions.f.inputSchema", "unknown key 'inputSchema' in functions.f; did you mean 'parameters'?")],
    ),
    (
        {"f": {"description": 3}},
        [("functions.f.description", "functions.f.description must be text, got 3; quote it: '3'")],
    ),
    ([3], [("functions[0]", "functions[0] must be a mapping with a 'name', got 3")]),
    ([{"description": "x"}], [("functions[0]", "functions[0] has no 'name'")]),
    (
        [{"type": "function", "function": {"name": "f"}}],
        [("functions[0]", "this is OpenAI's envelope; write what stands under its 'function' key directly")],
    ),
    ([{"name": "f"}, {"name": "f"}], [("functions[1].name", "name 'f' is taken already by functions[0]")]),
    (
        [{"name": 3}],
        [
            (
                "functions[0].name",
                "3 cannot name a function: a letter or _ first, then letters, digits, _ . : -, at most 128",
            )
        ],
    ),
    (
        [{"name": "f", "parametres": {}}],
        [("functions[0].parametres", "unknown key 'parametres' in functions[0]; did you mean 'parameters'?")],
    ),
    (
        {"f": {"parameters": []}},
        [("functions.f.parameters", "functions.f.parameters must be a JSON Schema, a mapping, got an empty list")],
    ),
    (
        {"f": {"parameters": {"serial": {"type": "string"}}}},
        [("functions.f.parameters", "parameters is a JSON Schema: put the arguments under 'properties'")],
    ),
    (
        {"f": {"parameters": {"type": "string"}}},
        [("functions.f.parameters.type", "functions.f.parameters.type must be 'object', got \"string\"")],
    ),
    (
        {"f": {"parameters": {"type": "OBJECT", "properties": {}}}},
        [
            (
                "functions.f.parameters.type",
                "PLACE: 'OBJECT' is not a JSON Schema type (@TYPES@); did you mean 'object'?",
            )
        ],
    ),
    (
        {
            "f": {
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "float"}, "b": {"type": ["string", "nul"]}, "c": {"type": "strng"}},
                }
            }
        },
        [
            (
                "functions.f.parameters.properties.a.type",
                "PLACE: 'float' is not a JSON Schema type (@TYPES@); did you mean 'number'?",
            ),
            (
                "functions.f.parameters.properties.b.type",
                "PLACE: 'nul' is not a JSON Schema type (@TYPES@); did you mean 'null'?",
            ),
            (
                "functions.f.parameters.properties.c.type",
                "PLACE: 'strng' is not a JSON Schema type (@TYPES@); did you mean 'string'?",
            ),
        ],
    ),
    (
        {"f": {"parameters": {"type": "object", "properties": {"a": {"enum": "x"}}}}},
        [
            (
                "functions.f.parameters.properties.a.enum",
                "PLACE: 'x' is not of type 'array'",
            )
        ],
    ),
    (
        {"f": {"parameters": {"type": "object", "properties": {"a": {"minimum": "1"}}}}},
        [
            (
                "functions.f.parameters.properties.a.minimum",
                "PLACE: '1' is not of type 'number'",
            )
        ],
    ),
    (
        {"f": {"parameters": {"type": "object", "properties": {"a": {"pattern": "("}}}}},
        [
            (
                "functions.f.parameters.properties.a.pattern",
                "PLACE: the pattern '(' is no valid pattern: missing ) at position 1",
            )
        ],
    ),
    (
        {"f": {"parameters": {"type": "object", "properties": {"a": {}}, "requird": ["a"]}}},
        [
            (
                "functions.f.parameters.requird",
                "PLACE: unknown keyword 'requird'; did you mean 'required'?",
            )
        ],
    ),
    (
        {"f": {"parameters": {"type": "object", "properties": {"a": {"minLenght": 3, "x-y": 1, "nullable": True}}}}},
        [
            (
                "functions.f.parameters.properties.a.minLenght",
                "PLACE: unknown keyword 'minLenght'; did you mean 'minLength'?",
            )
        ],
    ),
    (
        {"f": {"parameters": {"type": "object", "unevaluatedProperties": {"minLenght": 3}}}},
        [
            (
                "functions.f.parameters.unevaluatedProperties.minLenght",
                "PLACE: unknown keyword 'minLenght'; did you mean 'minLength'?",
            )
        ],
    ),
    (
        {"f": {"parameters": {"type": "object", "properties": {"a": {}}, "required": "a"}}},
        [("functions.f.parameters.required", "PLACE: 'a' is not of type 'array'")],
    ),
    (
        {
            "f": {
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"$ref": "#/$defs/Adress"}},
                    "$defs": {"Address": {}},
                }
            }
        },
        [
            (
                "functions.f.parameters.properties.a.$ref",
                "PLACE: '#/$defs/Adress' leads nowhere; did you mean '#/$defs/Address'?",
            )
        ],
    ),
    (
        {"f": {"parameters": {"type": "object", "properties": {"a": {"$ref": "http://x/y"}}}}},
        [
            (
                "functions.f.parameters.properties.a.$ref",
                "PLACE: 'http://x/y' leads nowhere; references must lead into the declaration itself ('#/...')",
            )
        ],
    ),
    (
        {"f": {"parameters": {"type": "object", "properties": {"a": 3}}}},
        [
            (
                "functions.f.parameters.properties.a",
                "PLACE: 3 is not of type 'object', 'boolean'",
            )
        ],
    ),
    (
        {"f": {"parameters": {"$ref": "#"}}},
        [("functions.f.parameters", "PLACE: it refers to itself without end")],
    ),
    (
        {"f": {"returns": "string"}},
        [("functions.f.returns", 'functions.f.returns must be a JSON Schema, a mapping, got "string"')],
    ),
    (
        {"f": {"returns": {"type": "any"}}},
        [("functions.f.returns.type", "PLACE: 'any' is not a JSON Schema type (@TYPES@)")],
    ),
    (
        {"f": {"returns": {"type": 3}}},
        [("functions.f.returns.type", "PLACE: 3 is not a JSON Schema type (@TYPES@)")],
    ),
    (
        {"f": {"parameters": {"type": "object", "properties": {"a": {"type": "object", "properties": []}}}}},
        [
            (
                "functions.f.parameters.properties.a.properties",
                "PLACE: [] is not of type 'object'",
            )
        ],
    ),
    ({"f": {"alias": 3}}, [("functions.f.alias", "functions.f.alias must be a name or a list of names, got 3")]),
    (
        {"f": {"alias": ["g", "x y"]}, "g": {}},
        [
            ("functions.f.alias", "'x y' cannot be an alias: it is no function name"),
            ("functions.f.alias", "alias 'g' is taken already by functions.g"),
        ],
    ),
    ({"f": {"alias": "f"}}, [("functions.f.alias", "'f' is the function's own name; leave it out of 'alias'")]),
    (
        {"f": {"alias": "h"}, "g": {"alias": ["h"]}},
        [("functions.g.alias", "alias 'h' is taken already by functions.f")],
    ),
    (
        {"f": {"patch": 3}},
        [
            (
                "functions.f.patch",
                "cannot patch: 3 does not name a Python object; write it as 'shop.clients:WarrantyClient.check'",
            )
        ],
    ),
    (
        {"f": {"patch": "datetime:datetime.now"}},
        [
            (
                "functions.f.patch",
                "cannot patch: 'datetime:datetime.now' belongs to a built-in type, "
                "whose methods Python does not let be replaced",
            )
        ],
    ),
    ({"f": {"patch": "os:sep"}}, [("functions.f.patch", "cannot patch: 'os:sep' is no function but a str")]),
]


@pytest.mark.parametrize(("data", "expected"), PROBLEMS, ids=lambda value: str(value)[:60])
def test_a_wrong_declaration_is_a_problem_with_its_place(data: Any, expected: list[tuple[str, str]]) -> None:
    _, problems = parse_declarations(data)
    found = [(format_path(problem.path), problem.message.replace(TYPES, "@TYPES@")) for problem in problems]
    assert found == [(place, message.replace("PLACE", place)) for place, message in expected]


SCHEMA = {"type": "object", "properties": {"serial_number": {"type": "string"}}, "required": ["serial_number"]}
RETURNS = {"type": "object", "properties": {"status": {"type": "string"}}}


def test_the_mapping_form_and_the_list_form_say_the_same() -> None:
    body = {"description": "Looks it up.", "parameters": SCHEMA, "returns": RETURNS, "alias": "lookup"}
    expected = Declaration(
        name="check_warranty", description="Looks it up.", parameters=SCHEMA, returns=RETURNS, aliases=("lookup",)
    )
    assert parse_declarations({"check_warranty": body}) == ((expected,), [])
    assert parse_declarations([{"name": "check_warranty", **body}]) == ((expected,), [])


@pytest.mark.parametrize("nothing", [None, {}, []])
def test_nothing_declared_is_fine(nothing: Any) -> None:
    assert parse_declarations(nothing) == ((), [])


def test_a_bare_name_declares_a_function_of_unknown_arguments() -> None:
    assert parse_declarations({"ping": None, "crm.lookup-v2:x": {}}) == (
        (Declaration(name="ping"), Declaration(name="crm.lookup-v2:x")),
        [],
    )


def test_equal_data_gives_the_same_objects_so_that_schemas_are_compiled_once() -> None:
    one, _ = parse_declarations({"f": {"parameters": dict(SCHEMA)}})
    other, _ = parse_declarations({"f": {"parameters": dict(SCHEMA)}}, path=("elsewhere",))
    assert one[0] is other[0]


def test_data_that_was_changed_is_read_anew() -> None:
    data: dict[str, Any] = {"f": {"parameters": {"type": "object", "properties": {"a": {}}}}}
    parse_declarations(data)
    data["f"]["parameters"]["required"] = "a"
    assert len(parse_declarations(data)[1]) == 1


def test_problems_are_placed_below_the_path_that_is_given() -> None:
    _, problems = parse_declarations([{"name": "f", "returns": 3}], path=("available_functions",))
    assert [problem.path for problem in problems] == [("available_functions", 0, "returns")]


@pytest.fixture
def shop(make_module: Any) -> str:
    return str(
        make_module(
            """
            limit = 3
            def check(serial): ...
            class Client:
                def look_up(self): ...
                @property
                def size(self): return 1
            """
        ).__name__
    )


def test_patch_targets_must_be_there(shop: str) -> None:
    expected = {
        f"{shop}:chek": f"module '{shop}' has no 'chek'; did you mean 'check'?",
        f"{shop}:Client.lookup": "class 'Client' has no 'lookup'; did you mean 'look_up'?",
        f"{shop}:Client": f"'{shop}:Client' is a class; name one of its methods, as in '{shop}:Client.look_up'",
        f"{shop}:Client.size": f"'{shop}:Client.size' is a property",
        f"{shop}:limit": f"'{shop}:limit' is no function but a int",
        f"{shop}_x:f": f"there is no module '{shop}_x'; did you mean '{shop}'?",
        "no_such_thing_at_all:f": "there is no module 'no_such_thing_at_all'",
        shop: f"'{shop}' does not name a Python object; write it as 'shop.clients:WarrantyClient.check'",
    }
    for target, why in expected.items():
        _, problems = parse_declarations({"f": {"patch": target}})
        assert [(problem.path, problem.message) for problem in problems] == [
            (("functions", "f", "patch"), f"cannot patch: {why}")
        ]


def test_without_looking_only_the_form_of_a_target_is_judged() -> None:
    (declaration,), problems = parse_declarations({"f": {"patch": "no_such_module:f"}}, check_targets=False)
    assert (declaration.patch, problems) == ("no_such_module:f", [])
    _, problems = parse_declarations({"f": {"patch": "no_such_module"}}, check_targets=False)
    assert len(problems) == 1


def test_two_functions_cannot_replace_one(shop: str) -> None:
    _, problems = parse_declarations({"f": {"patch": f"{shop}:check"}, "g": {"patch": f"{shop}:check"}})
    message = f"patch target '{shop}:check' is taken already by functions.f"
    assert [(problem.path, problem.message) for problem in problems] == [(("functions", "g", "patch"), message)]
