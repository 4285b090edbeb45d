"""Conversations that were logged elsewhere, as cases: what was said, asked for and answered becomes input,
expectations, mocks and a cassette.

`reading` opens files and tells the formats apart, one module each reads OpenAI's, Gemini's and Anthropic's messages and
OpenTelemetry spans, `casefile` makes the files.
"""

from __future__ import annotations

from evalkit.importing.casefile import CaseFiles as CaseFiles
from evalkit.importing.casefile import build_case_files as build_case_files
from evalkit.importing.conversation import Conversation as Conversation
from evalkit.importing.reading import FORMATS as FORMATS
from evalkit.importing.reading import read_log as read_log

__all__ = ["FORMATS", "CaseFiles", "Conversation", "build_case_files", "read_log"]
