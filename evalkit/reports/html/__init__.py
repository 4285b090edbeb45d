"""A run as one HTML file that opens from disk: no server, no network, nothing beside it.

The page holds the cases as JSON and builds what is looked at when it is looked at, so that 5,000 cases stay fluid. What
agents wrote gets into the page as text alone: JSON here, `textContent` in the script, autoescape in the template; and a
Content-Security-Policy lets no other script than the page's own run.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files

from evalkit.model.run import GateDecision, Run
from evalkit.reports.hostile import visible
from evalkit.reports.html.charts import charts
from evalkit.reports.html.data import details, embedded, index, tiles
from evalkit.reports.redacting import Redact, redacted, redacted_decision

__all__ = ["html_pieces", "render_html"]


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
    return "".join(html_pieces(run, decision, baseline, title=title, redact=redact))


def html_pieces(
    run: Run,
    decision: GateDecision,
    baseline: Run | None = None,
    *,
    title: str = "evalkit",
    redact: Redact | None = None,
) -> Iterator[str]:
    """What `render_html` gives, bit by bit: the page of a long run is large, and need not be in memory."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    clean, decided = redacted(run, redact), redacted_decision(decision, redact)
    before = None if baseline is None else redacted(baseline, redact)
    environment = Environment(
        loader=FunctionLoader(_part), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["visible"] = visible
    script = _part("report.js")
    return environment.get_template("report.html.j2").generate(
        title=visible(title),
        decision=decided,
        run=clean,
        tiles=tiles(clean, decided),
        charts=charts(clean),
        index=Markup(embedded(index(clean, before, decided))),  # noqa: S704 - escaped by `embedded`
        details=(Markup(embedded(detail)) for detail in details(clean, before)),  # noqa: S704 - the same
        style=Markup(_part("report.css")),  # noqa: S704 - a file of this package
        script=Markup(script),  # noqa: S704 - a file of this package
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
    )


def _part(name: str) -> str:
    return files("evalkit.reports.html").joinpath(name).read_text("utf-8")
