"""Runs of any shape, for tests."""

from __future__ import annotations

from hypothesis import strategies as st

from turnlog.interop.geppetto import Block, BlockKind, BlockMetadata, Data, Metadata, Run, RunMetadata, Turn

TEXTS = st.sampled_from(
    ["", "a", "The answer.", "ä\n\u2028\U0001f600", '{"a":1}', '{"a": 1}', "[1]", "7", "not { json"]
)
NAMES = st.sampled_from(["a", "type", "text", "$extra"])
NUMBERS = st.sampled_from([0, 1, -7, 1.5, 1.0, 2**53, -0.0])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.dictionaries(st.sampled_from(["a", "b.c@v1", "type"]), VALUES, max_size=3)
IMAGES = st.lists(
    st.fixed_dictionaries({"media_type": st.just("image/png"), "content": st.just("iVBORw==")})
    | st.fixed_dictionaries({"url": TEXTS})
    | VALUES,
    max_size=3,
)
IDS = st.sampled_from(["", "b1", "b2", "call-1"])


@st.composite
def payloads(draw: st.DrawFn) -> dict[str, object]:
    """Make a payload: what its kind has, or anything."""
    usual = {
        "text": TEXTS,
        "id": IDS,
        "name": st.sampled_from(["shell", ""]),
        "args": TEXTS | RECORDS,
        "result": VALUES | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), max_size=3),
        "error": TEXTS,
        "images": IMAGES,
        "encrypted_content": TEXTS,
        "item_id": IDS,
    }
    names = draw(st.lists(st.sampled_from(sorted(usual)), unique=True, max_size=5))
    payload = {name: draw(usual[name]) if draw(st.integers(0, 5)) else draw(VALUES) for name in names}
    return payload | (draw(RECORDS) if draw(st.booleans()) else {})


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    """Make a block."""
    return Block(
        kind=draw(st.sampled_from(list(BlockKind))),
        id=draw(IDS),
        turn_id=draw(st.sampled_from(["", "t1", "t2"])),
        role=draw(st.sampled_from(["", "user", "assistant", "tool", "robot"])),
        payload=draw(payloads()),
        metadata=BlockMetadata(draw(RECORDS)),
    )


@st.composite
def turns(draw: st.DrawFn, before: Turn | None = None) -> Turn:
    """Make a turn: anew, or one that begins as one before it."""
    kept = [] if before is None else before.blocks[: draw(st.integers(0, len(before.blocks)))]
    return Turn(
        id=draw(st.sampled_from(["", "t1", "t2"])),
        run_id=draw(st.sampled_from(["", "r1"])),
        metadata=Metadata(draw(RECORDS)),
        data=Data(draw(RECORDS)),
        blocks=[*kept, *draw(st.lists(blocks(), max_size=4))],
    )


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Make a run."""
    made: list[Turn] = []
    for _ in range(draw(st.integers(0, 3))):
        made.append(draw(turns(made[-1] if made else None)))
    return Run(
        id=draw(st.sampled_from(["", "r1"])),
        name=draw(TEXTS),
        metadata=RunMetadata(draw(RECORDS)),
        turns=made,
    )
