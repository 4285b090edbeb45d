"""The YAML language server, which editors ask, over standard input and output: what it underlines in texts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ENVIRONMENT = "YAML_LANGUAGE_SERVER"  # the path of its program, where it is not on the PATH


def find_language_server() -> str | None:
    """Return the program, if node is there to run it."""
    program = os.environ.get(ENVIRONMENT) or shutil.which("yaml-language-server")
    return program if program and shutil.which("node") else None


class LanguageServer:
    """A running server that knows `schemas` by name. Texts are checked against the schema of one name."""

    def __init__(self, program: str, schemas: Mapping[str, Any], folder: Path) -> None:
        self._process = subprocess.Popen([program, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._number = 0
        self._opened = 0
        patterns: dict[str, str] = {}
        self._settings = {"schemas": patterns, "schemaStore": {"enable": False}, "validate": True}
        for name, schema in schemas.items():
            file = folder / f"{name}.schema.json"
            file.write_text(json.dumps(schema), "utf-8")
            patterns[file.as_uri()] = f"{name}/*.yaml"
        able = {"workspace": {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}}}
        self._ask("initialize", {"processId": os.getpid(), "rootUri": folder.as_uri(), "capabilities": able})
        self._tell("initialized", {})
        while self._read().get("method") != "workspace/configuration":
            pass

    def find_problems(self, schema: str, texts: Mapping[str, str]) -> dict[str, list[str]]:
        """Return ``line: message`` of all that is underlined in each of `texts`, which are known by names."""
        names = {f"file:///{schema}/{self._opened + number}.yaml": name for number, name in enumerate(texts)}
        self._opened += len(names)
        for uri, name in names.items():
            item = {"uri": uri, "languageId": "yaml", "version": 1, "text": texts[name]}
            self._tell("textDocument/didOpen", {"textDocument": item})
        found: dict[str, list[str]] = {}
        while len(found) < len(names):
            message = self._read()
            if message.get("method") == "textDocument/publishDiagnostics" and message["params"]["uri"] in names:
                problems = message["params"]["diagnostics"]
                lines = [f"{one['range']['start']['line'] + 1}: {one['message']}" for one in problems]
                found[names[message["params"]["uri"]]] = lines
        return found

    def close(self) -> None:
        self._ask("shutdown", None)
        self._tell("exit", None)
        self._process.communicate(timeout=10)

    def _tell(self, method: str, params: object, **more: object) -> None:
        content = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        self._write(content)

    def _write(self, content: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(content) + content)
        self._process.stdin.flush()

    def _ask(self, method: str, params: object) -> None:
        self._number += 1
        self._tell(method, params, id=self._number)
        while self._read().get("id") != self._number:
            pass

    def _read(self) -> dict[str, Any]:
        """Return the next message. The server's questions for settings are answered, others with nothing."""
        assert self._process.stdout is not None
        length = 0
        while (line := self._process.stdout.readline().strip()) or not length:
            if not line and self._process.poll() is not None:
                raise EOFError("the language server has ended")
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        message: dict[str, Any] = json.loads(self._process.stdout.read(length))
        if "method" in message and "id" in message:
            items = message["params"]["items"] if message["method"] == "workspace/configuration" else None
            result = items and [self._settings if item.get("section") == "yaml" else {} for item in items]
            self._write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())
        return message
