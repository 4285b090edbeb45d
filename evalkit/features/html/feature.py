"""The hooks of the HTML report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evalkit.features.html.page import render_page
from evalkit.hooks import Feature, Loss, Options, Published, SessionPart, Written
from evalkit.hosts.reports.api import FinishedRun, replace_file


class HtmlReport(Feature):
    """A page that opens from disk."""

    name = "html"

    def configure(self, options: Options) -> SessionPart:
        return HtmlFile(options.read("html"))


class HtmlFile(SessionPart):
    """The page of a run in a file."""

    shows_baseline = True

    def __init__(self, path: Path) -> None:
        self._path = path

    def publish(self, report: FinishedRun) -> Iterator[Published]:
        try:
            with report.open() as stored, replace_file(self._path) as file:
                file.writelines(render_page(report.build_input(stored)))
        except OSError as error:
            yield Loss("the HTML report", str(error))
        else:
            yield Written("report", self._path)
