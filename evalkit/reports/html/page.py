"""A run as one HTML file that opens from disk: no server, no network, nothing beside it.

The page holds the cases as JSON and builds what is looked at when it is looked at, so that 5,000 cases stay fluid. What
agents wrote gets into the page as text alone: JSON here, `textContent` in the script, autoescape in the template; and a
Content-Security-Policy lets no other script than the page's own run.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from hashlib import sha256
from importlib.resources import files

from evalkit.model.run import GateDecision, Run
from evalkit.model.verdict import Verdict
from evalkit.reports.html.data import build_cases, build_charts, build_tiles, to_script_json
from evalkit.reports.serialization import Redact, redact_decision, redact_run
from evalkit.text.escape import escape_controls


def render_html(
    run: Run,
    decision: GateDecision,
    baseline: Run | None = None,
    *,
    title: str = "evalkit",
    redact: Redact | None = None,
) -> str:
    """`run` and the gate's `decision` on it as a page; compared with `baseline`, if there is one.

    Secrets are redacted by `redact`, by default shapes of tokens and keys of secrets. Single texts above 20,000
    characters are cut, and say so.
    """
    return "".join(generate_html(run, decision, baseline, title=title, redact=redact))


def generate_html(
    run: Run,
    decision: GateDecision,
    baseline: Run | None = None,
    *,
    title: str = "evalkit",
    redact: Redact | None = None,
    verdicts: Iterable[Verdict] | None = None,
) -> Iterator[str]:
    """What `render_html` gives, bit by bit.

    `verdicts`: those of a run file that the caller has redacted when it wrote it, where `run` is without them. Each is
    done with before the next is asked for, so that they are never in memory together.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    decided = redact_decision(decision, redact)
    clean = redact_run(run, redact)
    before = None if baseline is None else redact_run(baseline, redact)
    rows, details = [], []
    for row, detail in build_cases(clean.verdicts if verdicts is None else verdicts, before, decided):
        rows.append(row)
        details.append(to_script_json(detail))
    environment = Environment(
        loader=FunctionLoader(_read_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = escape_controls
    script = _read_asset("report.js")
    return environment.get_template("report.html.j2").generate(
        title=escape_controls(title),
        decision=decided,
        run=clean,
        tiles=build_tiles(rows, clean.wall_s, decided),
        charts=build_charts(rows),
        index=Markup(to_script_json(rows)),  # noqa: S704 - escaped by `embedded`
        details=map(Markup, details),  # the same
        style=Markup(_read_asset("report.css")),  # noqa: S704 - a file of this package
        script=Markup(script),  # noqa: S704 - a file of this package
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
    )


def _read_asset(name: str) -> str:
    return files("evalkit.reports.html").joinpath(name).read_text("utf-8")
