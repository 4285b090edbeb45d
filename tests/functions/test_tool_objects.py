"""A patch that names a framework's tool object mocks the function in it, and leaves the object what it is.

The classes below keep their functions as the frameworks do: tried with Strands, smolagents, the OpenAI Agents SDK,
pydantic-ai, LangChain, Haystack, Agent Framework, CrewAI, LlamaIndex and Agno, of November 2026.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalkit.functions.declarations import parse_declarations
from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.functions.mocks.reader import parse_mocks
from evalkit.functions.patching import patch_functions

FRAMEWORK = '''
import functools

class Decorated:
    """Strands, Haystack, CrewAI, Agent Framework, LangChain: the function in an attribute; also on methods."""
    def __init__(self, func):
        self.func, self.name = func, func.__name__
        functools.update_wrapper(self, func)
    def __get__(self, instance, owner):
        return self if instance is None else functools.partial(self.func, instance)
    def __call__(self, *args, **kwargs):
        return self.func(*args, **kwargs)

class Plain:
    """pydantic-ai, Haystack: no object that is called; attributes of the framework's and of pydantic's own."""
    def __init__(self, function, prepare=None):
        self.name, self.prepare, self.parse = "tool", prepare, json_of
        self.__dict__["schema"] = {"function": json_of}
        self.__pydantic_private__ = {"_fn": function}
    def run(self, **arguments):
        return self.__pydantic_private__["_fn"](**arguments)

class Traced(Decorated):
    """LlamaIndex: a call that a decorator's object has wrapped."""
    __call__ = functools.partialmethod(Decorated.__call__)

class Slotted:
    __slots__ = ("name", "entry")
    def __init__(self, entry):
        self.name, self.entry = "tool", entry
    def run(self, **arguments):
        return self.entry(**arguments)

class Closed:
    """The OpenAI Agents SDK: a function of the framework that has closed over the tool."""
    def __init__(self, invoke):
        self.invoke = invoke
    def run(self, **arguments):
        return self.invoke(arguments)

class Base:
    """CrewAI, LangChain, smolagents: the user's class has a method."""
    def __call__(self, **arguments):
        return self.forward(**arguments)

def json_of(value): return str(value)

def closed(function):
    def invoke(arguments): return function(**arguments)
    return Closed(invoke)

def wrapped(function):
    @functools.wraps(function)
    def call(**arguments): return function(**arguments)
    return Decorated(call)

def made(function):
    """smolagents: a class for each function."""
    class SimpleTool(Base):
        forward = staticmethod(function)
    return SimpleTool()
'''
SHOP = """
from {framework} import Base, Decorated, Plain, Slotted, Traced, closed, made, wrapped

REACHED = []

def real(serial):
    REACHED.append(serial)
    return "real"

@Decorated
def decorated(serial): return real(serial)
@Decorated
async def adecorated(serial): return real(serial)
@Traced
def traced(serial): return real(serial)
@closed
def in_a_closure(serial): return real(serial)
@wrapped
def wrapped_first(serial): return real(serial)
@made
def of_a_class_of_its_own(serial): return real(serial)

class Desk:
    @Decorated
    def look(self, serial): return real(serial)
    def find(self, serial): return real(serial)

def look_up(serial): return real(serial)
def choose(serial): return None
plain = Plain(look_up)
slotted = Slotted(look_up)
method = Slotted(Desk().find)
several = Decorated(look_up)
several.on_error = choose
explicit = Decorated(look_up)

class Own(Base):
    def forward(self, serial): return real(serial)
own = Own()

class Called:
    def __init__(self, on_error=None): self.on_error = on_error
    def __call__(self, serial): return real(serial)
called, other_called = Called(), Called()
two_ways = Called(choose)
TABLE = [called]
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the project's module; the framework is installed."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "framework_of_tools.py").write_text(FRAMEWORK, "utf-8")
    (tmp_path / "shop_of_tools.py").write_text(SHOP.format(framework="framework_of_tools"), "utf-8")
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("shop_of_tools")
    for name in ("shop_of_tools", "framework_of_tools"):
        del sys.modules[name]


def patch(target: str) -> tuple[Any, FakeDispatcher, list[str]]:
    declarations, problems = parse_declarations({"f": {"patch": f"shop_of_tools:{target}"}})
    mocks, _ = parse_mocks({"f": "mocked"})
    return declarations, FakeDispatcher(mocks, declarations), [problem.message for problem in problems]


@pytest.mark.parametrize(
    ("target", "call"),
    [
        ("decorated", lambda shop: shop.decorated(serial="SN1")),
        ("decorated", lambda shop: shop.decorated.func("SN1")),
        ("decorated.func", lambda shop: shop.decorated(serial="SN1")),
        ("adecorated", lambda shop: asyncio.run(shop.adecorated(serial="SN1"))),
        ("traced", lambda shop: shop.traced(serial="SN1")),
        ("wrapped_first", lambda shop: shop.wrapped_first(serial="SN1")),
        ("in_a_closure", lambda shop: shop.in_a_closure.run(serial="SN1")),
        ("of_a_class_of_its_own", lambda shop: shop.of_a_class_of_its_own(serial="SN1")),
        ("Desk.look", lambda shop: shop.Desk().look("SN1")),
        ("plain", lambda shop: shop.plain.run(serial="SN1")),
        ("slotted", lambda shop: shop.slotted.run(serial="SN1")),
        ("method", lambda shop: shop.method.run(serial="SN1")),
        ("explicit.func", lambda shop: shop.explicit("SN1")),
        ("Own.forward", lambda shop: shop.own(serial="SN1")),
        ("called", lambda shop: shop.called("SN1")),
        ("called", lambda shop: shop.TABLE[0]("SN1")),
    ],
)
def test_the_function_in_the_object_is_mocked(shop: Any, target: str, call: Callable[[Any], object]) -> None:
    declarations, dispatcher, problems = patch(target)
    assert problems == []
    before, kinds = dict(vars(shop)), {name: type(value).__name__ for name, value in vars(shop).items()}

    with patch_functions(declarations, dispatcher):
        assert call(shop) == "mocked"
        assert shop.REACHED == []
        assert vars(shop) == before, "each object is the one that it was"
        assert {name: type(value).__name__ for name, value in vars(shop).items()} == kinds
        assert isinstance(shop.called, shop.Called)
        assert shop.other_called("SN2") == "real", "another object of the class"
        with patch_functions((), FakeDispatcher(None)):
            assert call(shop) == "real", "another case"
    assert [call.arguments for call in dispatcher.calls] == [{"serial": "SN1"}]
    assert call(shop) == "real"
    assert type(shop.called) is shop.Called


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (
            "several",
            "is an object (Decorated) that holds 2 functions; "
            "write 'shop_of_tools:several.func' or 'shop_of_tools:several.on_error'",
        ),
        (
            "own",
            "is an object (Own) that holds no function of the project's own; write 'shop_of_tools:Own.forward'",
        ),
        (
            "two_ways",
            "is an object (Called) that holds 1 function; "
            "write 'shop_of_tools:two_ways.on_error' or 'shop_of_tools:Called.__call__'",
        ),
    ],
)
def test_what_cannot_be_told_is_refused_at_load_with_what_to_write(shop: Any, target: str, why: str) -> None:
    assert patch(target)[2] == [f"cannot patch: 'shop_of_tools:{target}' {why}"]
