"""What somebody records here as base64 is such: providers refuse what is none, whenever it is sent."""

from base64 import b64encode
from typing import Any

import pytest
from tests.agent.running import run
from tests.agent.scripted import Scripted, say

from turnlog import ContentError, Document, Source, TurnLog

SAID = "this is no base64 with padding (RFC 4648): b64encode makes it"
LONG = b64encode(bytes(300_000)).decode()


def document(data: str) -> dict[str, Any]:
    """Return a document of some base64."""
    return {"type": "document", "source": {"type": "base64", "media_type": "image/png", "data": data}}


@pytest.mark.parametrize("data", ["!!!", "QUI", "QUI=QUI=", "QU\nJD", LONG[:-1], LONG[:200_000] + "-" + LONG])
def test_what_is_no_base64_is_refused_with_its_place(log: TurnLog, data: str) -> None:
    """By all ways in which somebody gives content; nothing is recorded."""
    content = ["See.", document(data)]
    with pytest.raises(ContentError) as caught:
        log.add_turn(content)
    assert str(caught.value) == f"content[1].source.data: {SAID}"
    assert caught.value.field == "content[1].source.data"
    with pytest.raises(ContentError, match="padding"):
        run(log, Scripted(say("Done.")), content)
    with pytest.raises(ContentError, match="padding"), log.group() as group:
        group.add_turn(content)
    assert log.wait(0, 0) == 0


def test_a_document_in_a_result_is_looked_at(log: TurnLog) -> None:
    """The place says where it is."""
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x"}, document("?")]}
    with pytest.raises(ContentError) as caught:
        log.add_turn([result])
    assert caught.value.field == "content[0].content[1].source.data"


@pytest.mark.parametrize("data", ["", "QUI=", "QUJD", LONG])
def test_base64_is_recorded_as_it_is(log: TurnLog, data: str) -> None:
    """Also a text that speaks of it."""
    [recorded] = log.content(log.add_turn([document(data)]).id)
    assert recorded == Document(source=Source(media_type="image/png", data=data))
    assert log.text(log.add_turn(['{"type":"base64","data":"!!!"}']).id) == '{"type":"base64","data":"!!!"}'
