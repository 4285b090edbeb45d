"""Real functions are swapped for mocks while a case runs, whatever kind they are, and restored always."""

from __future__ import annotations

import asyncio
import calendar
import contextlib
import inspect
import pickle
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import evalkit
from evalkit.errors import FunctionError, MockError
from evalkit.functions.context_propagation import bind
from evalkit.functions.declarations import parse_declarations
from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.functions.mocks.reader import parse_mocks
from evalkit.functions.patching import patch_functions
from evalkit.records.case import Declaration
from evalkit.records.settings import Settings

SHOP = '''
import functools

REACHED = []

def real(*what):
    REACHED.append(what)
    return "real"

def check(serial, region="EU", *codes, **more): return real("check", serial)
def recursive(n): return real("recursive", n) if n == 0 else recursive(n - 1)
async def acheck(serial): return real("acheck", serial)
def stream(n):
    """Yields."""
    for i in range(n): yield real("stream", i)
async def astream(n):
    for i in range(n): yield real("astream", i)

def make(prefix):
    suffix = "!"
    def closed(text): return real(prefix, text, suffix)
    return closed
closed = make("closed")

def decorated_with(function):
    @functools.wraps(function)
    def outer(*args, **kwargs): return function(*args, **kwargs)
    return outer

@decorated_with
async def awrapped(serial): return real("awrapped", serial)

@functools.lru_cache
def cached(serial): return real("cached", serial)

class Client:
    limit = 3
    def check(self, serial, *, fast=False): return real("Client.check", serial)
    async def acheck(self, serial): return real("Client.acheck", serial)
    async def apages(self, n): yield real("Client.apages", n)
    def pages(self, n): yield real("Client.pages", n)
    @classmethod
    def make(cls, serial): return real("Client.make", serial)
    @staticmethod
    def static(serial): return real("Client.static", serial)
    def __call__(self, serial): return real("Client.call", serial)
    class Inner:
        def deep(self, serial): return real("deep", serial)

class Special(Client): ...

class AsyncCallable:
    async def __call__(self, serial): return real("AsyncCallable", serial)

signed = lambda *args: real("signed", *args)
signed.__signature__ = __import__("inspect").signature(check)
async_callable = AsyncCallable()

client = Client()
callable_object = Client()
partial = functools.partial(real, "partial")
from math import sqrt
'''

AGENT = """
from {shop} import check, cached, sqrt, Client
TOOLS = {{"check": check, "bound": Client().check}}
DEFAULT = lambda serial, function=check: function(serial)
"""


@pytest.fixture
def shop(make_module: Any) -> Iterator[Any]:
    module = make_module(SHOP)
    yield module
    assert threading.Thread.start.__module__ == "threading", "the start points of threads were not restored"


def declared(shop: Any, **targets: str) -> tuple[Declaration, ...]:
    functions = {name: {"patch": f"{shop.__name__}:{target}"} for name, target in targets.items()}
    declarations, problems = parse_declarations(functions)
    assert problems == []
    return declarations


def dispatcher_of(mocks: Any, **settings: Any) -> FakeDispatcher:
    read, problems = parse_mocks(mocks)
    assert problems == []
    return FakeDispatcher(read, settings=Settings(**settings))


KINDS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    # name: (the target, how the agent calls it, the arguments on record)
    "a function": ("check", lambda s: s.check("SN1"), {"serial": "SN1"}),
    "by keyword": ("check", lambda s: s.check(serial="SN1", region="PL"), {"serial": "SN1", "region": "PL"}),
    "variadic": (
        "check",
        lambda s: s.check("SN1", "PL", 1, 2, colour="red"),
        {"serial": "SN1", "region": "PL", "codes": [1, 2], "colour": "red"},
    ),
    "an async function": ("acheck", lambda s: asyncio.run(s.acheck("SN1")), {"serial": "SN1"}),
    "a wrapped async function": ("awrapped", lambda s: asyncio.run(s.awrapped("SN1")), {"serial": "SN1"}),
    "a closure": ("closed", lambda s: s.closed("SN1"), {"text": "SN1"}),
    "a function with a cache": ("cached", lambda s: s.cached("SN1"), {"serial": "SN1"}),
    "a method": ("Client.check", lambda s: s.Client().check("SN1", fast=True), {"serial": "SN1", "fast": True}),
    "a method through its class": ("Client.check", lambda s: s.Client.check(s.client, "SN1"), {"serial": "SN1"}),
    "a method of a subclass": ("Client.check", lambda s: s.Special().check("SN1"), {"serial": "SN1"}),
    "an inherited method": ("Special.check", lambda s: s.Special().check("SN1"), {"serial": "SN1"}),
    "an async method": ("Client.acheck", lambda s: asyncio.run(s.Client().acheck("SN1")), {"serial": "SN1"}),
    "an inherited async method": (
        "Special.acheck",
        lambda s: asyncio.run(s.Special().acheck("SN1")),
        {"serial": "SN1"},
    ),
    "an async callable": ("async_callable", lambda s: asyncio.run(s.async_callable("SN1")), {"serial": "SN1"}),
    "a function that shows another signature": ("signed", lambda s: s.signed("SN1"), {"serial": "SN1"}),
    "a class method": ("Client.make", lambda s: s.Client.make("SN1"), {"serial": "SN1"}),
    "an inherited class method": ("Special.make", lambda s: s.Special.make("SN1"), {"serial": "SN1"}),
    "a static method": ("Client.static", lambda s: s.client.static("SN1"), {"serial": "SN1"}),
    "an inherited static method": ("Special.static", lambda s: s.Special.static("SN1"), {"serial": "SN1"}),
    "a method of a nested class": ("Client.Inner.deep", lambda s: s.Client.Inner().deep("SN1"), {"serial": "SN1"}),
    "a method of one object": ("client.check", lambda s: s.client.check("SN1"), {"serial": "SN1"}),
    "an object that is called": ("callable_object", lambda s: s.callable_object("SN1"), {"serial": "SN1"}),
    "a partial": ("partial", lambda s: s.partial("SN1"), {"what": ["SN1"]}),
    "a function written in C": ("sqrt", lambda s: s.sqrt(4.0), {"x": 4.0}),
}


@pytest.mark.parametrize(("target", "call", "arguments"), KINDS.values(), ids=KINDS)
def test_whatever_its_kind_the_mock_answers_and_then_the_function_is_back(
    shop: Any, target: str, call: Any, arguments: dict[str, Any]
) -> None:
    before = [dict(vars(shop)), dict(vars(shop.Client)), dict(vars(shop.Special)), dict(vars(shop.client))]
    dispatcher = dispatcher_of({"f": {"status": "mocked"}})
    with patch_functions(declared(shop, f=target), dispatcher):
        assert call(shop) == {"status": "mocked"}
    assert shop.REACHED == []
    (record,) = dispatcher.calls
    assert (record.name, record.arguments, record.channel) == ("f", arguments, "direct")

    assert call(shop) in ("real", 2.0)
    assert [dict(vars(shop)), dict(vars(shop.Client)), dict(vars(shop.Special)), dict(vars(shop.client))] == before
    assert len(dispatcher.calls) == 1


def test_generators_yield_the_items_of_a_list(shop: Any) -> None:
    dispatcher = dispatcher_of({"s": [1, {"n": 2}], "a": [3, 4], "p": ["x"], "i": ["y"], "j": ["z"]})

    async def collect(generator: Any = shop.astream) -> list[Any]:
        return [item async for item in generator(9)]

    inherited = {"i": "Special.pages", "j": "Special.apages"}
    with patch_functions(declared(shop, s="stream", a="astream", p="Client.pages", **inherited), dispatcher):
        assert list(shop.stream(9)) == [1, {"n": 2}]
        assert asyncio.run(collect()) == [3, 4]
        assert list(shop.client.pages(1)) == ["x"]
        assert list(shop.Special().pages(1)) == ["y"]
        assert asyncio.run(collect(shop.Special().apages)) == ["z"]
    assert [(call.name, call.arguments) for call in dispatcher.calls] == [
        ("s", {"n": 9}),
        ("a", {"n": 9}),
        ("p", {"n": 1}),
        ("i", {"n": 1}),
        ("j", {"n": 9}),
    ]
    assert list(shop.stream(1)) == asyncio.run(collect())[:1] == ["real"]


def test_a_generator_whose_mock_is_no_list_cannot_be_measured(shop: Any) -> None:
    dispatcher = dispatcher_of({"s": {"not": "a list"}})
    with patch_functions(declared(shop, s="stream"), dispatcher), pytest.raises(MockError) as raised:
        list(shop.stream(1))
    why = f"{shop.__name__}:stream is a generator, so its mock must be a list of what it yields"
    assert str(raised.value) == str(dispatcher.fault) == f"the mock of s is broken: {why}"


def test_every_reference_to_a_function_is_patched(shop: Any, make_module: Any) -> None:
    agent = make_module(AGENT.format(shop=shop.__name__))
    dispatcher = dispatcher_of({"f": "mocked", "m": "mocked too", "c": "and this", "s": 3})
    with patch_functions(declared(shop, f="check", m="Client.check", c="cached", s="sqrt"), dispatcher):
        assert agent.check("1") == agent.TOOLS["check"]("2") == agent.DEFAULT("3") == "mocked"
        assert agent.TOOLS["bound"]("4") == "mocked too"
        assert (agent.cached("5"), agent.sqrt(4.0)) == ("and this", 3)
    assert shop.REACHED == []
    assert agent.check("1") == agent.TOOLS["check"]("2") == agent.TOOLS["bound"]("4") == agent.cached("5") == "real"


def test_the_documented_limit_a_table_of_what_is_no_python_function_holds_the_real_one(
    shop: Any, make_module: Any
) -> None:
    agent = make_module(AGENT.format(shop=shop.__name__))
    held = {"sqrt": shop.sqrt}
    dispatcher = dispatcher_of({"s": 3})
    with patch_functions(declared(shop, s="sqrt"), dispatcher):
        assert (shop.sqrt(16.0), agent.sqrt(16.0), held["sqrt"](16.0)) == (3, 3, 4.0)
    assert len(dispatcher.calls) == 2


def test_a_patched_function_looks_like_itself(shop: Any) -> None:
    def look() -> list[Any]:
        return [
            [str(inspect.signature(f)) for f in (shop.check, shop.Client.check, shop.client.check, shop.sqrt)],
            [inspect.iscoroutinefunction(f) for f in (shop.check, shop.acheck, shop.Client.acheck)],
            [inspect.isgeneratorfunction(shop.stream), inspect.isasyncgenfunction(shop.astream)],
            [f.__name__ for f in (shop.check, shop.acheck, shop.stream)],
            [shop.stream.__doc__, inspect.getsource(shop.check), vars(shop.check)],
            pickle.loads(pickle.dumps(shop.check)) is shop.check,
        ]

    before = look()
    with patch_functions(
        declared(shop, a="check", b="acheck", c="stream", d="astream", e="Client.check"), dispatcher_of({})
    ):
        during = look()
    during[4][2] = {}  # the signature stands there meanwhile
    assert during == before == look()


def test_a_call_that_python_would_refuse_is_refused_and_on_record(shop: Any) -> None:
    dispatcher = dispatcher_of({"f": 1})
    with patch_functions(declared(shop, f="Client.check"), dispatcher), pytest.raises(TypeError) as raised:
        shop.client.check(fast=True)
    assert str(raised.value) == "the arguments of f could not be read: missing a required argument: 'serial'"
    (call,) = dispatcher.calls
    assert (call.problem, call.arguments) == ("malformed_call", {"fast": True})


def test_an_unmocked_patched_function_is_refused_and_not_reached(shop: Any) -> None:
    dispatcher = dispatcher_of({"other": 1})
    with patch_functions(declared(shop, f="check"), dispatcher), pytest.raises(FunctionError, match="f is not mocked"):
        shop.check("SN1")
    assert shop.REACHED == []
    assert dispatcher.calls[0].problem == "unmocked_call"


def test_code_under_test_gets_the_exception_that_it_catches(shop: Any) -> None:
    errors = [
        {"exception": "TimeoutError", "message": "no answer"},
        {"exception": "concurrent.futures:BrokenExecutor"},
        "timeout",
    ]
    dispatcher = dispatcher_of({"f": {"$sequence": [{"$error": error} for error in errors]}})
    with patch_functions(declared(shop, f="check"), dispatcher):
        with pytest.raises(TimeoutError, match=r"^no answer$"):
            shop.check("SN1")
        with pytest.raises(sys.modules["concurrent.futures"].BrokenExecutor, match=r"^f failed$"):
            shop.check("SN1")
        with pytest.raises(FunctionError, match=r"^f timed out$"):
            shop.check("SN1")
    types = [call.result["error"]["type"] for call in dispatcher.calls]
    assert types == ["TimeoutError", "BrokenExecutor", "timeout"]


@pytest.mark.parametrize("error", ["timeout", {"exception": "TimeoutError"}])
@pytest.mark.parametrize(
    "kind", sorted(KINDS.keys() - {"a wrapped async function"})
)  # which is awaited outside of its wrapper
def test_a_traceback_which_a_framework_shows_the_model_has_no_code_of_evalkits(
    shop: Any, kind: str, error: Any
) -> None:
    target, call, _ = KINDS[kind]
    dispatcher = dispatcher_of({"f": {"$error": error}})
    with patch_functions(declared(shop, f=target), dispatcher), pytest.raises(Exception, match="f ") as raised:
        call(shop)
    own = (str(Path(evalkit.__file__).parent), contextlib.__file__)
    files = [frame.filename for frame in traceback.extract_tb(raised.tb)]
    assert ([file for file in files if file.startswith(own)], raised.typename) == (
        [],
        "FunctionError" if error == "timeout" else "TimeoutError",
    )


def test_code_under_test_gets_the_objects_that_a_callable_makes(shop: Any, make_module: Any) -> None:
    source = """
    import dataclasses
    @dataclasses.dataclass
    class Warranty:
        status: str
    class Opaque: ...
    def find(serial): return Warranty("valid") if serial else Opaque()
    def numbers(n): yield from range(n)
    """
    module = make_module(source)
    target = f"{module.__name__}:"
    dispatcher = dispatcher_of({"f": {"$call": target + "find"}, "s": {"$call": target + "numbers"}})
    with patch_functions(declared(shop, f="check", s="stream"), dispatcher):
        assert shop.check("SN1") == module.Warranty("valid")
        assert isinstance(shop.check(""), module.Opaque)
        assert list(shop.stream(3)) == [0, 1, 2]
    results = [call.result for call in dispatcher.calls]
    assert results == [{"status": "valid"}, f"<{module.__name__}.Opaque>", "<generator>"]


def test_objects_among_the_arguments_are_on_record_as_text(shop: Any) -> None:
    dispatcher = dispatcher_of({"f": 1})
    with patch_functions(declared(shop, f="check"), dispatcher):
        shop.check(shop.client)
    assert dispatcher.calls[0].arguments == {"serial": f"<{shop.__name__}.Client>"}


def test_the_real_function_answers_where_the_mock_and_the_settings_say_so(shop: Any) -> None:
    async def collect() -> list[Any]:
        return [item async for item in shop.astream(1)]

    real = {"$real": True}
    dispatcher = dispatcher_of(dict.fromkeys("fgamsrt", real), allow_real=True)
    targets = {"f": "check", "g": "Client.check", "a": "acheck", "m": "Client.make", "s": "stream", "r": "recursive"}
    targets["t"] = "astream"
    with patch_functions(declared(shop, **targets), dispatcher):
        assert (
            shop.check("1")
            == shop.client.check("2")
            == asyncio.run(shop.acheck("3"))
            == shop.Client.make("4")
            == "real"
        )
        assert list(shop.stream(2)) == ["real", "real"]
        assert asyncio.run(collect()) == ["real"]
        assert shop.recursive(3) == "real"
        assert dispatcher.call("f", {"serial": "5"}) == asyncio.run(dispatcher.acall("a", {"serial": "6"})) == "real"
    names = [call.name for call in dispatcher.calls]
    assert names == ["f", "g", "a", "m", "s", "t", "r", "f", "a"]
    assert len(shop.REACHED) == 10

    refused = dispatcher_of({"f": real})
    with patch_functions(declared(shop, f="check"), refused), pytest.raises(MockError, match="does not allow"):
        shop.check("1")
    assert len(shop.REACHED) == 10


def test_an_exception_of_the_real_function_reaches_the_caller_as_it_is(shop: Any) -> None:
    dispatcher = dispatcher_of({"f": {"$real": True}}, allow_real=True)
    with patch_functions(declared(shop, f="sqrt"), dispatcher), pytest.raises(ValueError, match="math domain error"):
        shop.sqrt(-1.0)
    assert dispatcher.calls[0].result == {"error": {"type": "ValueError", "message": "math domain error"}}
    assert dispatcher.fault is None


def test_a_target_that_is_not_there_is_named_with_what_is_near(shop: Any) -> None:
    declaration = Declaration(name="check_warranty", patch=f"{shop.__name__}:chek")
    with pytest.raises(MockError) as raised, patch_functions([declaration], dispatcher_of({})):
        pass
    text = f"functions.check_warranty.patch: module '{shop.__name__}' has no 'chek'; did you mean 'check'?"
    assert str(raised.value) == text


def test_a_target_that_cannot_be_replaced_leaves_the_others_as_they_were(make_module: Any) -> None:
    module = make_module(
        """
        class Fixed:
            __slots__ = ()
            def check(self): return "real"
        fixed = Fixed()
        def other(): return "real"
        """
    )
    with (
        pytest.raises(MockError) as raised,
        patch_functions(declared(module, o="other", f="fixed.check"), dispatcher_of({})),
    ):
        pass
    assert str(raised.value).startswith(f"'{module.__name__}:fixed.check' can't be patched: ")
    assert (module.other(), module.fixed.check()) == ("real", "real")


def test_the_function_is_back_after_an_exception(shop: Any) -> None:
    with pytest.raises(ZeroDivisionError), patch_functions(declared(shop, f="check"), dispatcher_of({"f": 1})):
        raise ZeroDivisionError
    assert shop.check("1") == "real"


def test_a_target_is_restored_when_its_last_case_ends(shop: Any) -> None:
    one, other = dispatcher_of({"f": 1}), dispatcher_of({"f": 2})
    with patch_functions(declared(shop, f="check"), one):
        with patch_functions(declared(shop, f="check"), other):
            assert shop.check("1") == 2
        assert shop.check("1") == 1
    assert shop.check("1") == "real"


def test_a_case_that_does_not_patch_a_function_gets_the_real_one(shop: Any) -> None:
    async def collect() -> list[Any]:
        return [item async for item in shop.astream(1)]

    functions = declared(shop, f="check", a="acheck", s="stream", g="astream")
    with patch_functions(functions, dispatcher_of({"f": 1})):
        with patch_functions((), dispatcher_of({})):
            assert shop.check("1") == asyncio.run(shop.acheck("1")) == "real"
            assert list(shop.stream(1)) == asyncio.run(collect()) == ["real"]
        assert shop.check("1") == 1


def without_context(call: Any) -> Any:
    """The outcome of `call` in a thread that knows of no case."""
    import contextvars

    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    contextvars.Context().run(thread.start)
    thread.join()
    return outcome[0]


def test_a_call_without_context_is_the_only_active_cases(shop: Any) -> None:
    dispatcher = dispatcher_of({"f": "mocked"})
    with patch_functions(declared(shop, f="check"), dispatcher):
        assert without_context(lambda: shop.check("1")) == "mocked"
    assert len(dispatcher.calls) == 1


@pytest.mark.parametrize("is_pythons", [True, False])
def test_a_function_of_python_itself_is_the_real_one_in_an_older_thread(shop: Any, is_pythons: bool) -> None:
    """All code calls it; a call of the application's own function can only be the case's."""
    module, name = (calendar, "isleap") if is_pythons else (shop, "check")
    go, answers = threading.Event(), list[Any]()

    def work() -> None:
        go.wait(10)
        answers.append(getattr(module, name)(4))

    thread = threading.Thread(target=work)
    thread.start()
    dispatcher = dispatcher_of({"f": "mocked"})
    with patch_functions([Declaration(name="f", patch=f"{module.__name__}:{name}")], dispatcher):
        go.set()
        thread.join()
        assert without_context(lambda: getattr(module, name)(4)) == "mocked"
    assert answers == [True if is_pythons else "mocked"]
    assert len(dispatcher.calls) == (1 if is_pythons else 2)


def test_a_call_without_context_among_several_cases_is_refused_and_blamed_on_all_it_may_belong_to(shop: Any) -> None:
    one, other, bystander = dispatcher_of({"f": 1}), dispatcher_of({"f": 2}), dispatcher_of({})
    functions = declared(shop, f="check")
    with patch_functions(functions, one), patch_functions(functions, other), patch_functions((), bystander):
        error = without_context(lambda: shop.check("1"))
    text = (
        f"{shop.__name__}:check was called outside of any case while 3 cases run, so nobody knows whose call it is; "
        "hand work to older threads with evalkit.bind(function), or run one case at a time"
    )
    assert isinstance(error, MockError)
    assert str(error) == text
    assert one.fault is other.fault is error
    assert bystander.fault is None
    assert (shop.REACHED, one.calls, other.calls) == ([], (), ())


def test_a_call_after_its_case_was_over_does_not_reach_the_real_function(shop: Any) -> None:
    functions = declared(shop, f="check")
    late: list[Any] = []
    go = threading.Event()

    def straggler() -> None:
        go.wait(10)
        try:
            late.append(shop.check("late"))
        except MockError as error:
            late.append(str(error))

    with patch_functions(functions, dispatcher_of({"f": 1})):
        thread = threading.Thread(target=straggler)
        thread.start()
    later = dispatcher_of({"f": 2})
    with patch_functions(functions, later):
        go.set()
        thread.join()
    text = (
        f"{shop.__name__}:check was called from a thread or task of a case that is over; "
        "hand work to older threads with evalkit.bind(function), or run one case at a time"
    )
    assert late == [text]
    assert str(later.fault) == text  # a worker that an earlier case left behind may have been doing this case's work
    assert (shop.REACHED, later.calls) == ([], ())


def test_the_patches_of_an_abandoned_case_can_be_kept(shop: Any) -> None:
    late: list[Any] = []
    go = threading.Event()

    def straggler() -> None:
        go.wait(10)
        try:
            shop.check("late")
        except MockError:
            late.append("refused")

    with patch_functions(declared(shop, f="check"), dispatcher_of({"f": 1})) as case:
        thread = threading.Thread(target=straggler)
        thread.start()
        case.keep_installed()
    assert shop.check("someone else's") == "real"
    go.set()
    thread.join()
    assert late == ["refused"]
    assert shop.REACHED == [("check", "someone else's")]
    case.release()
    case.release()  # once is enough
    assert threading.Thread.start.__module__ == "threading"


@pytest.mark.parametrize("start", ["task", "thread", "executor"])
def test_what_a_case_leaves_running_never_reaches_a_real_function(shop: Any, start: str) -> None:
    late: list[str] = []

    async def calls_late(go: asyncio.Event) -> None:
        await go.wait()
        call()

    def call() -> None:
        with pytest.raises(MockError, match="of a case that is over"):
            shop.check("late")
        late.append("refused")

    def calls_when_free() -> None:
        free.wait(10)
        call()

    free = threading.Event()

    async def running() -> None:
        go = asyncio.Event()
        with ThreadPoolExecutor(1) as executor:
            with patch_functions(declared(shop, f="check"), dispatcher_of({"f": 1})):
                if start == "task":
                    left: Any = asyncio.create_task(calls_late(go))
                elif start == "thread":
                    left = threading.Thread(target=calls_when_free)
                    left.start()
                else:
                    left = executor.submit(calls_when_free)
            assert shop.check("someone else's") == "real"
            go.set()
            free.set()
            if start == "task":
                await left
                await asyncio.sleep(0)
            else:
                (left.join if start == "thread" else left.result)(10)
        assert "__signature__" not in vars(shop.check)  # it is as it was before

    asyncio.run(running())
    assert late == ["refused"]
    assert shop.REACHED == [("check", "someone else's")]


def test_threads_and_executors_that_the_agent_starts_are_in_its_case(shop: Any) -> None:
    dispatcher = dispatcher_of({"f": "mocked"})

    class Worker(threading.Thread):
        def run(self) -> None:
            found.append(shop.check("subclass"))

    async def in_loop() -> list[Any]:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as own:
            return [
                await loop.run_in_executor(None, shop.check, "default executor"),
                await loop.run_in_executor(own, shop.check, "own executor"),
                await asyncio.to_thread(shop.check, "to_thread"),
            ]

    found: list[Any] = []
    with patch_functions(declared(shop, f="check"), dispatcher):
        threads = [
            threading.Thread(target=lambda: found.append(shop.check("thread"))),
            threading.Timer(0, lambda: found.append(shop.check("timer"))),
            Worker(),
        ]
        for thread in threads:
            thread.start()
            thread.join()
        with ThreadPoolExecutor(2) as pool:
            found += pool.map(shop.check, ["map 1", "map 2"])
        found += asyncio.run(in_loop())
    assert found == ["mocked"] * 8
    assert shop.REACHED == []


def test_a_pool_that_outlives_the_case_forgets_it(shop: Any) -> None:
    functions = declared(shop, f="check")
    with ThreadPoolExecutor(1) as pool:
        with patch_functions(functions, dispatcher_of({"f": 1})):
            assert pool.submit(shop.check, "1").result() == 1
        assert pool.submit(shop.check, "2").result() == "real"
        with patch_functions(functions, dispatcher_of({"f": 3})):
            assert pool.submit(shop.check, "3").result() == 3


def test_only_the_case_is_carried_not_the_agents_own_context_variables(shop: Any) -> None:
    import contextvars

    own = contextvars.ContextVar("own", default="default")
    found: list[str] = []
    with patch_functions(declared(shop, f="check"), dispatcher_of({"f": 1})):
        own.set("set")
        thread = threading.Thread(target=lambda: found.append(own.get()))
        thread.start()
        thread.join()
    assert found == ["default"]


def test_bind_ties_work_for_older_threads_to_its_case(shop: Any) -> None:
    import queue

    work: queue.Queue[Any] = queue.Queue()
    done: queue.Queue[Any] = queue.Queue()

    def worker() -> None:
        while (task := work.get()) is not None:
            done.put(task())

    async def acheck() -> Any:
        return await shop.acheck("2")

    thread = threading.Thread(target=worker)
    thread.start()
    functions = declared(shop, f="check", a="acheck")
    with (
        patch_functions(functions, dispatcher_of({})),
        patch_functions(functions, dispatcher_of({"f": "one", "a": "two"})),
    ):
        bound = bind(acheck)
        assert inspect.iscoroutinefunction(bound)
        assert bound.__name__ == "acheck"
        work.put(bind(lambda: shop.check("1")))
        assert done.get(timeout=10) == "one"
        work.put(lambda: asyncio.run(bound()))
        assert done.get(timeout=10) == "two"
    work.put(None)
    thread.join()


def test_bind_outside_of_a_case_gives_the_function_back(shop: Any) -> None:
    assert bind(shop.check) is shop.check


def test_patching_a_reloaded_module_patches_its_new_function(shop: Any) -> None:
    import importlib

    functions = declared(shop, f="check")
    with patch_functions(functions, dispatcher_of({"f": 1})):
        assert shop.check("1") == 1
    again = importlib.reload(shop)
    with patch_functions(functions, dispatcher_of({"f": 2})):
        assert again.check("1") == 2
    assert again.check("1") == "real"


def test_two_names_of_one_function_share_its_hook(shop: Any, make_module: Any) -> None:
    agent = make_module(AGENT.format(shop=shop.__name__))
    one, other = dispatcher_of({"f": 1}), dispatcher_of({"g": 2})
    with patch_functions(declared(shop, f="check"), one):
        with patch_functions(declared(agent, g="check"), other):
            assert shop.check("1") == agent.check("1") == 2
        assert shop.check("1") == agent.check("1") == 1
    assert shop.check("1") == agent.check("1") == "real"


@pytest.mark.parametrize("target", ["check", "closed", "acheck", "stream", "astream", "Client.check"])
def test_the_variables_of_a_patched_function_are_in_its_code(shop: Any, target: str) -> None:
    """Frameworks look there for parameters of their own, as in ``"context_variables" in f.__code__.co_varnames``."""
    owner = shop.Client if "." in target else shop
    function = getattr(owner, target.rpartition(".")[2])
    before = function.__code__.co_varnames
    with patch_functions(declared(shop, f=target), dispatcher_of({"f": ["mocked"]})):
        assert set(before) <= set(function.__code__.co_varnames)
    assert function.__code__.co_varnames == before


SHOWN = """
import inspect

def forward(location, days=1): raise AssertionError("real")
_self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
forward.__signature__ = inspect.Signature([_self, *inspect.signature(forward).parameters.values()])

def variadic(*args): raise AssertionError("real")
variadic.__signature__ = forward.__signature__
"""


def test_arguments_are_bound_as_python_binds_them_whatever_signature_is_shown(make_module: Any) -> None:
    """smolagents shows a `self` on functions that take none."""
    shown = make_module(SHOWN)
    dispatcher = dispatcher_of({"f": "mocked", "g": "mocked"})
    with patch_functions(declared(shown, f="forward", g="variadic"), dispatcher):
        assert str(inspect.signature(shown.forward)) == "(self, location, days=1)"
        shown.forward("Paris")
        shown.forward("Paris", days=2)
        shown.variadic()
    assert [(call.arguments, call.problem) for call in dispatcher.calls] == [
        ({"location": "Paris"}, None),
        ({"location": "Paris", "days": 2}, None),
        ({}, None),
    ]


TOOLS = """
import json

REACHED = []
TABLE = {"check": lambda serial: REACHED.append(serial) or "real", "open": lambda: "opened"}

def execute(name, args):
    return TABLE[name](**(json.loads(args) if isinstance(args, str) else args))

class Box:
    async def run(self, tool, *, arguments=None):
        return TABLE[tool](**arguments)
"""


def test_a_function_that_calls_others_by_name_is_answered_as_they_are(make_module: Any) -> None:
    tools = make_module(TOOLS)
    targets = dict.fromkeys(("check", "open"), "execute( name, args )")
    mocks = {"check": {"status": "valid"}, "open": {"$real": True}}
    dispatcher = dispatcher_of(mocks, allow_real=True)
    with patch_functions(declared(tools, **targets), dispatcher):
        assert tools.execute("check", {"serial": "SN1"}) == {"status": "valid"}
        assert tools.execute(args='{"serial": "SN2"}', name="check") == {"status": "valid"}
        assert tools.execute("open", {}) == "opened"
        for name, args in (("delete", {}), ("check", "{broken")):
            with pytest.raises((FunctionError, TypeError)):
                tools.execute(name, args)
    assert [(call.name, call.arguments, call.problem) for call in dispatcher.calls] == [
        ("check", {"serial": "SN1"}, None),
        ("check", {"serial": "SN2"}, None),
        ("open", {}, None),
        ("delete", {}, "unmocked_call"),
        ("check", "{broken", "malformed_call"),
    ]
    assert tools.REACHED == []
    assert tools.execute("check", {"serial": "SN3"}) == "real"


def test_an_async_method_that_calls_others_by_name_is_patched_too(make_module: Any) -> None:
    tools = make_module(TOOLS)
    dispatcher = dispatcher_of({"check": 1})
    with patch_functions(declared(tools, check="Box.run(tool, arguments)"), dispatcher):
        assert asyncio.run(tools.Box().run("check", arguments={"serial": "SN1"})) == 1
        assert asyncio.run(tools.Box().run("check")) == 1
    assert [call.arguments for call in dispatcher.calls] == [{"serial": "SN1"}, {}]


def test_a_parameter_that_a_dispatching_function_does_not_have_is_a_problem_of_the_file(make_module: Any) -> None:
    tools = make_module(TOOLS)
    target = f"{tools.__name__}:execute"
    _, problems = parse_declarations({"check": {"patch": f"{target}(name, arg)"}})
    assert [problem.message for problem in problems] == [
        f"cannot patch: '{target}' has no parameter 'arg'; did you mean 'args'?"
    ]
