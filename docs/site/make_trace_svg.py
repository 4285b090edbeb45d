"""Draw the README's picture: its files in an empty folder, `pytest --evalkit`, the trace that this prints.

Run it as `python docs/site/make_trace_svg.py`; it writes docs/images/red_trace.svg.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "images" / "red_trace.svg"
COLUMNS = 100
# rich's own frame loads a font from a server; a picture that a page shows may load nothing.
FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "Fira Code", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def write_files(readme: str, folder: Path) -> None:
    """Write every block of the page that names its file."""
    for name, content in re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", readme, re.DOTALL):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def run_cases(folder: Path) -> str:
    """Return what `pytest --evalkit` prints in a folder, with colours, from the trace to the gate's first line."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "EVALKIT"))}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--evalkit", "--color=yes", "-p", "no:cacheprovider"],
        cwd=folder,
        env={**environment, "COLUMNS": str(COLUMNS), "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    found = re.search(r"^\S*✗ .*?^\S*gate MISSED[^\n]*\n", run.stdout, re.DOTALL | re.MULTILINE)
    if found is None:
        raise SystemExit(f"the run printed no trace:\n{run.stdout}{run.stderr}")
    return found[0]


def draw(output: str) -> str:
    """Return terminal output as an SVG."""
    console = Console(width=COLUMNS, record=True, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(output))
    return console.export_svg(title="pytest --evalkit", theme=MONOKAI, code_format=FRAME, unique_id="evalkit")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_files((ROOT / "README.md").read_text("utf-8"), Path(folder))
        output = run_cases(Path(folder))
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(draw(output), encoding="utf-8")


if __name__ == "__main__":
    main()
