"""How deep metadata is nested at most, and what is nested deeper and stands in a log already."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from turnlog import TurnLog
from turnlog.audit.notes import Signer
from turnlog.audit.proof_events import ProvedEvent
from turnlog.audit.proofs import Proof, write_proof
from turnlog.errors import CorruptionError, MetaError, ProofError
from turnlog.events import build, decode
from turnlog.events.form import DEPTH_MAX
from turnlog.testing.harness import append

ID = "03ha70yxemrlbjfxddaepmcjt"


def _nested(levels: int) -> dict[str, Any]:
    value: Any = 1
    for number in range(levels - 1):
        value = [value] if number % 2 else {"a": value}
    return {"a": value}


@pytest.mark.parametrize("part", ["public", "private"])
def test_metadata_has_a_limit_of_depth(part: str) -> None:
    """The part around it is a level itself. What has the limit is recorded, verified and proved."""
    with TurnLog.open("memory://") as log:
        event = log.add_event("acme.note", **{part: _nested(DEPTH_MAX - 1)})
        with pytest.raises(MetaError, match="meta: nested deeper than 127 levels"):
            log.add_event("acme.note", **{part: _nested(DEPTH_MAX)})
        log.audit.checkpoint(Signer.generate("example.com/log"))
        assert log.verify().clean
        assert log.audit.prove(event.header.id).events[0].header == event.state


def test_what_is_nested_deeper_and_recorded_is_still_read() -> None:
    """It has no proof, and all else."""
    with TurnLog.open("memory://") as log:
        log.add_turn("first")
        meta = Raw(msgspec.json.encode(_nested(DEPTH_MAX)))
        deep = build(topic="acme.note", id=ID, time=5, meta=meta, private=None)
        append(log.store, deep)
        assert list(log.events())[-1].state == deep.state
        assert log.verify().clean
        log.audit.checkpoint(Signer.generate("example.com/log"))
        with pytest.raises(ProofError, match="nested 128 levels deep at most"):
            log.audit.prove(deep.header.id)
        proved = Proof(index=0, hashes=(), note="", events=(ProvedEvent(header=deep.state),))
        with pytest.raises(ProofError, match="nested 128 levels deep at most"):
            write_proof(proved)


def test_message_names_a_place_only_where_there_is_one() -> None:
    """What is read outside a log has none."""
    with pytest.raises(CorruptionError, match=r"^event cannot be read"):
        decode(b"x", None)
    with pytest.raises(CorruptionError, match=r"^event at global position 7 cannot be read"):
        decode(b"x", None, global_position=7)
