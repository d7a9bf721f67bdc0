"""The table of topics: which field of an event's metadata stands in which part."""

import msgspec
import pytest

from turnlog.events import FREQUENT_TOPICS, REGISTERS, SHAPES, parts_of
from turnlog.model import BytesRef, CallMeta, Origin, TurnMeta, Usage

_TEXT = "Ada Lovelace"


@pytest.mark.parametrize("topic", SHAPES)
def test_every_field_has_one_place(topic: str) -> None:
    """A field is public, cited, or else private; what is named in the table is a field of the topic."""
    shape = SHAPES[topic]
    names = {field.encode_name for field in msgspec.structs.fields(shape.kind)}
    assert shape.public <= names
    assert shape.cited.keys() <= names
    assert not shape.public & shape.cited.keys()
    assert shape.requires <= set(shape.cited.values())


# What is public stays for ever. To make a field public, say here why it can name and describe nobody.
_PUBLIC = {
    "action": "one of a few words",
    "scope": "one of two words",
    "keys": "an HMAC of nothing",
    "tag": "an HMAC of a name",
    "role": "one of three words",
    "content_type": "a media type",
    "type": "one word",
    "cache": "yes or no",
    "model": "the name of a model",
    "model_asked": "the name of a model",
    "provider": "the name of a provider",
    "api": "the name of an api",
    "stop_reason": "one of a few words",
    "raw_stop_reason": "one of a few words",
    "usage": "counts",
    "adapter": "the name of an adapter",
    "adapter_version": "its version",
    "stream": "yes or no",
    "on_loss": "one of two words",
    "kind": "one of two words",
    "turns": "a count",
    "block": "an index",
    "attempt": "a count",
    "approved": "one of three words",
    "ending": "one of a few words",
    "by": "one of two words",
    "duration_ms": "a time",
}


@pytest.mark.parametrize("topic", SHAPES)
def test_only_known_fields_are_public(topic: str) -> None:
    """No field of any topic stands in the header but those that can neither name nor describe a person."""
    assert SHAPES[topic].public <= _PUBLIC.keys()


def test_names_paths_options_and_errors_are_private() -> None:
    """What can hold personal data of a turn stands in its private part."""
    meta = TurnMeta(
        role="user",
        inherited={"who": _TEXT},
        head=_TEXT,
        document_name=_TEXT,
        original_path=_TEXT,
        file_size=1,
        error=_TEXT,
        origin=Origin(format="f", ids=[_TEXT], session=_TEXT),
        options={"who": _TEXT},
        usage=Usage(input_tokens=1),
    )
    public, private = parts_of("gpt.turn", meta)
    assert public == {"role": "user", "usage": {"input_tokens": 1}}
    assert private.keys() == {
        "inherited",
        "head",
        "document_name",
        "original_path",
        "file_size",
        "error",
        "origin",
        "options",
    }


def test_citations_are_in_neither_part() -> None:
    """What is cited is no metadata: it stands with its digest among the citations."""
    turn = TurnMeta(role="user", continues=("a", "b"), call="c", reply="d")
    assert parts_of("gpt.turn", turn) == ({"role": "user"}, {})
    call = CallMeta(
        turn="a",
        provider="p",
        api="i",
        model="m",
        adapter="x",
        adapter_version="1",
        stream=False,
        request=BytesRef(hash="h", size=1),
        base="b",
        tools="t",
    )
    public, private = parts_of("gpt.call", call)
    assert not {"turn", "base", "tools"} & (public.keys() | private.keys())
    assert private == {"request": {"hash": "h", "size": 1}}


def test_groups_of_topics_are_topics() -> None:
    """Frequent topics and registers are topics that there are."""
    assert set(FREQUENT_TOPICS) | set(REGISTERS) <= SHAPES.keys()
    assert not set(FREQUENT_TOPICS) & set(REGISTERS)
