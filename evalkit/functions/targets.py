"""Python objects that a case names: ``module:function``, ``module:Class.method``."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Awaitable, Callable
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from evalkit.errors import MockError, did_you_mean
from evalkit.functions.permissions import explain_callable, explain_import, explain_replacement, is_installed
from evalkit.functions.threads import start_daemon_thread
from evalkit.jsonvalue import JsonDict, JsonObject, parse_arguments
from evalkit.lazy import LazyModule
from evalkit.records.case import Permissions
from evalkit.text.format import format_count

if TYPE_CHECKING:
    from evalkit.functions import tool_objects
else:
    tool_objects = LazyModule("evalkit.functions.tool_objects")

AgentObject = Any  # an object of the user's code: a module, a class, a function, or what they hold
AnyFunction = Callable[..., Any]  # of the user's, whatever it takes and returns

_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_TARGET = re.compile(rf"({_DOTTED}):({_DOTTED})")
_DISPATCHING = re.compile(rf"({_DOTTED}:{_DOTTED})\(\s*([^\W\d]\w*)\s*,\s*([^\W\d]\w*)\s*\)")
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class TargetError(Exception):
    """A target that names nothing; the text says which step fails, and what is near."""


class TargetObject(NamedTuple):
    """`value` is the attribute `name` of `owner`, a module or a class."""

    owner: AgentObject
    name: str
    value: AgentObject


def check_form(target: object, example: str) -> re.Match[str]:
    """TargetError for what can't be a target, whatever there is to import; `example` shows the form in its text."""
    match = _TARGET.fullmatch(target) if isinstance(target, str) else None
    if match is None:
        raise TargetError(f"{target!r} does not name a Python object; write it as {example!r}")
    return match


def refuse_import(target: object, example: str, permissions: Permissions | None, *, is_called: bool) -> None:
    """Raise TargetError if a file may not name `target`: see `permissions`."""
    reason = explain_import(check_form(target, example)[1], permissions, is_called=is_called)
    if reason:
        raise TargetError(f"'{target}' is refused: {reason}")


def find_callable(target: str, example: str, permissions: Permissions | None) -> object:
    """Find the object that a file names to be called. TargetError if there is none, or the file may not call it."""
    refuse_import(target, example, permissions, is_called=True)
    value: object = find_object(target, example).value
    reason = explain_callable(target, permissions)
    if reason:
        raise TargetError(f"'{target}' is refused: {reason}")
    return value


def find_object(target: object, example: str) -> TargetObject:
    """Import and walk to `target`. TargetError where that is impossible; `example` shows the form in its text."""
    match = check_form(target, example)
    owner: object = None
    try:
        value: AgentObject = importlib.import_module(match[1])
    except ModuleNotFoundError as error:
        if error.name is None or not f"{match[1]}.".startswith(f"{error.name}."):
            raise TargetError(f"importing '{match[1]}' failed: {error}") from error
        raise TargetError(f"there is no module '{error.name}'{_suggest_module(error.name)}") from None
    except Exception as error:
        raise TargetError(f"importing '{match[1]}' failed: {type(error).__name__}: {error}") from error
    for name in match[2].split("."):
        owner = value
        try:
            value = getattr(owner, name)
        except AttributeError:
            is_like_module = hasattr(owner, "__path__") or is_module(owner)
            kind = "class" if isinstance(owner, type) else "module" if is_like_module else "object"
            owner_name = getattr(owner, "__qualname__", None) or getattr(owner, "__name__", owner)
            hint = did_you_mean(name, [candidate for candidate in dir(owner) if not candidate.startswith("__")])
            raise TargetError(f"{kind} '{owner_name}' has no '{name}'{hint}") from None
    return TargetObject(owner, name, value)


def _suggest_module(name: str) -> str:
    """Return the nearest sibling, if the package that should hold the module exists."""
    import pkgutil

    package, _, last = name.rpartition(".")
    parent = sys.modules.get(package)
    places = getattr(parent, "__path__", None) if package else None
    if not package:
        # Installed packages and the standard library are not what a case means.
        installed = ("site-packages", "dist-packages", "lib-dynload")
        places = [
            place
            for place in sys.path
            if not place.startswith(sys.base_prefix) and not any(word in place for word in installed)
        ]
    if places is None:
        return ""
    hint = did_you_mean(last, [module.name for module in pkgutil.iter_modules(places)])
    return hint or (f" in {package}" if package else "")


# ---- patch targets ----

PLAIN, ASYNC, GENERATOR, ASYNC_GENERATOR = "plain", "async", "generator", "async generator"

_PATCH_EXAMPLE = "shop.clients:WarrantyClient.check"
_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8  # of a class's __flags__


class Dispatch(Struct, frozen=True):
    """The parameters of a function that calls others by name, as in ``execute(name, args)``: which one holds the name,
    and which one the arguments."""

    name: str
    arguments: str

    def read_call(self, arguments: JsonObject) -> tuple[str, object]:
        """Return the name and the arguments of the call that a call of the dispatching function asks for."""
        inner = arguments.get(self.arguments)
        if isinstance(inner, (str, bytes)):
            inner, problem = parse_arguments(inner if isinstance(inner, str) else inner.decode("utf-8", "replace"))
            if problem is not None:
                return str(arguments.get(self.name)), arguments.get(self.arguments)
        return str(arguments.get(self.name)), {} if inner is None else inner


class PatchTarget(Struct, frozen=True, eq=False):
    """A callable attribute: where it lives, and what is called in the end.

    `stored` is the attribute as the owner's dictionary holds it, e.g. a classmethod object, `function` what is under
    it. `takes_self`: its first argument is an instance or class, which is no argument of the function.
    """

    text: str
    owner: AgentObject
    name: str
    stored: object
    function: AnyFunction
    kind: str
    takes_self: bool
    signature: inspect.Signature | None  # without self; None where Python does not know
    own_signature: inspect.Signature | None = None  # by which Python binds, where `signature` only shows another one
    dispatch: Dispatch | None = None

    @property
    def by_code(self) -> bool:
        """True if the function itself can be changed, so that every reference to it is patched. Not a function that a
        base class owns: other classes have it too."""
        is_inherited = isinstance(self.owner, type) and self.name not in vars(self.owner)
        return type(self.function) is FunctionType and not is_inherited

    @property
    def is_object(self) -> bool:
        """True of an object of the project's own that is called: it gets another class, and stays what it is."""
        return not is_native(self.stored) and self.stored is self.function and has_own_call(self.function)

    def name_arguments(self, args: tuple[object, ...], kwargs: JsonObject) -> JsonDict:
        """Return the arguments by name, as they were passed (no defaults). TypeError where they don't fit."""
        positional = args[1:] if self.takes_self else args
        signature = self.signature
        if signature is None:
            return {**({"args": list(positional)} if positional else {}), **kwargs}
        arguments: JsonDict = {}
        try:
            bound_arguments = signature.bind(*positional, **kwargs).arguments
        except TypeError:
            if self.own_signature is None:
                raise
            signature = self.own_signature
            bound_arguments = signature.bind(*positional, **kwargs).arguments
        for name, value in bound_arguments.items():
            kind = signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                arguments.update(value)
            else:
                arguments[name] = list(value) if kind is inspect.Parameter.VAR_POSITIONAL else value
        return arguments


def find_patch_target(text: object, permissions: Permissions | None = None, agent: object = None) -> PatchTarget:
    """Return the target that `text` names. TargetError where there is none, or none that can or may be replaced.

    A file, which has `permissions`, may not replace what judges, nor the `agent` that it names.
    """
    dispatching = _DISPATCHING.fullmatch(text) if isinstance(text, str) else None
    target = dispatching[1] if dispatching else text
    refuse_import(target, _PATCH_EXAMPLE, permissions, is_called=False)
    owner, name, value = find_object(target, _PATCH_EXAMPLE)
    stored = inspect.getattr_static(owner, name, value)
    if isinstance(value, type):
        methods = (key for key, item in vars(value).items() if not key.startswith("_") and callable(item))
        raise TargetError(f"'{text}' is a class; name one of its methods, as in '{text}.{next(methods, 'method')}'")
    if isinstance(owner, type) and (not owner.__flags__ & _HEAP_TYPE or owner.__flags__ & _IMMUTABLE_TYPE):
        raise TargetError(f"'{text}' belongs to a built-in type, whose methods Python does not let be replaced")
    held = None if isinstance(stored, property) or is_native(value) else _find_held(str(target), owner, value)
    if held is None and (isinstance(stored, property) or not callable(value)):
        description = "a property" if isinstance(stored, property) else f"no function but a {type(value).__name__}"
        raise TargetError(f"'{text}' is {description}")
    function, takes_self = held or _choose_function(owner, stored, value)
    shown, own = _find_signatures(function, takes_self)
    if permissions is not None and (reason := explain_replacement(owner, value, stored, function, agent=agent)):
        raise TargetError(f"'{text}' is refused: {reason}")
    dispatch = None if dispatching is None else _read_dispatch(dispatching, shown)
    kind = _find_kind(function)
    return PatchTarget(str(text), owner, name, stored, function, kind, takes_self, shown, own, dispatch)


def _choose_function(owner: object, stored: Any, value: Any) -> tuple[AnyFunction, bool]:
    """Return the function of a target that no object holds, and whether it takes the instance or class first."""
    if isinstance(stored, (staticmethod, classmethod)):
        return stored.__func__, isinstance(stored, classmethod)
    if isinstance(owner, type):
        return stored, hasattr(stored, "__get__")
    return value, False


def _find_signatures(
    function: AnyFunction, takes_self: bool
) -> tuple[inspect.Signature | None, inspect.Signature | None]:
    """Return the signature that a function shows, and its own where it shows another one."""
    shown, own = _find_signature(function, takes_self), None
    if type(function) is FunctionType and "__signature__" in vars(function):
        own = _find_signature(copy_bare(function), takes_self)
        if own is not None and not any(parameter.kind in _VARIABLE for parameter in own.parameters.values()):
            shown = own  # Python binds by names, whatever is shown
    return shown, own


def _read_dispatch(dispatching: re.Match[str], shown: inspect.Signature | None) -> Dispatch:
    """Return how a function that dispatches calls is patched. Raise TargetError for a parameter that it lacks."""
    names = [] if shown is None else list(shown.parameters)
    for name in dispatching.groups()[1:]:
        if name not in names:
            hint = did_you_mean(name, names) or f"; it has {', '.join(names) or 'none'}"
            raise TargetError(f"'{dispatching[1]}' has no parameter '{name}'{hint}")
    return Dispatch(dispatching[2], dispatching[3])


def find_patch_problem(
    text: object, *, check_exists: bool = True, permissions: Permissions | None = None, agent: object = None
) -> str | None:
    """Find why `text` can't or may not be patched; None if it can.

    Without `check_exists` nothing is imported, and only its form is judged. `agent`: see `find_patch_target`.
    """
    try:
        if check_exists:
            find_patch_target(text, permissions, agent)
        elif not isinstance(text, str) or ":" not in text:
            raise TargetError(f"{text!r} does not name a Python object; write it as {_PATCH_EXAMPLE!r}")
    except TargetError as error:
        return str(error)
    return None


def is_native(value: object) -> bool:
    """Return whether `value` is a function as Python or C knows it (`lru_cache`, Cython's, a `partial`), or plain data,
    and no object that holds a function."""
    kind = type(value)
    if isinstance(value, FunctionType | MethodType) or not kind.__flags__ & _HEAP_TYPE:
        return True
    called = next((vars(base)["__call__"] for base in kind.__mro__ if "__call__" in vars(base)), None)
    return isinstance(called, WrapperDescriptorType | MethodDescriptorType)


def has_own_call(value: object) -> bool:
    """Return whether the class of `value` says in Python what happens when it is called."""
    owner = next((base for base in type(value).__mro__ if "__call__" in vars(base)), None)
    return owner is not None and type(vars(owner)["__call__"]) is FunctionType and not _is_of_package(owner)


def _is_of_package(owner: type) -> bool:
    file = getattr(sys.modules.get(owner.__module__), "__file__", None)
    return file is None or is_installed(file)


def _find_held(target: str, owner: object, value: object) -> tuple[FunctionType, bool] | None:
    """Return the function in an object, and whether it takes an instance first; None of an object that is no tool.

    TargetError where an object holds several, or none that can be found: it says what to name.
    """
    module, _, path = target.partition(":")
    name = path.rpartition(".")[2]
    held = tool_objects.find_held_functions(value, module, name)
    kind, is_called = type(value), has_own_call(value)
    if len(held) == 1:
        function, _, takes_self = held[0]
        is_method = isinstance(owner, type) and function.__qualname__.startswith(f"{owner.__qualname__}.")
        if not is_called or tool_objects.has_home(function, module, name):
            return function, takes_self or is_method
    if not held and is_called:
        return None
    own_class = next((base for base in kind.__mro__ if not _is_of_package(base)), object)
    own_functions = [item for item in vars(own_class).values() if type(item) is FunctionType]
    methods = [item.__name__ for item in own_functions if item.__module__ == own_class.__module__]
    names = [f"{target}.{one[1]}" for one in held if isinstance(getattr(value, one[1], None), FunctionType)]
    names += [f"{kind.__module__}:{kind.__qualname__}.__call__"] if names and is_called else []
    names = names or [f"{kind.__module__}:{own_class.__qualname__}.{key}" for key in methods if key != "__init__"]
    advice = " or ".join(f"'{one}'" for one in names[:3]) or "the function that it is made of"
    count = format_count(len(held), "function") if held else "no function of the project's own"
    raise TargetError(f"'{target}' is an object ({kind.__name__}) that holds {count}; write {advice}")


def suggest_target(name: str, permissions: Permissions | None) -> str | None:
    """Return a function of that name in the project's own modules, as `patch` names it; None if there is none."""
    targets = [
        f"{module}:{function.__qualname__}"
        for module, space in sorted(sys.modules.items())
        if is_module(space) and isinstance(function := vars(space).get(name), FunctionType)
        if function.__module__ == module and explain_import(module, permissions, is_called=True) == ""
    ]
    return targets[0] if len(targets) == 1 else None


def is_foreign(function: object) -> bool:
    """Return whether `function` is Python's or an installed package's, and not the project's own."""
    code = getattr(function, "__code__", None)
    return isinstance(function, BuiltinFunctionType) if code is None else is_installed(code.co_filename)


def is_module(owner: object) -> bool:
    return isinstance(owner, ModuleType)


def _find_kind(function: AnyFunction) -> str:
    if inspect.isasyncgenfunction(function):
        return ASYNC_GENERATOR
    if inspect.isgeneratorfunction(function):
        return GENERATOR
    # A plain wrapper around an async function (a decorator with functools.wraps) returns its coroutine.
    inner = inspect.unwrap(function)
    called = None if isinstance(inner, functools.partial) else type(inner).__call__
    return ASYNC if inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(called) else PLAIN


def copy_bare(function: FunctionType) -> FunctionType:
    """Copy a function without its attributes, which may show something else than its code."""
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = function.__qualname__
    return copy


def _find_signature(function: AnyFunction, takes_self: bool) -> inspect.Signature | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    parameters = list(signature.parameters.values())
    named_first = bool(parameters) and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL
    return signature.replace(parameters=parameters[1:]) if takes_self and named_first else signature


# ---- callables of `$call` ----

_RUN_NAMES = ("state", "input", "task")
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_CALL_EXAMPLE = "mocks.warranty:create_ticket"


class ArgumentsRefusedError(Exception):
    """The callable does not take these arguments."""


def load_callable(target: str) -> AnyFunction:
    """Import what `$call` names. It existed when the case was loaded; in a worker process it may be missing."""
    try:
        function = find_object(target, _CALL_EXAMPLE).value
    except TargetError as error:
        raise MockError(f"$call {target}: {error}") from error
    if not callable(function):
        raise MockError(f"$call {target}: it is not callable")
    return function  # type: ignore[no-any-return]


def is_async(function: AnyFunction) -> bool:
    """Return whether calling `function` only makes a coroutine, so that its first step is still to come."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def bind_arguments(function: AnyFunction, arguments: JsonObject, run: JsonObject) -> Callable[[], object]:
    """Return `function` with its arguments filled in, ready to be called. ArgumentsRefusedError where they don't fit.

    Parameters named `state`, `input` or `task` get the run's, unless an argument has that name; positional-only ones
    get the run's always.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some C functions have none
        return lambda: function(**arguments)
    first: list[object] = []
    named = dict(arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            if name in _RUN_NAMES:
                first.append(run[name])
            elif name in named:
                first.append(named.pop(name))
        elif name in _RUN_NAMES and name not in named and parameter.kind in _BY_NAME:
            named[name] = run[name]
    try:
        signature.bind(*first, **named)
    except TypeError as error:
        raise ArgumentsRefusedError(str(error)) from None
    return lambda: function(*first, **named)


def wait_for(awaitable: Awaitable[object]) -> object:
    """Wait for `awaitable` in code that is not async: in a loop of its own, beside one that may be running."""

    async def run_awaitable() -> object:
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run_awaitable())
    context = contextvars.copy_context()
    outcome: list[object] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(context.run(asyncio.run, run_awaitable()))
        except BaseException as error:  # handed on below, in the thread that waits
            failure.append(error)

    start_daemon_thread(run, "evalkit-async-mock").join()
    if failure:
        raise failure[0]
    return outcome[0]
