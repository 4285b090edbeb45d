"""Count the modules and functions of evalkit that one passing case runs through.

    python benchmarks/count_path.py [CASE] [--names]

Runs `pytest --evalkit CASE` in this process under `sys.setprofile`. A function counts once, however often it is called;
code that runs while a module is imported does not count.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from types import FrameType

import pytest

CASE = "scenarios/warranty/valid_warranty_001.yaml"


def main(arguments: list[str]) -> None:
    case = next((argument for argument in arguments if not argument.startswith("--")), CASE)
    calls: Counter[tuple[str, str, int]] = Counter()
    switches = importing = 0
    room = ""

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal switches, room, importing
        code = frame.f_code
        if code.co_name == "<module>":
            importing += {"call": 1, "return": -1}.get(event, 0)
        if event != "call" or importing or "/evalkit/" not in code.co_filename:
            return
        path = code.co_filename.rpartition("/evalkit/")[2]
        if path.startswith(("tests/", "scenarios/")) or not path.endswith(".py"):
            return
        if code.co_name not in ("<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>"):
            calls[path, code.co_qualname, code.co_firstlineno] += 1
            switches += path.split("/")[0] != room
            room = path.split("/")[0]

    threading.setprofile(count)
    sys.setprofile(count)
    status = pytest.main(["--evalkit", "-q", "-p", "no:cacheprovider", case])
    sys.setprofile(None)
    modules = {path for path, _, _ in calls}
    print(f"exit status {status}: {len(modules)} modules, {len(calls)} functions, {sum(calls.values())} calls,")
    print(f"{switches} changes of room")
    if "--names" in arguments:
        for path, name, line in sorted(calls):
            print(f"  {path}:{line} {name} {calls[path, name, line]}")


if __name__ == "__main__":
    main(sys.argv[1:])
