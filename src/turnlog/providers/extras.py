"""What a block of a reply has beside the fields that a content block knows: one rule for all wires.

It stands in the block's `extra`, under the names that the provider gave it. A name that the block has for itself (a
`redacted` in Anthropic's thinking, an `input` beside the function of Cohere's call) would be read as turnlog's own
there, so a field that is called so stands under `FIELDS`, and goes back from there as it came.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from turnlog.model import ARGUMENTS, MALFORMED, Block, Text, Thinking, ToolUse
from turnlog.providers.raw_json import Fields, fields_of, raw

FIELDS = "provider_fields"
"""The extra key of a block with the fields of the provider whose names turnlog has taken, an object."""

_NOTED = frozenset({"type", FIELDS, ARGUMENTS, MALFORMED})
_TAKEN = {
    kind: _NOTED.union(field.encode_name for field in msgspec.structs.fields(kind))
    for kind in (Text, Thinking, ToolUse)
}
"""The names that each kind of block has for itself."""


def extras(kind: type[Text | Thinking | ToolUse], fields: Fields, own: Collection[str] = ()) -> Fields:
    """Return the `extra` of a block that says what the provider sent beside it, and nothing that turnlog says.

    Args:
        kind: the kind of block.
        fields: what the provider sent, without the fields that the block is made of.
        own: extra keys in which the wire itself notes something.
    """
    taken = _TAKEN[kind]
    if taken.isdisjoint(fields) and not any(name in own for name in fields):
        return fields
    kept = {name: value for name, value in fields.items() if name in taken or name in own}
    free = {name: value for name, value in fields.items() if name not in kept}
    return free | {FIELDS: raw(kept)}


def provider_fields(block: Block, *own: str) -> Fields:
    """Return what the provider sent beside a block, under its own names: what `extras` was given.

    Args:
        block: the block.
        own: extra keys of the block that go elsewhere, or nowhere.
    """
    if not block.extra:
        return {}
    kept = fields_of(block.extra.get(FIELDS))
    left_out = own if kept is None else (*own, FIELDS)
    return {name: value for name, value in block.extra.items() if name not in left_out} | (kept or {})
