"""Content blocks and payload bytes."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from turnlog.errors import ContentError
from turnlog.model import (
    Block,
    Document,
    Native,
    Source,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    content_bytes,
    decode_content,
    parse_content,
)
from turnlog.model.blocks import is_in_form

EACH_KIND: list[tuple[Block, bytes]] = [
    (Text(text="a"), b'{"type":"text","text":"a"}'),
    (
        Document(source=Source(media_type="a/b", data="eA==")),
        b'{"type":"document","source":{"type":"base64","media_type":"a/b","data":"eA=="}}',
    ),
    (ToolUse(name="f", input=Raw(b'{"b":1,"a":2}')), b'{"type":"tool_use","name":"f","input":{"b":1,"a":2}}'),
    (
        ToolUse(name="f", input=Raw(b"{}"), id="t1"),
        b'{"type":"tool_use","name":"f","input":{},"id":"t1"}',
    ),
    (Thinking(thinking="t", signature="s"), b'{"type":"thinking","thinking":"t","signature":"s"}'),
    (
        Thinking(thinking="", redacted=True, provider="p", api="a", model="m"),
        b'{"type":"thinking","thinking":"","redacted":true,"provider":"p","api":"a","model":"m"}',
    ),
    (
        Native(provider="p", block=Raw(b'{"z":[1.0,1e2]}'), api="a", model="m"),
        b'{"type":"native","provider":"p","block":{"z":[1.0,1e2]},"api":"a","model":"m"}',
    ),
    (ToolResult(content="r", tool_use_id="t1"), b'{"type":"tool_result","content":"r","tool_use_id":"t1"}'),
    (
        ToolResult(content=[Text(text="r")], name="f", is_error=True),
        b'{"type":"tool_result","content":[{"type":"text","text":"r"}],"name":"f","is_error":true}',
    ),
]


def _one(payload: bytes) -> Block:
    [block] = decode_content(payload)
    return block


class TestContentBytes:
    """From what a caller gives to payload bytes."""

    def test_text_is_one_block(self) -> None:
        """A string is one text block, in UTF-8 and not escaped."""
        assert content_bytes("Grüß 🦊") == '[{"type":"text","text":"Grüß 🦊"}]'.encode()

    def test_empty_text_is_a_block_too(self) -> None:
        """An empty string is a block with empty text, not an empty list."""
        assert content_bytes("") == b'[{"type":"text","text":""}]'

    def test_list_of_texts_is_a_block_each(self) -> None:
        """Every string of a list is a block of its own, in order."""
        assert content_bytes(["b", "a"]) == b'[{"type":"text","text":"b"},{"type":"text","text":"a"}]'

    def test_control_characters_and_quotes_are_escaped(self) -> None:
        """Text that JSON must escape comes back as it was."""
        text = '"\\\n\r\t\x00\x1f\u2028</script>'
        assert _one(content_bytes(text)) == Text(text=text)

    @pytest.mark.parametrize(("block", "expected"), EACH_KIND)
    def test_block_is_encoded_in_its_normalized_form(self, block: Block, expected: bytes) -> None:
        """Every kind of block, alone or in a list, has one form; unset fields are not written."""
        assert content_bytes([block]) == b"[" + expected + b"]"
        assert content_bytes(block) == b"[" + expected + b"]"  # type: ignore[arg-type]

    @pytest.mark.parametrize(("block", "expected"), EACH_KIND)
    def test_block_decodes_to_what_it_was(self, block: Block, expected: bytes) -> None:
        """From block to bytes and back is the identity."""
        assert _one(b"[" + expected + b"]") == block

    def test_mapping_keeps_its_key_order(self) -> None:
        """A block given as a mapping is written with its keys in their order, tool input too."""
        block = {"name": "f", "type": "tool_use", "input": {"z": 1, "a": [True, None]}}
        assert content_bytes([block]) == b'[{"name":"f","type":"tool_use","input":{"z":1,"a":[true,null]}}]'

    def test_texts_structs_and_mappings_mix(self) -> None:
        """A list may hold texts, structs and mappings."""
        payload = content_bytes(["a", Text(text="b"), {"type": "text", "text": "c"}])
        assert [block.text for block in decode_content(payload) if isinstance(block, Text)] == ["a", "b", "c"]

    @pytest.mark.parametrize(
        ("content", "field"),
        [
            (b"x", "content"),
            (5, "content"),
            (None, "content"),
            ({"a"}, "content"),
            ([5], "content[0]"),
            (["a", None], "content[1]"),
            (["a", "\ud800"], "content[1]"),
            ("\ud800", "content[0]"),
            ([{"type": "text", "text": "\udfff"}], "content[0]"),
            ([Text(text="\ud800")], "content[0]"),
            ([{"type": "text"}], "content[0]"),
            ([{"text": "x"}], "content[0].type"),
            ([{"type": "image"}], "content[0].type"),
            ([{"type": 5}], "content[0].type"),
            ([{"type": "text", "text": 5}], "content[0].text"),
            (["a", {"type": "text", "text": None}], "content[1].text"),
            ([Text(text=5)], "content[0].text"),  # type: ignore[arg-type]
            ([{"type": "tool_use", "name": "f", "input": "{}"}], "content[0].input"),
            ([{"type": "tool_use", "name": "f", "input": []}], "content[0].input"),
            ([{"type": "tool_use", "name": "f"}], "content[0]"),
            ([{"type": "tool_use", "name": "f", "input": {}, "id": 5}], "content[0].id"),
            ([{"type": "tool_use", "name": "f", "input": {"x": float("nan")}}], "content[0]"),
            ([{"type": "native", "provider": "p", "block": [float("inf")]}], "content[0]"),
            ([{"type": "tool_use", "name": "f", "input": {"x": {1}}}], "content[0]"),
            ([{"type": "document", "source": {"type": "url", "url": "u"}}], "content[0].source"),
            ([{"type": "document", "source": {"type": "base64", "data": "x"}}], "content[0].source"),
            ([{"type": "thinking", "thinking": "x", "redacted": 1}], "content[0].redacted"),
            ([{"type": "tool_result", "content": 5}], "content[0].content"),
            ([{"type": "tool_result", "content": [{"type": "text"}]}], "content[0].content[0]"),
            ([{"type": "tool_result", "content": [{"type": "text", "text": 5}]}], "content[0].content[0].text"),
            ([{"type": "tool_result", "content": [{"type": "tool_use"}]}], "content[0].content[0].type"),
            ([{"type": "tool_result", "is_error": "no"}], "content[0].is_error"),
            ([{"type": "text", "text": "x", "$extra": {}}], "content[0].$extra"),
            ([{"type": "text", "text": "x", "$extra": {"a": 1}}], "content[0].$extra"),
            (
                [{"type": "tool_result", "content": [{"type": "text", "text": "x", "$extra": {"a": 1}}]}],
                "content[0].content[0].$extra",
            ),
        ],
    )
    def test_malformed_content_names_the_field(self, content: Any, field: str) -> None:
        """What is no content is refused with the path of the offending field."""
        with pytest.raises(ContentError) as caught:
            content_bytes(content)
        assert caught.value.field.startswith(field)
        assert str(caught.value).startswith("content")

    def test_input_that_is_no_json_is_refused(self) -> None:
        """Raw text of a block is checked, not taken on trust."""
        with pytest.raises(ContentError, match=r"^content\[0\].input: not valid JSON") as caught:
            content_bytes([ToolUse(name="f", input=Raw(b'{"a":'))])
        assert caught.value.field == "content[0].input"

    @pytest.mark.parametrize("other", [[], ["said"], [Text(text="x" * 300_000)], [{"type": "text", "text": "x"}]])
    @pytest.mark.parametrize(
        ("block", "field"),
        [
            (ToolUse(name="f", input=Raw(b'{},"name":"g"')), "input"),
            (ToolUse(name="f", input=Raw(b'{},"more":1')), "input"),
            (ToolUse(name="f", input=Raw(b'{}},{"type":"text","text":"more"')), "input"),
            (ToolUse(name="f", input=Raw(b'{"a":1}},{"type":"text","text":"%b"' % (b"x" * 300_000))), "input"),
            (ToolUse(name="f", input=Raw(b"")), "input"),
            (ToolUse(name="f", input=Raw(b"{},")), "input"),
            (ToolUse(name="f", input=Raw(b'{"a":"\xff"}')), "input"),
            (ToolUse(name="f", input=Raw(b'{},"more":1'), extra={"a": Raw(b"1")}), "input"),
            (Native(provider="p", block=Raw(b'1,"model":"m"')), "block"),
            (Text(text="a", extra={"x": Raw(b'{ "a" ')}), "extra.x"),
            (Text(text="a", extra={"x": Raw(b'1,"y":2')}), "extra.x"),
            (Text(text=Raw(b'"a","x":1')), "text"),  # type: ignore[arg-type]
            (ToolResult(content=[Text(text="a", extra={"x": Raw(b'1,"y":2')})]), "content[0].extra.x"),
            (
                ToolResult(content=[Native(provider="p", block=Raw(b'1},{"type":"text","text":"b"'))]),
                "content[0].block",
            ),
            ({"type": "tool_use", "name": "f", "input": Raw(b'{},"name":"g"')}, "input"),
            ({"type": "tool_use", "name": "f", "input": {"a": [Raw(b'1],"b":[2')]}}, "input.a[0]"),
        ],
        ids=range(16),
    )
    def test_raw_text_that_goes_on_behind_its_value_is_refused(self, block: Any, field: str, other: list[Any]) -> None:
        """It would be another key of the block, or another block. The message names the field."""
        with pytest.raises(ContentError, match=r": (not valid JSON|text is not valid UTF-8)") as caught:
            content_bytes([*other, block])
        assert caught.value.field == f"content[{len(other)}].{field}"

    @pytest.mark.parametrize(
        ("block", "field"),
        [
            (
                {"type": "tool_result", "content": Raw(b'[{"type":"text","text":"a","text":"b"}]')},
                "content[0].content[0]",
            ),
            (ToolResult(content=Raw(b'[{"type":"text","text":"a","text":"b"}]')), "content[0].content[0]"),  # type: ignore[arg-type]
            (
                {"type": "document", "source": Raw(b'{"type":"base64","media_type":"a/b","data":"","data":"AA=="}')},
                "content[0].source",
            ),
            (ToolUse(name="f", input=Raw(b"{}"), extra={"name": Raw(b'"g"')}), "content[0].extra"),
            (Text(text="a", extra={"type": Raw(b'"native"')}), "content[0].extra"),
            (ToolResult(content=[Text(text="a", extra={"text": Raw(b'"b"')})]), "content[0].content[0].extra"),
        ],
        ids=range(6),
    )
    def test_key_that_a_block_would_have_twice_is_refused(self, block: Any, field: str) -> None:
        """As in JSON text: readers would know one of the two."""
        with pytest.raises(ContentError, match=r"twice|is a key that the block has") as caught:
            content_bytes([block])
        assert caught.value.field == field

    @pytest.mark.parametrize(
        ("block", "payload"),
        [
            (ToolUse(name="f", input=Raw(b' { "a" : 1 } ')), b'{"name":"f","type":"tool_use","input":{"a":1}}'),
            (Text(text=Raw(b'"a"')), b'{"type":"text","text":"a"}'),  # type: ignore[arg-type]
            (ToolResult(content=(Text(text="a"),)), b'{"type":"tool_result","content":[{"type":"text","text":"a"}]}'),  # type: ignore[arg-type]
            (Text(text="a", extra={"x": 1}), b'{"type":"text","text":"a","x":1}'),  # type: ignore[dict-item]
        ],
        ids=range(4),
    )
    def test_block_that_reads_back_otherwise_may_be_right(self, block: Any, payload: bytes) -> None:
        """Raw text with whitespace, and values that are not of the type of their field, but JSON of it."""
        [given], [expected] = json.loads(content_bytes([block])), [json.loads(payload)]
        assert given == expected
        assert b" " not in content_bytes([block])

    def test_nesting_beyond_measure_is_refused(self) -> None:
        """A value nested tens of thousands deep is a content error, not a crash."""
        deep: dict[str, Any] = {}
        for _ in range(50_000):
            deep = {"a": deep}
        with pytest.raises(ContentError):
            content_bytes([{"type": "tool_use", "name": "f", "input": deep}])


@pytest.mark.parametrize("more", [b"", b',"more":1'])
def test_content_is_read_however_deep_it_is_nested(more: bytes) -> None:
    """What the codec reads depends on how deep the stack is already: what was recorded may be too deep for a reader."""
    given = b'{"a":%b,"b":["%b"]}' % (b'[{"[":' * 2000 + b'"]"' + b"}]" * 2000, b"x" * 300_000)
    deep = b'[{"type":"tool_use","name":"f","id":"1"%b,"input":%b},{"type":"text","text":"end"}]' % (more, given)
    called, text = decode_content(deep)
    assert isinstance(called, ToolUse)
    assert bytes(called.input) == given
    assert text == Text(text="end")
    assert is_in_form(deep)
    assert not is_in_form(deep.replace(b'{"[":[', b'{"[": [', 1000))


def test_deep_content_that_is_malformed_is_an_error() -> None:
    """Also where it is malformed below what is read at once, or has no end."""
    deep = b'[{"type":"tool_use","name":"f","input":{"a":%b}}]' % (b"[" * 2000 + b"]" * 2000)
    for damaged in (deep.replace(b"[]", b"[}"), deep.replace(b"[]", b"[1 2]"), deep[:-100], deep.replace(b"use", b"")):
        with pytest.raises(ContentError):
            is_in_form(damaged)
    with pytest.raises(ContentError):
        decode_content(deep[:-100])


def _of_depth(levels: int) -> list[bytes]:
    raw = b"[" * levels + b"]" * levels
    return [
        b'{"type":"tool_use","name":"f","input":{"a":%b}}' % raw[1:-1],
        b'{"type":"native","provider":"p","block":%b}' % raw,
        b'{"type":"text","text":"[[[[","cites":%b}' % raw,
        b'{"type":"tool_result","cites":%b}' % raw,
        b'{"type":"tool_result","content":[{"type":"text","text":"a"},{"type":"native","provider":"p","block":%b}]}'
        % raw[2:-2],
    ]


def test_a_bound_for_the_depth_of_content_is_kept_to_the_level() -> None:
    """The list of blocks is the first level. Brackets in texts are none."""
    places = ("input", "block", "cites", "cites", r"content\[1\].block")
    for block, deeper, place in zip(_of_depth(298), _of_depth(299), places, strict=True):
        assert parse_content(block, depth_max=300) == content_bytes([msgspec.json.decode(block)], depth_max=300)
        said = rf"^content\[0\]\.{place}: content is nested 300 levels deep at most$"
        with pytest.raises(ContentError, match=said):
            parse_content(deeper, depth_max=300)
        with pytest.raises(ContentError, match=said):
            content_bytes([msgspec.json.decode(deeper)], depth_max=300)
        assert parse_content(deeper)


class TestParseContent:
    """From JSON text to payload bytes."""

    def test_spelling_and_order_are_kept(self) -> None:
        """Only whitespace outside strings goes: numbers, escapes and key order stay as they came."""
        text = r"""
        [ { "input" : { "b" : 1.50 , "a" : 1E+2, "\u0061b": "\u00e9\/ x" } , "type":"tool_use", "name" : "f" } ]
        """
        expected = rb'[{"input":{"b":1.50,"a":1E+2,"\u0061b":"\u00e9\/ x"},"type":"tool_use","name":"f"}]'
        assert parse_content(text) == expected
        assert parse_content(text.encode()) == expected

    def test_numbers_beyond_double_precision_are_kept(self) -> None:
        """A number that no float can hold comes back digit for digit."""
        text = '[{"type":"tool_use","name":"f","input":{"n":123456789012345678901234567890.10}}]'
        assert parse_content(text) == text.encode()

    def test_one_block_and_a_bare_string_are_lists_of_one(self) -> None:
        """A block alone, or a JSON string alone, is a list with it; the string keeps its spelling."""
        assert parse_content('{"type":"text","text":"x"}') == b'[{"type":"text","text":"x"}]'
        assert parse_content(r' "a\u0062" ') == rb'[{"type":"text","text":"a\u0062"}]'

    def test_empty_list_is_content(self) -> None:
        """A turn may have no block."""
        assert parse_content(" [ ] ") == b"[]"
        assert decode_content(b"[]") == []

    def test_parsing_is_idempotent(self) -> None:
        """Parsing what parsing gave changes nothing."""
        payload = parse_content('[{"type":"text", "text":"x", "k": {"b":1,  "a":2}}]')
        assert parse_content(payload) == payload

    @pytest.mark.parametrize(
        "text",
        ["", " ", "{", "[", "nul", "[1,]", "{'a':1}", '[{"type":"text","text":"x"}] x', "NaN", "[" * 100_000],
    )
    def test_text_that_is_no_json_is_refused(self, text: str) -> None:
        """Malformed JSON is a content error, however deep it nests."""
        with pytest.raises(ContentError) as caught:
            parse_content(text)
        assert caught.value.field == "content"

    @pytest.mark.parametrize("text", ["5", "true", "null", "[5]", '["x"]', "[[]]", '[{"type":1e400}]'])
    def test_json_that_is_no_block_is_refused(self, text: str) -> None:
        """JSON of another shape is refused."""
        with pytest.raises(ContentError, match=r"^content"):
            parse_content(text)

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ('[{"type":"text","text":"x"},{"type":"tool_use","id":null,"name":"f","input":{}}]', "content[1].id"),
            ('[{"type":"thinking","thinking":"x","signature":null}]', "content[0].signature"),
            (
                '[{"type":"tool_result","content":[{"type":"native","provider":"x","block":null,"api":null}]}]',
                "content[0].content[0].api",
            ),
        ],
    )
    def test_null_for_what_a_block_has_not_is_refused(self, text: str, place: str) -> None:
        """It is left out. A native block may be null, and so may the flag of a result."""
        with pytest.raises(ContentError, match="null is no value here: leave it out") as caught:
            parse_content(text)
        assert caught.value.field == place
        assert parse_content('[{"type":"native","provider":"x","block":null},{"type":"tool_result","is_error":null}]')

    def test_bytes_that_are_not_utf_8_are_refused(self) -> None:
        """The error says that it is not UTF-8."""
        with pytest.raises(ContentError, match="UTF-8"):
            parse_content(b'"\xff"')
        with pytest.raises(ContentError, match="UTF-8"):
            parse_content('"\ud800"')

    def test_unpaired_surrogate_escape_is_refused(self) -> None:
        """An escape that stands for no character is refused, with a hint at what it may be."""
        with pytest.raises(ContentError, match="surrogate"):
            parse_content(r'[{"type":"text","text":"\ud83d"}]')

    def test_paired_surrogate_escape_is_kept(self) -> None:
        """A character beyond the basic plane may be spelled as two escapes, and stays so."""
        payload = parse_content(r'[{"type":"text","text":"\ud83e\udd8a"}]')
        assert payload == rb'[{"type":"text","text":"\ud83e\udd8a"}]'
        assert _one(payload) == Text(text="🦊")

    def test_field_of_the_caller_is_named(self) -> None:
        """The path in the error starts with the field that was asked for."""
        with pytest.raises(ContentError) as caught:
            parse_content('[{"type":"text","text":1}]', field="line 3")
        assert caught.value.field == "line 3[0].text"

    @pytest.mark.parametrize("key", ["$extra", r"\u0024extra"])
    @pytest.mark.parametrize("value", ["{}", '{"a":1}', "1"])
    def test_reserved_key_is_refused(self, key: str, value: str) -> None:
        """The one key that a block must not have is refused, however it is spelled, also in a nested block."""
        block = f'{{"type":"text","text":"x","{key}":{value}}}'
        with pytest.raises(ContentError) as caught:
            parse_content(f"[{block}]")
        assert caught.value.field.startswith("content[0]")
        with pytest.raises(ContentError):
            parse_content(f'[{{"type":"tool_result","content":[{block}]}}]')

    def test_reserved_key_inside_tool_input_is_no_concern(self) -> None:
        """Only blocks have reserved keys: a tool's input is its own."""
        text = '[{"type":"tool_use","name":"f","input":{"$extra":{"a":1}}}]'
        assert parse_content(text) == text.encode()

    @pytest.mark.parametrize(
        ("text", "place", "key"),
        [
            ('[{"type":"text","text":"I owe you 100","text":"I owe you 1"}]', "content[0]", "text"),
            ('[{"type":"text","text":"x"},{"type":"text","text":"x","k":1,"\\u006b":[1e5000]}]', "content[1]", "k"),
            ('{"type":"text","type":"text","text":"x"}', "content[0]", "type"),
            (
                '{"type":"document","source":{"type":"base64","media_type":"a/b","data":"","data":"aGk="}}',
                "content[0].source",
                "data",
            ),
            (
                '{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"x","text":"y"}]}',
                "content[0].content[0]",
                "text",
            ),
            (f'{{"type":"text","text":"x","text":"{"y" * 300_000}"}}', "content[0]", "text"),
        ],
    )
    def test_key_that_comes_twice_is_refused(self, text: str, place: str, key: str) -> None:
        """The bytes would say both, and every reader one."""
        with pytest.raises(ContentError, match=f"the key '{key}' comes twice") as caught:
            parse_content(text)
        assert caught.value.field == place

    @pytest.mark.parametrize(
        "text",
        [
            '[{"type":"tool_use","name":"f","input":{"x":1,"x":2}}]',
            '[{"type":"native","provider":"p","block":{"x":1,"x":2}}]',
            '[{"type":"text","text":"x","k":{"x":1,"x":2}}]',
            '[{"\\u0074ype":"text","text":"x","content":[1]}]',
        ],
    )
    def test_what_is_somebody_elses_is_kept_as_it_is(self, text: str) -> None:
        """The input of a call and a provider's block say what they said; and a key can be spelled with escapes."""
        assert parse_content(text) == text.encode()


class TestUnknownKeys:
    """Keys that turnlog does not know are carried and go back unchanged."""

    PAYLOAD = (
        b'[{"type":"text","text":"x","citations":[{"b":1.0,"a":2}],"cache_control":{"type":"ephemeral"}},'
        b'{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"y","k":1e1}],"more":null}]'
    )

    def test_payload_keeps_them_verbatim(self) -> None:
        """Recording changes nothing about unknown keys."""
        assert parse_content(self.PAYLOAD) == self.PAYLOAD

    def test_blocks_carry_them_as_raw_text(self) -> None:
        """A decoded block has the unknown keys in `extra`, as they were spelled."""
        text, result = decode_content(self.PAYLOAD)
        assert {name: bytes(raw) for name, raw in text.extra.items()} == {
            "citations": b'[{"b":1.0,"a":2}]',
            "cache_control": b'{"type":"ephemeral"}',
        }
        assert isinstance(result, ToolResult)
        assert {name: bytes(raw) for name, raw in result.extra.items()} == {"more": b"null"}
        [nested] = result.content
        assert isinstance(nested, Text)
        assert bytes(nested.extra["k"]) == b"1e1"

    def test_blocks_write_them_back(self) -> None:
        """Blocks that were decoded encode to the same values, unknown keys and nested blocks too."""
        again = content_bytes(decode_content(self.PAYLOAD))
        assert json.loads(again) == json.loads(self.PAYLOAD)
        assert b'[{"b":1.0,"a":2}]' in again
        assert b'"k":1e1' in again
        assert b"$extra" not in again

    def test_known_block_has_none(self) -> None:
        """A block without unknown keys has an empty `extra`, and unset optional fields."""
        block = _one(b'[{"type":"tool_use","name":"f","input":{}}]')
        assert block == ToolUse(name="f", input=Raw(b"{}"))
        assert block.extra == {}
        assert isinstance(block, ToolUse)
        assert block.id is None

    def test_field_of_another_kind_is_an_unknown_key(self) -> None:
        """A key that only another kind of block knows is carried like any unknown one."""
        block = _one(b'[{"type":"text","text":"x","is_error":"maybe","content":[5]}]')
        assert {name: bytes(raw) for name, raw in block.extra.items()} == {"is_error": b'"maybe"', "content": b"[5]"}

    def test_malformed_known_field_beside_unknown_keys_is_named(self) -> None:
        """An unknown key does not hide a malformed known one."""
        with pytest.raises(ContentError) as caught:
            decode_content(b'[{"type":"text","text":"x"},{"type":"text","text":5,"k":1}]')
        assert caught.value.field == "content[1].text"


def test_blocks_cannot_be_changed() -> None:
    """A block is frozen."""
    with pytest.raises(AttributeError):
        Text(text="x").text = "y"  # type: ignore[misc]
