"""What a case file may start or import: the project's own code, and what [tool.evalkit] allows beside it.

A case file is data, and may come from somebody who may not change code: a pull request that adds one YAML file. So it
names, but does not choose, what runs. Code is the project's own if its file lies below the project's root or in
pytest's `pythonpath`, and neither in an environment nor in a folder of packages. `$call` and `agent: module:function`
run own code alone, not what an own module has imported. `patch` and `exception` run nothing: a module that the project
has imported by itself is allowed, too. A command is an own program, or an interpreter of an own script.

With `untrusted` nothing runs that data names, whatever the configuration allows.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path, PurePath
from types import ModuleType
from urllib.parse import unquote_plus, urlsplit

from evalkit.errors import KeyPath, format_path
from evalkit.fields.reader import FieldReader
from evalkit.hooks import find_agent_form
from evalkit.records.case import Permissions
from evalkit.records.registry import AGENTS, CHECKS, OPERATORS
from evalkit.text.url import is_loopback

_FOREIGN = frozenset({"node_modules", "site-packages", "dist-packages"})
_INTERPRETERS = re.compile(
    r"(python[0-9.]*|pypy[0-9.]*|node|nodejs|bun|deno|ruby|perl|php|lua|julia|Rscript|bash|sh)(\.exe)?"
)
_PYTHON_FLAGS = frozenset(("-u", "-B", "-E", "-I", "-P", "-s", "-S", "-O", "-OO", "-q"))
# What an interpreter or the system runs, by its kind. A file without an ending is code if it begins as such files do.
_CODE_SUFFIXES = frozenset(
    (
        *(".py", ".pyw", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx", ".sh", ".bash", ".rb"),
        *(".pl", ".php", ".lua", ".jl", ".r", ".exe", ".bat", ".cmd", ".ps1"),
    )
)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # more than the letter of a drive
_CODE_MAGIC = (b"#!", b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_CODE, _HOST, _KEY = "gives it other code to run", "chooses a host, or what is trusted as one", "is a key"
# Variables that a case does not set, by families: a new member of a family is one of them.
VARIABLE_FAMILIES: Mapping[str, tuple[str, str]] = {
    "names that are no words": (_CODE, r".*[^A-Z0-9_].*|[0-9].*|"),
    "paths of programs, and homes of configuration": (
        _CODE,
        r"PATH|PATHEXT|(.*_)?HOME|USERPROFILE|HOMEDRIVE|HOMEPATH|APPDATA|LOCALAPPDATA|XDG_.*|CDPATH|TERMINFO.*|"
        r".*_CONFIG(_(DIR|FILE|PATH|CONTENT))?|IPYTHONDIR|ODBC.*",
    ),
    "loaders": (
        _CODE,
        r"LD_.*|DYLD_.*|LIBPATH|SHLIB_PATH|GCONV_PATH|GLIBC_TUNABLES|.*_PRELOAD|.*(LIBRARY|PLUGIN|PLUGINS|DRIVERS)_PATH",
    ),
    "shells": (
        _CODE,
        r"BASH.*|ENV|IFS|SHELL|SHELLOPTS|PS[0-9]|PROMPT_COMMAND|ZDOTDIR|FPATH|KSH_.*|INPUTRC|COMSPEC",
    ),
    "programs that others start": (
        _CODE,
        r".*(PAGER|EDITOR|ASKPASS)|(.*_)?(VISUAL|BROWSER|SHELL_PREFIX|BIN|BINARY|EXECUTABLE|EXECUTABLE_PATH|COMMAND|CMD)|"
        r"VIMINIT|EXINIT|LESSOPEN|LESSCLOSE|GIT_.*|HG_.*|HGRCPATH|SVN_.*|MAKE|MAKEFLAGS|MAKEFILES|CC|CXX|"
        r"(C|CPP|CXX|LD)FLAGS",
    ),
    "Python": (
        _CODE,
        r"PYTHON.*|PYPY.*|VIRTUAL_ENV.*|CONDA.*|PIP_.*|UV_.*|POETRY_.*|PDM_.*|PIPENV_.*|PYTEST_.*|COVERAGE_.*|"
        r"COV_CORE_.*|EVALKIT.*|DJANGO_.*|FLASK_.*|GUNICORN_.*|UVICORN_.*|CELERY_.*",
    ),
    "JavaScript": (_CODE, r"NODE.*|NPM_.*|YARN_.*|PNPM_.*|BUN_.*|DENO_.*|TSX_.*|TS_NODE.*|ELECTRON_.*"),
    "Ruby, Perl, PHP, Lua, Julia, R": (
        _CODE,
        r"RUBY.*|GEM_.*|BUNDLE_.*|RAILS_.*|RACK_.*|PERL.*|PHP.*|COMPOSER.*|LUA.*|JULIA_.*|R_.*|RENV_.*",
    ),
    "Java, .NET, Go, Rust": (
        _CODE,
        r"_?JAVA.*|.*_OPTS|JDK_.*|JVM_.*|CLASSPATH|MAVEN_.*|GRADLE_.*|DOTNET_.*|ASPNETCORE_.*|CORECLR_.*|COMPLUS_.*|MONO_.*|CARGO_.*|RUST.*|"
        r"GO(FLAGS|PATH|ROOT|BIN|ENV|PROXY|DEBUG|TOOLCHAIN|PRIVATE|SUMDB|CACHE|MODCACHE|EXPERIMENT|WORK)",
    ),
    "containers and remote machines": (_CODE, r"DOCKER_.*|COMPOSE_.*|KUBE.*|HELM_.*|SSH_.*|RSYNC_.*"),
    "hosts": (
        _HOST,
        r".*(URL|URI|HOST|HOSTS|HOSTNAME|HOSTADDR|ENDPOINT|ENDPOINTS|API_BASE|DSN)|(.*_)?(SERVER|SERVERS|ADDR|ADDRESS)|"
        r".*(DOMAIN|GATEWAY|WEBHOOK)|(.*_)?BROKERS?|.*(BASE_URL|_ENDPOINT_).*|HOSTALIASES|RES_OPTIONS|OTEL_.*|PGSERVICE.*",
    ),
    "proxies": (_HOST, r".*(PROXY|PROXIES)|PROXY_.*"),
    "certificates": (
        _HOST,
        r"SSL.*|OPENSSL_.*|CURL_.*|REQUESTS_.*|.*CA_BUNDLE|.*CA_CERTS?|.*CERT_(FILE|DIR|PATH)|WGETRC|NETRC",
    ),
    "clouds": (
        _HOST,
        r"(AWS|AZURE|GOOGLE|GCLOUD|GCP|CLOUDSDK|VERTEX|VERTEXAI|CLOUD_ML)_.*|"
        r".*(AI|ML|CLOUD|VERTEX|BEDROCK)_(REGION|LOCATION|PROJECT|PROJECT_ID|TENANT|TENANT_ID|ORG|ORG_ID)|"
        r".*USE_(VERTEX|VERTEXAI|BEDROCK|FOUNDRY)",
    ),
    "keys": (
        _KEY,
        r"(.*_)?(KEY|TOKEN|PWD|AUTH|COOKIE)|.*(SECRETS?|PASSWORD|PASSWD|PASSPHRASE|PGPASSFILE|CREDENTIALS?)|"
        r".*(API_?KEY|SECRET|ACCESS_TOKEN|AUTH_TOKEN|CREDENTIALS).*",
    ),
}
_VARIABLE_FAMILIES = [(reason, re.compile(pattern)) for reason, pattern in VARIABLE_FAMILIES.values()]
_MOST_LINKS = 40
# Options of a model that choose neither a host nor who pays.
_MODEL_OPTIONS = frozenset(
    (
        "stream",
        "timeout_s",
        "retries",
        "max_reply_bytes",
        "max_tokens",
        "temperature",
        "drop",
        "api_version",
        "vertexai",
    )
)
UNTRUSTED = "--evalkit-untrusted refuses what runs code that a file names"


def explain_import(module: str, permissions: Permissions | None, *, is_called: bool) -> str:
    """Explain why a file may not name an object of `module`; "" if it may. Nothing is imported.

    `is_called`: the object runs in the end. Otherwise the module is only imported, to replace or to raise the object.
    """
    if permissions is None:
        return ""
    is_loaded = module in sys.modules
    if permissions.untrusted:
        is_harmless = module == "builtins" or (is_loaded and _is_own(module, permissions))
        return "" if is_harmless and not is_called else UNTRUSTED
    if (is_loaded and not is_called) or _is_listed(module, permissions.imports) or _is_own(module, permissions):
        return ""
    return (
        f"'{module}' is not the project's own code; if cases may use it, write "
        f'allow_imports = ["{module.partition(".")[0]}"] into [tool.evalkit]'
    )


def explain_callable(target: str, permissions: Permissions | None) -> str:
    """Explain why a file may not call `target`, whose module is imported; "" if it may.

    An own module has imported others, and what it has of them (`own:os.system`) is not the project's. Nor are the
    methods of its data (`own:LIMITS.update`), and what lies behind a function (`own:check.__globals__.update`).
    """
    module, _, path = target.partition(":")
    if permissions is None or permissions.untrusted or _is_listed(module, permissions.imports):
        return explain_import(module, permissions, is_called=True)
    value: object = sys.modules.get(module)
    for name in path.split("."):
        if name.startswith("__"):
            return f"{name} is Python's own and leads to everything; name a function"
        value = getattr(value, name, None)
        home = value.__name__ if isinstance(value, ModuleType) else None
        if home is None and (inspect.isroutine(value) or isinstance(value, type)):
            home = getattr(value, "__module__", None)
        reason = explain_import(home, permissions, is_called=True) if isinstance(home, str) else ""
        if reason:
            return reason
    if inspect.isbuiltin(value) and not isinstance(value.__self__, ModuleType):
        return f"it is a method of Python's {type(value.__self__).__name__}; name a function of the project's own"
    if callable(value) and not inspect.isroutine(value) and not isinstance(value, partial | type):
        kind = type(value).__module__  # an object that is called: one of the project's own, or what an adapter makes
        return "" if kind.startswith("evalkit.") else explain_import(kind, permissions, is_called=True)
    return ""


# What judges can't be mocked by what is judged. Python's own functions are everybody's.
_JUDGES = frozenset(("builtins", "evalkit", "pytest", "_pytest", "pluggy"))
# A mock of these would name the host to which the environment's key goes, as a command's `env` would.
_ENVIRONMENT = (os.environ, type(os.environ), getattr(os, "environb", None))
_ENVIRONMENT_READERS = (
    *(os.getenv, getattr(os, "getenvb", None)),
    *(it for name in dir(type(os.environ)) if inspect.isfunction(it := inspect.getattr_static(type(os.environ), name))),
)
_OF_PROXIES = re.compile("prox(y|ies)", re.IGNORECASE)  # of Python's and of clients: urllib's, requests', httpx's, ...


def explain_replacement(owner: object, *functions: object, agent: object = None) -> str:
    """Explain why a file may not have a function of `owner` replaced, which is all of `functions` by the ways that lead
    to it; "" if it may. `agent` is the one that the file names, where it is not registered."""
    for value in (owner, *functions):
        home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        code_home = getattr(inspect.unwrap(value), "__globals__", {}).get("__name__") if callable(value) else None
        for module in (home, code_home):
            if isinstance(module, str) and (top := module.partition(".")[0]) in _JUDGES:
                return f"'{top}' judges and runs all cases; name the function that calls it"
    bare = [getattr(function, "__func__", function) for function in functions]
    if any(owner is item for item in _ENVIRONMENT) or any(item is it for item in _ENVIRONMENT_READERS for it in bare):
        return "it reads the environment's variables, which choose hosts and keys; name the function that asks for them"
    codes = [code for it in bare if (code := getattr(it, "__code__", None)) is not None]
    if any(_OF_PROXIES.search(code.co_name) and is_installed(code.co_filename) for code in codes):
        return "it chooses a proxy, through which keys go; name the function of the project's own that is mocked"
    for registry in (AGENTS, CHECKS, OPERATORS):
        for name, item in registry.list_items():
            if _is_entry(item, functions):
                return f"it is the {registry.kind} '{name}'; name a function that it calls"
    return "it is the agent of the case; name a function that it calls" if _is_entry(agent, functions) else ""


def _is_entry(item: object, functions: Sequence[object]) -> bool:
    """Return whether one of `functions` is what is registered, or what is called when it is."""
    entries = [item]
    while entries[-1] is not None:
        last = entries[-1]
        inner = getattr(last, "__wrapped__", None) or getattr(last, "__func__", None)
        entries.append(last.func if isinstance(last, partial) else inner)
    if not inspect.isroutine(item) and not isinstance(item, partial):
        kind = item if isinstance(item, type) else type(item)  # a class that is entered, and its object called
        entries += [inspect.getattr_static(kind, name, None) for name in ("__call__", "__enter__", "__aenter__")]
    return any(entry is function for entry in entries if entry is not None for function in functions)


def _is_listed(module: str, modules: Sequence[str]) -> bool:
    return any(name == "*" or module == name or module.startswith(f"{name}.") for name in modules)


def _is_own(module: str, permissions: Permissions, *, if_missing: bool = True) -> bool:
    """Tell whether `module` is in the project's tree. One that does not exist is, so that its absence is reported."""
    top = module.partition(".")[0]
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):  # a module that runs as __main__, or is made by hand
        spec = getattr(sys.modules.get(top), "__spec__", None)
        if spec is None:
            file = getattr(sys.modules.get(top), "__file__", None)
            return isinstance(file, str) and _is_inside(file, permissions)
    if spec is None:
        return if_missing and top not in sys.modules
    places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
    return any(place is not None and _is_inside(place, permissions) for place in places)


@cache
def is_installed(path: str) -> bool:
    """Return whether a file is of the standard library or of an installed package."""
    real = Path(os.path.realpath(path))
    return bool(_FOREIGN.intersection(real.parts)) or any(real.is_relative_to(it) for it in _list_installed())


def _is_inside(path: str | Path, permissions: Permissions) -> bool:
    real = Path(os.path.realpath(path))
    if is_installed(str(path)):
        return False
    for folder in permissions.folders:
        base = Path(os.path.realpath(folder))
        if real.is_relative_to(base):
            return not any(part.startswith(".") for part in real.relative_to(base).parts)
    return False


@cache
def _list_installed() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple(Path(os.path.realpath(sysconfig.get_paths()[name])) for name in names)


def explain_path(path: str | Path, permissions: Permissions | None, *, folder: str | Path | None = None) -> str:
    """Explain why the file or folder at `path`, to which a file or a link leads, may not be read; "" if it may.

    `folder` is one that the project's configuration names: it may lie anywhere, but what lies in it may not lead out.
    """
    if permissions is None or not permissions.folders or "*" in permissions.paths:
        return ""
    root = permissions.folders[0]
    if _is_below_without_links(os.fspath(path), root):  # nothing to resolve
        return ""
    bases = [*permissions.folders, *(os.path.join(root, path) for path in permissions.paths)]
    if folder is not None and not _is_below_folder(os.path.abspath(folder), os.path.abspath(root)):
        bases.append(str(folder))
    real = os.path.realpath(path)
    if any(_is_below_folder(real, os.path.realpath(base)) for base in bases):
        return ""
    outside = os.path.relpath(real if os.path.isdir(real) else os.path.dirname(real), os.path.realpath(root))
    entry = outside.replace(os.sep, "/").replace('"', '\\"')
    advice = f'if cases may read there, write allow_paths = ["{entry}"] into [tool.evalkit]'
    return f"it leads out of the project, to {real}; {advice}"


def _is_below_folder(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_below_without_links(path: str, folder: str) -> bool:
    if not _is_below_folder(path, folder) or os.pardir in path.split(os.sep):
        return False
    while len(path) > len(folder):
        if os.path.islink(path):
            return False
        path = os.path.dirname(path)
    return True


def explain_agent(spec: object, permissions: Permissions | None, is_registered: Callable[[str], bool]) -> str:
    """Explain why the `agent` of a file may not be used; "" if it may."""
    if permissions is None or spec is None:
        return ""
    if isinstance(spec, Mapping):
        if permissions.untrusted:
            return UNTRUSTED
        form = find_agent_form(spec)
        spec = spec if form is None else form.find_started(spec)
        return _explain_url(spec["url"], permissions) if "url" in spec else _explain_command(spec, permissions)
    name = spec.strip() if isinstance(spec, str) else ""
    if is_registered(name) or ":" not in name or name.endswith(".md"):
        return ""
    return explain_import(name.partition(":")[0], permissions, is_called=True)


def _explain_url(url: object, permissions: Permissions) -> str:
    if not isinstance(url, str) or any(_is_below(url, allowed) for allowed in permissions.urls):
        return ""
    if is_loopback(url):
        return ""
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}/"
    advice = f'if cases may ask it, write allow_urls = ["{origin}"] into [tool.evalkit]'
    return f"{parts.hostname or ''} is another machine; {advice}"


def _is_below(url: str, allowed: str) -> bool:
    if allowed == "*":
        return True
    parts, base = urlsplit(url), urlsplit(allowed)
    path = base.path.rstrip("/")
    is_same = (parts.scheme, parts.hostname, parts.port) == (base.scheme, base.hostname, base.port)
    return is_same and ".." not in parts.path and (parts.path == path or parts.path.startswith(f"{path}/") or not path)


def _explain_command(spec: Mapping[str, object], permissions: Permissions) -> str:
    command, cwd = spec.get("command"), spec.get("cwd") or ""
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command or ())  # type: ignore[call-overload]
    except (ValueError, TypeError):
        return ""  # reported as no command
    if not words or not all(isinstance(word, str) for word in words) or not isinstance(cwd, str):
        return ""
    allowed = [shlex.split(text) for text in permissions.commands]
    if ["*"] in allowed:
        return ""
    if any(words[: len(first)] == first for first in allowed):
        return _explain_variables(spec.get("env"), permissions)
    folder = Path(permissions.folders[0]) / cwd
    reason = ""
    if not _is_own_program(words, folder, permissions):
        reason = f"'{shlex.join(words[:3])}' is no program of the project's own, nor a script of it"
    elif cwd and folder.resolve() != Path(permissions.folders[0]).resolve() and not _is_inside(folder, permissions):
        reason = f"its folder '{cwd}' is outside of the project"
    if not reason:
        return _explain_variables(spec.get("env"), permissions)
    entry = words[0].replace("\\", "\\\\").replace('"', '\\"')
    return f'{reason}; if cases may start it, write allow_commands = ["{entry}"] into [tool.evalkit]'


def _explain_variables(env: object, permissions: Permissions) -> str:
    """Explain why a file may not set one of these variables of a program; "" if it may set them all."""
    for name in env if isinstance(env, Mapping) else ():
        text = str(name).upper()  # Windows knows no case, and some programs read both
        if name in permissions.variables or "*" in permissions.variables:
            continue
        for reason, family in _VARIABLE_FAMILIES:
            if family.fullmatch(text):
                entry = str(name).replace("\\", "\\\\").replace('"', '\\"')
                advice = f'if cases may set it, write allow_env = ["{entry}"] into [tool.evalkit]'
                return f"the variable {name} {reason}; {advice}"
    return ""


def _is_own_program(words: Sequence[str], folder: Path, permissions: Permissions) -> bool:
    program, *rest = words
    name = PurePath(program).name
    is_path = os.path.dirname(program) != ""
    if not _INTERPRETERS.fullmatch(name) and program != sys.executable:
        return is_path and _is_code(folder / program, permissions)
    if is_path and (folder / program).is_file() and not _begins_as_code(folder / program):
        return False  # no interpreter, but a text with its name
    if name.startswith(("python", "pypy")) or program == sys.executable:
        while rest and rest[0] in _PYTHON_FLAGS:
            rest = rest[1:]
        if rest[:1] == ["-m"]:
            return len(rest) > 1 and _is_own(rest[1], permissions, if_missing=False)
    elif name in ("bun", "deno") and rest[:1] == ["run"]:
        rest = rest[1:]
    if not rest or rest[0].startswith("-") or _ADDRESS.match(rest[0]):  # deno runs what lies behind a URL, too
        return False
    return _is_code(folder / rest[0], permissions)


def _is_code(path: Path, permissions: Permissions) -> bool:
    """Return whether `path` is an own file of code, by its own name and by that of each file it is a link to: an
    interpreter reads a table, an image or a text as a script, too."""
    seen = 0
    while True:
        suffix = path.suffix.lower()
        if suffix and suffix not in _CODE_SUFFIXES:
            return False
        if not path.is_symlink() or (seen := seen + 1) > _MOST_LINKS:
            break
        path = path.parent / os.readlink(path)
    is_code = bool(suffix) or (path.is_file() and _begins_as_code(path))
    return is_code and not path.is_symlink() and _is_inside(path, permissions)


def _begins_as_code(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4).startswith(_CODE_MAGIC)
    except OSError:
        return False


def check_model(
    reader: FieldReader, path: KeyPath, model: object, permissions: Permissions | None, option: str
) -> None:
    """Report a model whose address, or place in a cloud, the file chooses. `option` may name it."""
    if refused := explain_model(model, permissions):
        message = (
            f"{format_path(path)} may not name {refused}, where a recording would send the key of the service; "
            f"write the model into [tool.evalkit], or after {option}"
        )
        reader.add_problem(path, message)


def explain_model(model: object, permissions: Permissions | None) -> str:
    """Explain why a file may not name this model, ``kind:MODEL?name=value&...``; "" if it may.

    The key of the environment goes where the address, the place or the project of a cloud says.
    """
    if permissions is None or not isinstance(model, str):
        return ""
    head, _, query = model.strip().partition("?")
    pairs = [pair.partition("=") for pair in re.split("[?&;]", query)]
    options = [(unquote_plus(name).strip().lower(), unquote_plus(value)) for name, _, value in pairs]
    refused = [name for name, _ in options if name and name not in _MODEL_OPTIONS]
    # It stands in the path of the address, where more than a word leads elsewhere.
    refused += [name for name, value in options if name == "api_version" and not re.fullmatch(r"\w[\w.-]*", value)]
    if refused:
        is_place = refused[0] in ("base_url", "location", "project", "region")
        return f"a {refused[0]}" if is_place else f"the option '{refused[0]}'"
    return "a project" if re.match(r"\w+:\s*/*projects/", unquote_plus(head)) else ""
