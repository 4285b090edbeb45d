"""Parts of a history that hold no call, and are no error: each as a framework has really sent it."""

import pytest

from evalkit.jsonvalue import JsonDict
from evalkit.wire import gemini_content
from evalkit.wire.records import Unread


@pytest.mark.parametrize(
    "part",
    [
        {"videoMetadata": {"startOffset": "2s", "endOffset": "10s"}},  # pydantic-ai, beside the part with the video
    ],
)
def test_a_part_without_a_call_is_read(part: JsonDict) -> None:
    request = gemini_content.read_request({"contents": [{"role": "user", "parts": [part]}]})
    assert not [item for item in request.items if isinstance(item, Unread)]
