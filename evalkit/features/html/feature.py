"""The hooks of the HTML report."""

from __future__ import annotations

from evalkit.features.html.page import render_page
from evalkit.hooks import Feature, Options, SessionPart
from evalkit.hosts.reports.api import ReportFile


class HtmlReport(Feature):
    """A page that opens from disk."""

    name = "html"

    def configure(self, options: Options) -> SessionPart:
        return ReportFile(options.read("html"), render_page, title="the HTML report")
