"""Values of a case's own keys, read one by one: what is wrong is collected with its path, and says what to write.

The tables of `case_keys` name the methods of `CaseReader`. The mapping of an agent that is a command, a URL or an
MCP server has its tables here, because reading it needs them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any

from msgspec import Struct

from evalkit.bounds import get_bounds
from evalkit.errors import KeyPath
from evalkit.fields.reader import FieldReader, describe_unknown_key, explain_quoting, guess_boolean
from evalkit.functions.mocks.answers import compile_static
from evalkit.hooks import Place, find_key, list_keys
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.records.case import Repeat
from evalkit.stats.pass_rates import SequentialTest
from evalkit.text.format import format_value

AGENT_FORMS = "a name, package.module:attribute, an instruction file (.md), or a mapping with 'command', 'url' or 'mcp'"
TAG_PATTERN = r"[^\W_][\w.+-]*"
_NOT_SELECTABLE = frozenset({"and", "or", "not", "True", "False", "None"})
# Marks on which pytest or a widespread plugin acts: a tag of that name would change how the case runs.
TAGS_WITH_EFFECT = {
    "skip": "to skip the case, write 'skip: reason'",
    "skipif": "to skip the case, write 'skip: reason'",
    "xfail": "to expect a failure, write 'xfail: reason'",
    "parametrize": "rows make several cases of a file: 'cases', 'matrix' or 'from'",
    "usefixtures": "cases have no fixtures",
    "filterwarnings": "set filters in pytest's configuration",
    "timeout": "to limit its time, write 'settings: {deadline_s: 30}'",
    "flaky": "to run it several times, write 'repeat: {runs: 5, min_pass: 4}'",
    "forked": "to run cases in processes of their own, use -n",
    "xdist_group": "evalkit spreads cases over workers itself",
}
REFUSED_TAGS = _NOT_SELECTABLE | set(TAGS_WITH_EFFECT)
EMAIL_KEYS = {
    "subject": "The subject line.",
    "body": "The text of the mail.",
    "from": "The sender's address.",
    "received": "When it arrived, as text.",
}
_HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_URL = r"https?://(\[[0-9A-Fa-f:.]+\]|[^/?#\s:@\[\]]+)(:(?P<port>[0-9]{1,5}))?([/?#]\S*)?"


class CaseKey(Struct, frozen=True):
    """A key: ``read(reader, path, value)``, the schema of its value, one sentence, whether suites may have it.

    `synonyms` are words that people write for it. `is_message`: it says what the agent gets, and `input` has one of
    these.
    """

    read: Callable[[Any, KeyPath, Any], Any]
    schema: JsonObject
    doc: str
    in_suite: bool = True
    synonyms: tuple[str, ...] = ()
    is_message: bool = False


def collect_synonyms(table: Mapping[str, CaseKey]) -> dict[str, str]:
    """Return what people write for the keys of `table`, with the keys."""
    return {word: name for name, key in table.items() for word in key.synonyms}


SEQUENTIAL_TEST = {"good": 0.95, "bad": 0.8, "alpha": 0.05, "beta": 0.05}  # defaults of `repeat: {until: decided}`


class CaseReader(FieldReader):
    """Typed values of a whole case, each read by a method that the tables of keys name."""

    def __init__(self) -> None:
        super().__init__(subject="the case")

    def report_unknown_key(self, path: KeyPath, key: object, known_keys: Iterable[str], hint: str = "") -> None:
        """Report `key`. At the top level the key alone says where it stands, and it may be a suite's."""
        if path or not isinstance(key, str):
            super().report_unknown_key(path, key, known_keys, hint)
        else:
            self.add_problem((key,), describe_unknown_key(key, known_keys=known_keys, hint=hint), at_key=True)

    def read_keys(
        self,
        table: Mapping[str, CaseKey],
        data: JsonObject,
        path: KeyPath,
        place: Place | None = None,
        synonyms: Mapping[str, str] | None = None,
    ) -> JsonDict:
        """Read each value of `data` by its row of `table`, or as a feature's key at `place`. Others are problems.

        `synonyms` are what people write for the keys, if the table does not say it.
        """
        values: JsonDict = {}
        for key, value in data.items():
            row = table.get(key) or (None if place is None else find_key(place, key))
            if row is not None:
                values[key] = row.read(self, (*path, key), value)
            else:
                of_features = {} if place is None else {name: find_key(place, name) for name in list_keys(place)}
                known = {**table, **of_features}
                synonym = (collect_synonyms(known) | dict(synonyms or {})).get(key.lower())
                self.report_unknown_key(path, key, known, f"; did you mean '{synonym}'?" if synonym else "")
        return values

    def read_anything(self, path: KeyPath, value: object) -> object:
        """Read a value that is checked elsewhere."""
        return value

    def read_name(self, path: KeyPath, value: object, expected: str = "a name") -> str | None:
        """Read text that is not blank, with the quotes to write around a number."""
        return self.read_text(path, value, expected, empty=False)

    def read_message(self, path: KeyPath, value: object) -> str | None:
        """Read any text, but not null: an empty message is written ''."""
        if value is None:
            self.report_wrong(path, value, "text", "an empty message is written ''")
        return self.read_text(path, value)

    def read_user(self, path: KeyPath, value: object) -> object:
        """Read what the user says in a turn."""
        if not isinstance(value, (str, dict)):
            self.report_wrong(path, value, "what the user says: text, or a mapping", explain_quoting(value))
        return value

    def read_input(self, path: KeyPath, value: object) -> JsonDict | None:
        """Read the mapping `input`."""
        return self.read_mapping(path, value, advice="write input: {message: ...}" if isinstance(value, str) else "")

    def read_email(self, path: KeyPath, value: object) -> JsonDict | None:
        """Read a mail: the known headers are text, others are kept as they are and reach the agent."""
        advice = "for plain text write input.message" if isinstance(value, str) else ""
        email = self.read_mapping(path, value, "a mapping of subject, body, from and received", advice)
        for key in EMAIL_KEYS:
            if email is not None and key in email:
                self.read_text((*path, key), email[key])
        return email

    def read_reason(self, path: KeyPath, value: object) -> str | None:
        # `skip: no` is a text in YAML 1.2, and would skip the case for the reason "no".
        """Read why a case is skipped or expected to fail."""
        guess = value if isinstance(value, bool) else guess_boolean(value)
        if guess is not None and isinstance(value, (bool, str)):
            why = f"write {path[-1]}: why" if guess else "remove the line"
            self.report_wrong(path, value, "the reason, as text", why)
            return None
        return self.read_name(path, value, "the reason, as text")

    def read_date(self, path: KeyPath, value: object) -> str | None:
        """Read a date of the form 2027-01-31."""
        if isinstance(value, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
            try:
                return date.fromisoformat(value).isoformat()
            except ValueError:
                pass  # the 30th of February
        self.report_wrong(path, value, "a date like 2027-01-31")
        return None

    def read_tags(self, path: KeyPath, value: object) -> tuple[str, ...]:
        """Read names for `-m`, each once. One name alone is a list of one."""
        if value is None:
            return ()
        if isinstance(value, (str, bool, int, float)):
            tags = [self._read_tag(path, value)]
        elif isinstance(value, list):
            tags = [self._read_tag((*path, index), item) for index, item in enumerate(value)]
        else:
            self.report_wrong(path, value, "a tag or a list of tags")
            return ()
        return tuple(dict.fromkeys(tag for tag in tags if tag is not None))

    def _read_tag(self, path: KeyPath, value: object) -> str | None:
        tag = self.read_name(path, value, "a tag")
        if tag is None:
            return None
        if tag in TAGS_WITH_EFFECT:
            self.add_problem(path, f"tag '{tag}' is a pytest mark that has an effect; {TAGS_WITH_EFFECT[tag]}")
            return None
        if tag in _NOT_SELECTABLE or not re.fullmatch(TAG_PATTERN, tag):
            rule = "begins with a letter or digit and goes on with letters, digits, '_', '-', '.' and '+'"
            better = re.sub(r"[^\w.+-]+", "-", tag).strip("-_.+")
            hint = f"; write '{better}'?" if better not in ("", tag, *TAGS_WITH_EFFECT) else ""
            tags = [part for part in re.split(r"[,;\s]+", tag) if part]
            if len(tags) > 1 and all(re.fullmatch(TAG_PATTERN, part) for part in tags) and isinstance(path[-1], str):
                hint = f"; several tags are a list: [{', '.join(tags)}]"
            self.add_problem(path, f"tag {format_value(tag)} can't be selected with -m: a tag {rule}{hint}")
            return None
        return tag

    def read_repeat(self, path: KeyPath, value: object) -> Repeat | None:
        """Read `5`, five runs that all pass, `{runs: 5, min_pass: 4}`, at least four, or `{until: decided}`."""
        if not isinstance(value, dict):
            runs = self._read_runs(path, value)
            return None if runs is None else Repeat(runs, runs)
        if "until" in value:
            return self._read_sequential_test(path, value)
        self.check_keys(path, value, ("runs", "min_pass"))
        if "runs" not in value:
            self.add_problem(path, "repeat has no 'runs': how often the case runs")
            return None
        runs = self._read_runs((*path, "runs"), value["runs"])
        min_pass = self.read_count((*path, "min_pass"), value.get("min_pass", runs or 1))
        if runs is None or min_pass is None:
            return None
        if min_pass > runs:
            self.add_problem((*path, "min_pass"), f"repeat.min_pass is {min_pass}, more than the {runs} runs")
            return None
        return Repeat(runs, min_pass)

    def _read_sequential_test(self, path: KeyPath, value: JsonDict) -> Repeat | None:
        """Read `{until: decided, max_runs: 60, good: 0.95, bad: 0.8, alpha: 0.05, beta: 0.05}`."""
        rates, max_runs, before = dict(SEQUENTIAL_TEST), 60, len(self.problems)
        for key, option in value.items():
            if key == "until":
                self.read_choice((*path, key), option, ("decided",))
            elif key == "max_runs":
                max_runs = self._read_runs((*path, key), option) or max_runs
            elif key in rates:
                rates[key] = self.read_number((*path, key), option, minimum=0, maximum=1) or 0
            else:
                self.report_unknown_key(path, key, ("until", "max_runs", *rates))
        if len(self.problems) > before:
            return None
        try:
            rule = SequentialTest(**rates, max_runs=max_runs)
        except ValueError as error:
            self.add_problem(path, f"{self.format_place(path)}: {error}")
            return None
        return Repeat(rule.max_runs, rule.min_pass, rule=rule)

    def _read_runs(self, path: KeyPath, value: object) -> int | None:
        runs = self.read_count(path, value)
        if runs is not None and runs > (allowed := get_bounds().runs):
            advice = "; --evalkit-repeat N may ask for more, and so does `runs` in [tool.evalkit.bounds]"
            limit = f"more than the {allowed:,} runs that a case file may ask for{advice}"
            self.add_problem(path, f"{self.format_place(path)} is {runs:,}, {limit}")
            return None
        return runs

    def read_seed(self, path: KeyPath, value: object) -> int | None:
        return self.read_count(path, value, minimum=None)

    def read_positive(self, path: KeyPath, value: object) -> float | None:
        return self.read_number(path, value, above=0)

    def read_temperature(self, path: KeyPath, value: object) -> float | None:
        """Read a number from 0 to 2; null leaves it to the model."""
        if value is None:
            return None
        return self.read_number(path, value, minimum=0, maximum=2, advice="null leaves it to the model")

    def read_agent(self, path: KeyPath, value: object) -> object:
        """Read a name, or the mapping of an agent that is a command, a URL or an MCP server, without its keys that are
        null."""
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        if not isinstance(value, dict):
            self.report_wrong(path, value, AGENT_FORMS)
            return None
        entries = {key: item for key, item in value.items() if item is not None}
        kinds = [kind for kind in AGENT_KINDS if kind in entries]
        if len(kinds) > 1:
            present = " and ".join(f"'{kind}'" for kind in kinds)
            nulls = " or ".join(f"'{kind}: null'" for kind in kinds)
            advice = f"a case adds to its suite's agent: {nulls} takes one away"
            self.add_problem(path, f"agent has one of 'command', 'url' and 'mcp', got {present}; {advice}")
            return None
        rows = AGENT_KINDS[kinds[0]] if kinds else {**COMMAND_KEYS, **URL_KEYS, **MCP_AGENT_KEYS}
        for key, item in entries.items():
            if key in rows:
                rows[key].read(self, (*path, key), item)
            else:
                synonym = _AGENT_SYNONYMS.get(key.lower()) if isinstance(key, str) else None
                hint = f"; did you mean '{synonym}'?" if synonym in rows else ""
                owner = next((kind for kind, keys in AGENT_KINDS.items() if key in keys), None)
                if owner == "mcp" or (kinds == ["mcp"] and key in MCP_KEYS):
                    hint = "; it stands under 'mcp'" if key in MCP_KEYS else "; an agent with 'mcp' has it"
                elif owner is not None:
                    hint = f"; an agent with a '{owner}' has it"
                self.report_unknown_key(path, key, rows, hint)
        if not kinds and all(key in rows for key in entries):
            self.add_problem(path, "agent has none of 'command', 'url' and 'mcp': what is to be run, or asked")
        return entries

    def read_mcp(self, path: KeyPath, value: object) -> None:
        """Read the name of an MCP server, or its description."""
        if isinstance(value, str) and value.strip():
            return
        if not isinstance(value, dict):
            self.report_wrong(path, value, "the name of an MCP server, or a mapping with 'command' or 'url'")
            return
        entries = {key: item for key, item in value.items() if item is not None}
        if ("command" in entries) == ("url" in entries):
            self.add_problem(path, f"{self.format_place(path)} has one of 'command' and 'url'")
        for key, item in entries.items():
            if key in MCP_KEYS:
                MCP_KEYS[key].read(self, (*path, key), item)
            else:
                synonym = _AGENT_SYNONYMS.get(key.lower()) if isinstance(key, str) else None
                self.report_unknown_key(path, key, MCP_KEYS, f"; did you mean '{synonym}'?" if synonym else "")

    def read_scope(self, path: KeyPath, value: object) -> None:
        self._read_choice(path, value, SCOPES)

    def read_results(self, path: KeyPath, value: object) -> None:
        self._read_choice(path, value, RESULTS)

    def _read_choice(self, path: KeyPath, value: object, choices: tuple[str, ...]) -> None:
        if value not in choices:
            self.report_wrong(path, value, " or ".join(f"'{choice}'" for choice in choices))

    def read_calls(self, path: KeyPath, value: object) -> None:
        """Read `input.calls`: names, and mappings with `function_name` and `arguments`."""
        calls = self.read_list(path, value, "a list of calls, such as `- {function_name: add, arguments: {a: 1}}`")
        for index, call in enumerate(calls):
            place = (*path, index)
            if isinstance(call, str) and call.strip():
                continue
            if not isinstance(call, dict) or "function_name" not in call:
                self.report_wrong(place, call, "a call with a 'function_name'")
            for key, item in call.items() if isinstance(call, dict) else ():
                if key not in _CALL_KEYS:
                    hint = "; did you mean 'function_name'?" if key in ("name", "tool", "function") else ""
                    self.report_unknown_key(place, key, _CALL_KEYS, hint)
                elif key == "arguments":
                    self.read_mapping((*place, key), item, "a mapping of arguments")
                    compile_static(item, (*place, key), self.problems)
                elif not isinstance(item, str) or not item.strip():
                    self.report_wrong((*place, key), item, "the name of a function")

    def read_command(self, path: KeyPath, value: object) -> None:
        if isinstance(value, str) and value.strip():
            try:
                shlex.split(value)
            except ValueError:
                self.add_problem(path, f"{self.format_place(path)} has a quote that is never closed: {value!r}")
        else:
            for index, word in enumerate(self.read_list(path, value, "a command, as text or as a list of its words")):
                self._read_argument((*path, index), word, "a word of the command", empty=index > 0)

    def _read_argument(self, path: KeyPath, value: object, expected: str, *, empty: bool = False) -> None:
        """Read a text that a process or a request can be given."""
        if not isinstance(value, str) or not (value or empty):
            self.report_wrong(path, value, expected, explain_quoting(value))
        elif "\0" in value:
            self.add_problem(path, f"{self.format_place(path)} holds a NUL character, which no command can be given")

    def read_folder(self, path: KeyPath, value: object) -> None:
        self._read_argument(path, value, "a folder, relative to the project's root")

    def read_environment(self, path: KeyPath, value: object) -> None:
        for name, item in (self.read_mapping(path, value, "a mapping of names to texts") or {}).items():
            if not name or "=" in name or "\0" in name:
                self.add_problem((*path, name), f"{name!r} can't name an environment variable", at_key=True)
            elif item is not None:
                self._read_argument((*path, name), item, "a text", empty=True)

    def read_headers(self, path: KeyPath, value: object) -> None:
        for name, item in (self.read_mapping(path, value, "a mapping of names to texts") or {}).items():
            if not re.fullmatch(_HEADER, name):
                self.add_problem((*path, name), f"{name!r} can't name an HTTP header", at_key=True)
            elif isinstance(item, str) and ("\n" in item or "\r" in item or "\0" in item):
                self.add_problem((*path, name), f"{self.format_place((*path, name))} is one line of text")
            elif item is not None:
                self._read_argument((*path, name), item, "a text", empty=True)

    def read_url(self, path: KeyPath, value: object) -> None:
        match = re.fullmatch(_URL, value) if isinstance(value, str) else None
        if match is None or not 0 < int(match["port"] or 80) < 65_536:
            self.report_wrong(path, value, "a URL such as http://127.0.0.1:8000/answer")


_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
_TIMEOUT = CaseKey(
    CaseReader.read_positive,
    {"type": "number", "exclusiveMinimum": 0},
    "Seconds for one answer, within `settings.deadline_s`.",
)

COMMAND_KEYS: dict[str, CaseKey] = {
    "command": CaseKey(
        CaseReader.read_command,
        {"oneOf": [_TEXT, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
        "The command, as a list of its words or as one text; no shell is asked. `python` is the Python of evalkit.",
    ),
    "cwd": CaseKey(
        CaseReader.read_folder, _TEXT, "The folder it runs in, relative to the project's root, which is the default."
    ),
    "env": CaseKey(
        CaseReader.read_environment, _TEXTS, "Environment variables besides the inherited ones; `null` removes one."
    ),
    "timeout": _TIMEOUT,
    "spans": CaseKey(
        CaseReader.read_boolean,
        {"type": "boolean"},
        "Judge the case by the OpenTelemetry spans that the program exports: its turns, calls and results.",
    ),
}
URL_KEYS: dict[str, CaseKey] = {
    "url": CaseKey(
        CaseReader.read_url,
        {"type": "string", "pattern": f"^{_URL.replace('?P<port>', '?:')}$"},
        "Where the agent is asked, with a POST.",
    ),
    "headers": CaseKey(CaseReader.read_headers, _TEXTS, "HTTP headers of the request."),
    "timeout": _TIMEOUT,
    "spans": CaseKey(
        CaseReader.read_boolean,
        {"type": "boolean"},
        "Judge the case by the OpenTelemetry spans that the service exports for the request.",
    ),
}
SCOPES, RESULTS = ("worker", "case"), ("value", "json", "whole")
MCP_KEYS: dict[str, CaseKey] = {
    "command": CaseKey(CaseReader.read_command, COMMAND_KEYS["command"].schema, "The command that starts the server."),
    "cwd": COMMAND_KEYS["cwd"],
    "env": COMMAND_KEYS["env"],
    "url": CaseKey(CaseReader.read_url, URL_KEYS["url"].schema, "Where the server is (streamable HTTP)."),
    "headers": CaseKey(CaseReader.read_headers, _TEXTS, "HTTP headers of the requests."),
    "timeout": CaseKey(
        CaseReader.read_positive,
        {"type": "number", "exclusiveMinimum": 0},
        "Seconds for one call; one that takes longer fails with `timeout`.",
    ),
    "scope": CaseKey(
        CaseReader.read_scope,
        {"type": "string", "enum": list(SCOPES)},
        "`worker` (default): the cases of a process share the server; `case`: each run has a server of its own.",
    ),
    "results": CaseKey(
        CaseReader.read_results,
        {"type": "string", "enum": list(RESULTS)},
        "`value` (default): a result is the structured content, else the text; `json`: likewise, but a text that is a "
        "JSON object or list is what it says; `whole`: a mapping of `content`, `structuredContent` and `isError`.",
    ),
}
MCP_AGENT_KEYS: dict[str, CaseKey] = {
    "mcp": CaseKey(
        CaseReader.read_mcp,
        {"oneOf": [_TEXT, {"$ref": "#/$defs/mcp_server"}]},
        "The MCP server: a name of `[tool.evalkit.mcp_servers]` or `@evalkit.mcp_server`, or its description.",
    ),
    "instruction": CaseKey(
        CaseReader.read_name, _TEXT, "The instruction file of the model that uses the server; none by default."
    ),
}
AGENT_KINDS = {"command": COMMAND_KEYS, "url": URL_KEYS, "mcp": MCP_AGENT_KEYS}
_CALL_KEYS = ("function_name", "arguments")
_AGENT_SYNONYMS = {
    **dict.fromkeys(("cmd", "argv", "args", "run", "process"), "command"),
    **dict.fromkeys(("dir", "directory", "workdir", "working_directory"), "cwd"),
    **dict.fromkeys(("environment", "variables"), "env"),
    **dict.fromkeys(("deadline_s", "deadline", "timeout_s"), "timeout"),
    **dict.fromkeys(("endpoint", "uri", "http", "address"), "url"),
}
