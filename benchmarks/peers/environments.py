"""An environment per system: made when it is first needed, kept for the next time, or told why it can't be made."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Peer:
    """A system: what its environment holds, and a command per workload. {bin}, {python}, {node}, {data} are filled."""

    name: str
    needs: tuple[str, ...]
    commands: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)
    makes: str = ""  # a file that its first run writes, and is no measure
    node: bool = False
    service: str = ""  # a script that serves meanwhile, and says its port on its first line: BENCH_PORT


class Environments:
    """One per set of requirements, made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ready(self, peer: Peer) -> str | None:
        """Install what `peer` needs; gives why that is not possible."""
        place = self.place(peer)
        wanted = " ".join(peer.needs)
        marker = place / "installed.txt"
        if marker.is_file() and marker.read_text() == wanted:
            return None
        place.mkdir(parents=True, exist_ok=True)
        print(f"installing {wanted}", file=sys.stderr, flush=True)
        for command in self._installing(peer, place):
            try:
                done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=900, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                return f"can't be installed: {error}"
            if done.returncode:
                last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-1:]
                return f"can't be installed: {''.join(last)[:120]}"
        marker.write_text(wanted)
        return None

    def place(self, peer: Peer) -> Path:
        name = Path(peer.needs[-1]).name if peer.needs[0] == "-e" else peer.needs[0]
        return self._folder / re.sub(r"\W+", "-", name).strip("-")

    @staticmethod
    def _installing(peer: Peer, place: Path) -> Iterator[list[str]]:
        if peer.node:
            yield ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(place), *peer.needs]
        else:
            yield [sys.executable, "-m", "venv", str(place)]
            yield [str(place / "bin" / "python"), "-m", "pip", "install", "-q", *peer.needs]

    def filled(self, text: str, peer: Peer, data: Path) -> str:
        place = self.place(peer)
        programs, node = place / "bin", place / "node_modules" / ".bin"
        return text.format(bin=programs, python=programs / "python", node=node, data=data)

    def version(self, peer: Peer) -> str:
        name = peer.needs[0].partition("[")[0]
        if peer.node:
            return str(json.loads((self.place(peer) / "node_modules" / name / "package.json").read_text())["version"])
        name = "pytest-evalkit" if name == "-e" else name
        script = f"import importlib.metadata as m; print(m.version({name!r}))"
        python = str(self.place(peer) / "bin" / "python")
        return subprocess.run([python, "-c", script], capture_output=True, text=True, check=False).stdout.strip()
