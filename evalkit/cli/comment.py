"""`evalkit comment`: one comment on the pull request, made once and updated ever after.

Where it can't be written (a fork's token is read-only, no pull request, a limit that lasts), the same report goes to
the step summary, and a line says why.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalkit.cli.github_api import GitHubApi, GitHubError
from evalkit.errors import UsageError
from evalkit.reports.hostile import escape_controls
from evalkit.reports.markdown import LIMIT

Render = Callable[[int, str], str]  # limit in bytes, first line -> Markdown
_LENGTHS = (LIMIT, 32_000, 8_000, 1_000)


class CommentTarget(Struct, frozen=True):
    """The pull request: ``owner/name`` and number; the server and a token for it."""

    repository: str
    number: int
    api: str
    token: str


def build_marker(name: str) -> str:
    """The hidden first line by which a comment is known; `name` tells several suites' comments apart."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}", name) or "--" in name:
        raise UsageError(f"--name: {name!r} is not a name of letters, digits, '_', '.' and '-'")
    return f"<!-- evalkit comment: {name} -->"


def find_target(environment: Mapping[str, str], repository: str | None, number: int | None) -> CommentTarget | str:
    """Where to comment, by options and GitHub's variables; or, in words, why there is nowhere to."""
    repository = repository or environment.get("GITHUB_REPOSITORY")
    number = number or _find_number(environment)
    token = environment.get("GITHUB_TOKEN") or environment.get("GH_TOKEN")
    if not repository:
        return "no repository is known; name one with --repo OWNER/NAME"
    if not re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", repository):
        raise UsageError(f"--repo: {repository!r} is not OWNER/NAME")
    if number is None:
        return "this is no pull request; name one with --pr NUMBER"
    if not token:
        return "there is no token in GITHUB_TOKEN"
    return CommentTarget(repository, number, environment.get("GITHUB_API_URL") or "https://api.github.com", token)


def _find_number(environment: Mapping[str, str]) -> int | None:
    try:
        event = json.loads(Path(environment["GITHUB_EVENT_PATH"]).read_bytes())
    except (KeyError, OSError, ValueError):
        event = {}
    if isinstance(event, dict):
        for key in ("pull_request", "issue"):
            subject = event.get(key)
            if isinstance(subject, dict) and isinstance(subject.get("number"), int):
                return int(subject["number"])
    ref = re.fullmatch(r"refs/pull/(\d+)/(?:merge|head)", environment.get("GITHUB_REF", ""))
    return int(ref[1]) if ref else None


def publish(target: CommentTarget | str, marker: str, render: Render, *, api: GitHubApi | None = None) -> str:
    """Comment, or write the step summary instead; what was done, in a line.

    Raises ApiError for what a summary would only hide: a wrong token (401), no such pull request (404, 410).
    """
    if isinstance(target, str):
        return _write_summary_instead(render, f"no comment: {target}")
    try:
        return _Comments(api or GitHubApi(target.api, target.token), target, marker).put(render)
    except GitHubError as error:
        if error.is_limit:
            return _write_summary_instead(render, f"no comment, the rate limit lasts too long ({error})")
        if error.status == 403:
            return _write_summary_instead(render, f"no comment, the token may not write, as a fork's may not ({error})")
        if error.status == 0 or error.status >= 500:
            return _write_summary_instead(render, f"no comment ({error})")
        raise


def _write_summary_instead(render: Render, why: str) -> str:
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return f"{escape_controls(why)}; and no step summary, GITHUB_STEP_SUMMARY is not set\n\n{render(LIMIT, '')}"
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(render(LIMIT, "") + "\n")
    return f"{escape_controls(why)}; the report is in the step summary"


class _Comments:
    def __init__(self, api: GitHubApi, target: CommentTarget, marker: str) -> None:
        self._api = api
        self._repository = f"/repos/{target.repository}"
        self._issue = f"{self._repository}/issues/{target.number}"
        self._marker = marker

    def put(self, render: Render) -> str:
        mine = self._find_comments()
        for place, length in enumerate(_LENGTHS):
            try:
                return self._put(mine, render(length, self._marker))
            except GitHubError as error:
                if error.status != 422 or place + 1 == len(_LENGTHS):
                    raise
        raise AssertionError("the last length returns or raises")

    def _put(self, mine: list[int], text: str) -> str:
        if mine:
            try:
                answer = self._api.send("PATCH", f"{self._repository}/issues/comments/{mine[0]}", {"body": text})
            except GitHubError as error:
                if error.status != 404:
                    raise
            else:
                self._remove(mine[1:])
                return f"comment updated: {_format_address(answer)}"
        return f"comment created: {_format_address(self._api.send('POST', f'{self._issue}/comments', {'body': text}))}"

    def _remove(self, doubles: list[int]) -> None:
        """Two jobs at once may both have found none, and made one each."""
        for number in doubles:
            try:
                self._api.send("DELETE", f"{self._repository}/issues/comments/{number}")
            except GitHubError:
                return  # the report is there; a second comment is no reason to fail

    def _find_comments(self) -> list[int]:
        """Our comments, oldest first. Anybody may write the marker, so the author counts too."""
        numbers: list[int] = []
        is_mine: Callable[[Any], bool] | None = None
        for page in self._api.list_pages(f"{self._issue}/comments?per_page=100"):
            for comment in page:
                if isinstance(comment, dict) and str(comment.get("body", "")).startswith(self._marker):
                    is_mine = is_mine or self._build_author_test()
                    if is_mine(comment.get("user")):
                        numbers.append(int(comment["id"]))
        return numbers

    def _build_author_test(self) -> Callable[[Any], bool]:
        """Whose comments are ours: the token's user's; an app's token has no user, and its comments are a bot's."""
        try:
            login = self._api.send("GET", "/user").get("login")
        except GitHubError as error:
            if error.status not in (401, 403, 404):
                raise
            return lambda user: isinstance(user, dict) and user.get("type") == "Bot"
        return lambda user: isinstance(user, dict) and user.get("login") == login


def _format_address(answer: Any) -> str:
    return escape_controls(str(answer.get("html_url", ""))) if isinstance(answer, dict) else ""
