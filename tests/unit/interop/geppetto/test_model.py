"""Geppetto's types: stores and their keys, blocks and helpers, the printer, and YAML and JSON."""

from __future__ import annotations

import io
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.errors import ContentError, MetaError
from turnlog.interop import geppetto as gp
from turnlog.interop.geppetto import Block, BlockKind, Run, Turn
from turnlog.model import Usage
from turnlog.model.json_values import UniqueMembers

LOOKS = [
    *("1", "0x1f", "0X1F", "0o17", "010", "08", "0b1", "1e3", "1E-7", "-.5", "5.", "1e400", "1_000", "1_0.5", ".nan"),
    *("yes", "null", "~", "2020-01-01", "1:30", "=", "<<", "- a", "a: b", "# c"),
]
LINES = [
    "a\nb",
    "\n",
    " a\n b\n\n",
    "a\r\nb",
    "\ta\n",
    "a \nb",
    "\u2028\n",
    "\x85\n",
    "é\n\U0001f600",
    "...\n",
    "---\n",
]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from([*LOOKS, *LINES])
integers = st.integers(-(1 << 63), (1 << 64) - 1)
scalars = st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
records = st.dictionaries(texts, values, max_size=3)
blocks = st.builds(
    Block,
    kind=st.sampled_from(BlockKind),
    id=texts,
    turn_id=texts,
    role=texts,
    payload=records,
    metadata=st.builds(gp.BlockMetadata, records),
)
turns = st.builds(
    Turn,
    id=texts,
    run_id=texts,
    metadata=st.builds(gp.Metadata, records),
    data=st.builds(gp.Data, records),
    blocks=st.lists(blocks, max_size=3),
)
runs = st.builds(
    Run, id=texts, name=texts, metadata=st.builds(gp.RunMetadata, records), turns=st.lists(turns, max_size=2)
)


@given(runs)
def test_a_run_is_equal_after_yaml_and_after_json(run: Run) -> None:
    """What is read is what was written, whatever texts look like."""
    assert gp.run_from_yaml(gp.run_to_yaml(run)) == run
    assert gp.run_from_json(gp.run_to_json(run)) == run


@given(turns)
def test_a_turn_is_equal_after_yaml_and_after_json(turn: Turn) -> None:
    """A turn alone is read as it was written."""
    assert gp.turn_from_yaml(gp.turn_to_yaml(turn)) == turn
    assert gp.turn_from_json(gp.turn_to_json(turn)) == turn


def test_yaml_has_identities_as_keys_and_lines_as_blocks() -> None:
    """Typed keys are texts in YAML, and what is empty is left out."""
    turn = Turn(id="7", blocks=[gp.new_user_text_block("one\ntwo", id="b")])
    gp.KEY_MODEL.set(turn.metadata, "m")
    assert gp.turn_to_yaml(turn) == (
        "id: '7'\nmetadata:\n  geppetto.model@v1: m\nblocks:\n- id: b\n  kind: user\n  role: user\n"
        "  payload:\n    text: |-\n      one\n      two\n"
    )


def test_a_date_in_yaml_stays_text() -> None:
    """What looks like a date is text as it is spelled."""
    turn = gp.turn_from_yaml("blocks: [{kind: other, payload: {on: 1, 'day': 2020-01-01}}]".replace("on:", "'on':"))
    assert turn.blocks[0].payload == {"on": 1, "day": "2020-01-01"}


@pytest.mark.parametrize(
    ("spelled", "value"),
    [
        *((word, word) for word in ("yes", "off", "nULL", "1:30", "1:30.5", "=", "<<")),
        *((word, word) for word in (".", "+", "1e", "1.5.2", "0x", "0b2", "0o8", "_1", ".5_0")),
        *[("true", True), ("~", None), ("Null", None)],
        *[("1.5", 1.5), ("5.", 5.0), ("+.5", 0.5), ("08", 8.0), ("1_0.5", 10.5), ("-0.0", -0.0), ("1.0e+20", 1e20)],
        *[("1e+06", 1e6), ("1e-07", 1e-7), ("1.5e3", 1500.0), ("6.02E23", 6.02e23), ("2e3_0", 2e30)],
        *[
            ("10", 10),
            ("-1_0", -10),
            ("0x1F", 31),
            ("-0X1f", -31),
            ("0b11", 3),
            ("18446744073709551615", (1 << 64) - 1),
        ],
        *[("010", 8), ("-0_10", -8), ("0o10", 8), ("+0O10", 8), ("00", 0)],
        *[("1e400", "1e400"), ("-1.0e+400", "-1.0e+400"), (f"0e-{'9' * 30}", 0.0)],
    ],
)
def test_plain_words_of_yaml_are_what_go_has_them_as(spelled: str, value: object) -> None:
    """Numbers with an exponent and octal ones too; what only YAML 1.1 has as a flag or a number is text."""
    [block] = gp.turn_from_yaml(f"blocks: [{{kind: other, payload: {{a: {spelled}}}}}]").blocks
    assert block.payload == {"a": value}
    assert type(block.payload["a"]) is type(value)
    assert repr(block.payload["a"]) == repr(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("blocks: [{kind: thought}]", r"turn\.blocks\[0\]\.kind: 'thought' is not a kind of block"),
        ("blocks: [{role: user}]", r"turn\.blocks\[0\]\.kind: '' is not a kind"),
        ("colour: red", r"turn\.colour: unknown key"),
        ("id: 7", r"turn\.id: expected text, got int: quote it"),
        ("blocks: {}", r"turn\.blocks: expected a list, got dict"),
        ("data: []", r"turn\.data: expected a record, got list"),
        ("data: {a: .nan}", r"turn\.data: Data\.a: JSON has no NaN"),
        ("blocks: [{kind: user, payload: {1: a}}]", r"payload: JSON has only text for keys"),
        ("id: a\nid: b", "the key 'id' is there twice"),
        ("a: [", "turn: not valid YAML"),
        ("- a", "turn: expected a record, got list"),
        ("a: 2020-99-99: b", "turn: not valid YAML"),
    ],
)
def test_yaml_that_is_no_turn_is_refused_at_its_place(text: str, message: str) -> None:
    """What a turn cannot hold is refused by its name, not dropped."""
    with pytest.raises(ContentError, match=message):
        gp.turn_from_yaml(text)


@pytest.mark.parametrize(
    "record",
    [
        "{1: a, 0x1: b}",
        "{1: a, 1.0: b}",
        "{1: a, '1': b}",
        "{~: a, null: b}",
        "{true: a, True: b}",
        "{1: a, true: b}",
        "{a: 1, 'a': 2}",
        "{'a\\b': 1, \"a\\x5cb\": 2}",
    ],
)
def test_a_key_that_is_there_twice_in_another_spelling_is_refused(record: str) -> None:
    """Else the value of one of the two would be gone."""
    for text in (f"blocks: [{{kind: other, payload: {{a: {record}}}}}]", f"data: {record}"):
        with pytest.raises(ContentError, match="is there twice"):
            gp.turn_from_yaml(text)


@pytest.mark.parametrize("record", ["{<<: {a: 1}, a: 2}", "{<<: [{a: 1}, {a: 2}]}", "{!!merge x: {a: 1}}"])
def test_merge_keys_are_refused(record: str) -> None:
    """One that is quoted is a key like any other."""
    with pytest.raises(ContentError, match=r"merge keys \(<<\) are not read: write what they stand for"):
        gp.turn_from_yaml(f"data: {record}")
    turn = gp.turn_from_yaml("blocks: [{kind: other, payload: {'<<': {a: 1}, a: 2}}]")
    assert turn.blocks[0].payload == {"<<": {"a": 1}, "a": 2}
    assert gp.turn_from_yaml(gp.turn_to_yaml(turn)) == turn


@pytest.mark.parametrize("value", ["!!map [a]", "!!map a", "!!set [a]"])
def test_a_record_that_is_none_is_refused_in_a_line(value: str) -> None:
    """A tag can promise what is not there."""
    with pytest.raises(ContentError, match="expected a mapping node"):
        gp.turn_from_yaml(f"blocks: [{{kind: tool_use, payload: {{result: {value}}}}}]")


def test_a_text_that_looks_like_a_number_is_quoted() -> None:
    """For Go, too, and however long it is."""
    for text in ("1e3", "0o17", "0x1F", "08", "1_0e5", "-.5", "0X" + "F" * 100_000, "1" * 100_000):
        written = gp.turn_to_yaml(Turn(blocks=[gp.new_user_text_block(text)]))
        assert f"text: '{text}'" in written


def test_an_explicit_tag_is_what_it_promises_or_refused() -> None:
    """With numbers as they are without it."""
    turn = gp.turn_from_yaml("blocks: [{kind: other, payload: {a: !!int '0o10', b: !!float 5, c: !!str 1e3}}]")
    assert turn.blocks[0].payload == {"a": 8, "b": 5.0, "c": "1e3"}
    for word in ("!!int x", "!!float x", "!!int 1.5", "!!int ''"):
        with pytest.raises(ContentError, match="not valid YAML"):
            gp.turn_from_yaml(f"blocks: [{{kind: other, payload: {{a: {word}}}}}]")


def test_a_payload_that_json_cannot_carry_is_refused_by_its_place() -> None:
    """The message names the block."""
    run = Run(turns=[Turn(blocks=[Block(kind=BlockKind.OTHER, payload={"a": b"x"})])])
    with pytest.raises(ContentError, match=r"run\.turns\[0\]\.blocks\[0\]\.payload\.a: bytes is not JSON"):
        gp.run_to_yaml(run)


def test_a_key_has_an_identity_and_gives_what_was_set() -> None:
    """A value comes back with its type, and is held as plain JSON."""
    data = gp.Data()
    assert gp.KEY_TOOL_CONFIG.get(data) is None
    config = gp.ToolConfig(enabled=True, tool_choice="required", max_parallel_tools=2, allowed_tools=["clock"])
    gp.KEY_TOOL_CONFIG.set(data, config)
    assert gp.KEY_TOOL_CONFIG.identity == "geppetto.tool_config@v1"
    assert gp.KEY_TOOL_CONFIG.get(data) == config
    [(identity, value)] = data.range()
    assert (identity, value["tool_choice"]) == ("geppetto.tool_config@v1", "required")
    metadata = gp.Metadata()
    gp.KEY_USAGE.set(metadata, Usage(input_tokens=3))
    assert gp.KEY_USAGE.get(metadata) == Usage(input_tokens=3)


@pytest.mark.parametrize("value", [3, None, True, ["a"]])
def test_a_value_of_another_type_is_refused_both_ways(value: Any) -> None:
    """Neither set nor get lets a wrong type pass."""
    metadata = gp.Metadata()
    with pytest.raises(MetaError, match=r"geppetto\.model@v1: expected `str`"):
        gp.KEY_MODEL.set(metadata, value)
    assert len(metadata) == 0
    with pytest.raises(MetaError, match=r"geppetto\.model@v1: expected `str`"):
        gp.KEY_MODEL.get(gp.Metadata({"geppetto.model@v1": value}))


def test_a_value_that_json_cannot_carry_is_refused() -> None:
    """A store holds JSON alone."""
    key = gp.BlockMetaKey(dict[str, Any], "acme", "hints")
    with pytest.raises(MetaError, match="JSON has no NaN"):
        key.set(gp.BlockMetadata(), {"a": float("nan")})
    with pytest.raises(MetaError, match="cannot be kept as JSON"):
        key.set(gp.BlockMetadata(), {"a": object()})


def test_a_key_of_another_family_is_refused() -> None:
    """A key opens the stores of its family alone."""
    wrong = cast("gp.Metadata", gp.Data())
    for act in (gp.KEY_MODEL.get, lambda store: gp.KEY_MODEL.set(store, "m"), lambda store: store.delete(gp.KEY_MODEL)):
        with pytest.raises(MetaError, match=r"geppetto\.model@v1: is a key for Metadata, not for Data"):
            act(wrong)


def test_a_key_with_an_impossible_identity_is_refused() -> None:
    """Names have no `@` and no spaces, and versions begin with 1."""
    with pytest.raises(MetaError, match="namespace: 'a b' is no name"):
        gp.RunMetaKey(str, "a b", "x")
    with pytest.raises(MetaError, match="value: 'x@v2' is no name"):
        gp.RunMetaKey(str, "a", "x@v2")
    with pytest.raises(MetaError, match="versions begin with 1, got 0"):
        gp.RunMetaKey(str, "a", "x", 0)


def test_stores_share_nothing_and_cannot_be_indexed() -> None:
    """A clone and the values given out are copies."""
    store = gp.RunMetadata({"a.b@v1": [1], "other": 2})
    clone = store.clone()
    [(_, value), _] = store.range()
    value.append(2)
    clone.delete(gp.RunMetaKey(list[int], "a", "b"))
    assert (len(store), len(clone)) == (2, 1)
    assert store == gp.RunMetadata({"a.b@v1": [1], "other": 2})
    assert clone == gp.RunMetadata({"other": 2})
    assert gp.Data() != gp.Metadata()
    with pytest.raises(TypeError, match="not subscriptable"):
        cast("Any", store)["other"]


def test_builders_make_blocks_of_their_kind() -> None:
    """Each builder says kind, role and payload; fresh ids differ."""
    made = [
        gp.new_user_text_block("u"),
        gp.new_assistant_text_block("a"),
        gp.new_system_text_block("s"),
        gp.new_reasoning_block("r", encrypted_content="x"),
        gp.new_tool_call_block("c1", "clock", {"zone": "UTC"}),
        gp.new_tool_use_block("c1", None, error="broke"),
    ]
    assert [(block.kind.value, block.role, block.payload) for block in made] == [
        ("user", "user", {"text": "u"}),
        ("llm_text", "assistant", {"text": "a"}),
        ("system", "system", {"text": "s"}),
        ("reasoning", "assistant", {"text": "r", "encrypted_content": "x"}),
        ("tool_call", "assistant", {"id": "c1", "name": "clock", "args": {"zone": "UTC"}}),
        ("tool_use", "tool", {"id": "c1", "result": None, "error": "broke"}),
    ]
    assert len({block.id for block in made}) == len(made)


def test_helpers_put_blocks_in_their_places_and_find_them() -> None:
    """Blocks are appended, prepended and inserted before the last one, also of an empty turn."""
    turn = Turn()
    gp.insert_before_last(turn, gp.new_user_text_block("", id="1"))
    gp.append_block(turn, gp.new_assistant_text_block("", id="2"))
    gp.append_blocks(turn, gp.new_user_text_block("", id="3"), gp.new_assistant_text_block("", id="4"))
    gp.prepend_block(turn, gp.new_system_text_block("", id="0"))
    gp.insert_before_last(turn, gp.new_user_text_block("", id="5"))
    assert [block.id for block in turn.blocks] == ["0", "1", "2", "3", "5", "4"]
    found = gp.find_last_blocks_by_kind(turn, BlockKind.USER, BlockKind.SYSTEM)
    assert [block.id for block in found] == ["0", "1", "3", "5"]
    assert [block.id for block in gp.find_last_blocks_by_kind(turn, BlockKind.USER, limit=2)] == ["3", "5"]
    assert gp.find_last_blocks_by_kind(turn, BlockKind.USER, limit=0) == []


def test_block_metadata_is_set_on_a_copy() -> None:
    """The block that was given stays as it is."""
    block = gp.new_user_text_block("u", id="b")
    marked = gp.with_block_metadata(block, gp.KEY_BLOCK_MIDDLEWARE, "systemprompt")
    assert gp.KEY_BLOCK_MIDDLEWARE.get(marked.metadata) == "systemprompt"
    marked.payload["text"] = "other"
    assert block == Block(kind=BlockKind.USER, id="b", role="user", payload={"text": "u"})


def test_a_turn_is_shown_as_the_options_say() -> None:
    """Ids, roles, tool detail and the number of lines can be chosen."""
    call = gp.new_tool_call_block("c1", "clock", {"zone": "UTC"})
    use = gp.new_tool_use_block("c1", {"h": 1}, id="u1")
    turn = Turn(id="t", run_id="r", blocks=[gp.new_user_text_block("a\nb\nc", id="b"), call, use])
    assert gp.format_turn(turn) == (
        '[user] user\n  a\n  b\n  c\n[tool_call] assistant\n  clock (c1)\n  args: {"zone":"UTC"}\n'
        '[tool_use] tool\n  of call c1\n  result: {"h":1}\n'
    )
    file = io.StringIO()
    gp.write_turn(file, turn, gp.PrintOptions(ids=True, roles=False, tool_detail=False, lines_max=2))
    assert file.getvalue() == (
        "turn t of run r\n[user] id=b\n  a\n  b\n  … 1 more line\n[tool_call] id=c1\n  clock (c1)\n"
        "[tool_use] id=u1\n  of call c1\n"
    )


def test_the_guided_examples_build_and_read_a_turn() -> None:
    """A seed is built of blocks, texts are read by payload keys, and tool configuration is set by its key."""
    seed = Turn()
    gp.append_block(seed, gp.new_system_text_block("Answer briefly."))
    gp.append_block(seed, gp.new_user_text_block("Is it raining in Oslo?"))
    gp.append_block(seed, gp.new_assistant_text_block("Let me see."))
    said = [block.payload[gp.PAYLOAD_KEY_TEXT] for block in seed.blocks if block.kind == BlockKind.LLM_TEXT]
    assert said == ["Let me see."]
    gp.KEY_TOOL_CONFIG.set(seed.data, gp.ToolConfig(enabled=True, tool_choice="auto"))
    read = gp.turn_from_yaml(gp.turn_to_yaml(seed))
    assert gp.KEY_TOOL_CONFIG.get(read.data) == gp.ToolConfig(enabled=True)


def test_aliases_are_refused_in_a_line() -> None:
    """A few of them can stand for more than fits any memory; what is there twice is written twice."""
    with pytest.raises(ContentError, match="aliases") as caught:
        gp.turn_from_yaml("id: &a x\nrun_id: *a\n")
    assert "\n" not in str(caught.value)
    shared: list[gp.JSONValue] = ["x"]
    turn = Turn(blocks=[Block(kind=BlockKind.OTHER, payload={"one": shared, "two": shared})])
    assert gp.turn_from_yaml(gp.turn_to_yaml(turn)) == turn


@pytest.mark.parametrize(
    "text", ["data: {a: !!int ''}", "data: {a: !!bool maybe}", "id: !!timestamp x", "a: [" + "[" * 5000]
)
def test_odd_yaml_is_refused_in_a_line(text: str) -> None:
    """Whatever PyYAML makes of it."""
    with pytest.raises((ContentError, MetaError)) as caught:
        gp.turn_from_yaml(text)
    assert "\n" not in str(caught.value)


class _Name(str):
    """A key that counts how often one is compared with another."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        type(self).compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_key_that_is_there_twice_is_found_by_looking_at_each_once() -> None:
    """However many there are before it."""
    members = UniqueMembers()
    record = members([(_Name(f"k{number}"), number) for number in (*range(1000), 999)])
    with pytest.raises(ContentError, match="turn: a record has the key 'k999' twice"):
        members.check(record, "turn")
    assert _Name.compared < 10_000


def test_two_halves_of_a_pair_are_a_character_in_yaml() -> None:
    """As in JSON; one alone is no Unicode, and refused."""
    turn = gp.turn_from_yaml('blocks: [{kind: user, payload: {"\\ud83d\\ude00": "a\\ud83d\\ude00b"}}]')
    assert turn.blocks[0].payload == {"\U0001f600": "a\U0001f600b"}
    with pytest.raises(ContentError, match="not valid UTF-8"):
        gp.turn_from_yaml('blocks: [{kind: user, payload: {text: "\\ud83d"}}]')


@pytest.mark.parametrize("text", [None, 5])
def test_what_is_no_text_is_refused(text: Any) -> None:
    """With what was expected."""
    with pytest.raises(ContentError, match=rf"turn: expected JSON text, got {type(text).__name__}"):
        gp.turn_from_json(text)


def test_of_many_records_with_a_key_twice_the_first_is_named() -> None:
    """Also where it stands in another one, whose own place it is then."""
    twice = '{"a":1,"a":2}'
    for inner, place in ((f"[1,{twice},{twice}]", r"turn\.data\.x\[1\]"), (f'{{"b":{twice},"b":1}}', r"turn\.data\.x")):
        with pytest.raises(ContentError, match=rf"^{place}: a record has the key '[ab]' twice"):
            gp.turn_from_json(f'{{"data":{{"x":{inner}}}}}')


def test_what_cannot_be_read_or_written_is_refused() -> None:
    """A number that nothing can hold, values that are no JSON, and what is nested too deeply for YAML."""
    with pytest.raises(ContentError):
        gp.turn_from_json('{"data":{"a":1e999}}')
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    for payload in ({"a": object()}, {"a": nested}):
        with pytest.raises((ContentError, MetaError)):
            gp.turn_to_yaml(Turn(blocks=[Block(kind=BlockKind.OTHER, payload=payload)]))


@pytest.mark.parametrize(
    ("namespace", "value", "version"), [("a", "b.c", 1), ("a", "b", True), ("a", "b", 1.5), ("", "b", 1)]
)
def test_keys_that_could_be_taken_for_others_are_refused(namespace: str, value: str, version: Any) -> None:
    """Each identity is of one key."""
    with pytest.raises(MetaError):
        gp.DataKey(int, namespace, value, version)
