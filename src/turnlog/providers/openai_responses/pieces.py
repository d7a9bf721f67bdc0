"""The items of an output while they come in pieces: which of them a piece belongs to, and what they hold so far."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Raw

from turnlog.providers.raw_json import Fields, objects_of, raw, text_of

_TEXTS = ("text", "refusal", "arguments", "input", "code")
_LISTS = ("content", "summary")
_EMPTY = (b'""', b"[]", b"null")
_EMPTY_BYTES_MAX = max(map(len, _EMPTY))


def keeping(told: Fields, before: Fields) -> Fields:
    """Return an object as it was told, with the texts that had come before where nothing stands in their place."""
    if told.get("type") != before.get("type"):
        return told
    kept: Fields = {}
    for name in (*_TEXTS, *_LISTS):
        now, earlier = told.get(name), before.get(name)
        if earlier is None or _is_empty(earlier) or now == earlier:
            continue
        if _is_empty(now):
            kept[name] = earlier
        elif name in _LISTS:
            parts, earlier_parts = objects_of(now) or [], objects_of(earlier) or []
            if len(parts) == len(earlier_parts):
                whole = [keeping(*pair) for pair in zip(parts, earlier_parts, strict=True)]
                if any(one is not part for one, part in zip(whole, parts, strict=True)):
                    kept[name] = raw(whole)
    return told | kept if kept else told


def _is_empty(value: Raw | None) -> bool:
    return value is None or (len(memoryview(value)) <= _EMPTY_BYTES_MAX and bytes(value) in _EMPTY)


class Node:
    """A JSON object that comes in pieces: an item, or a part of one."""

    def __init__(self, fields: Fields) -> None:
        """Begin with what is known of it."""
        self.fields = fields
        self.texts: dict[str, list[str]] = {}
        self.lists: dict[str, dict[int, Node]] = {}

    def part(self, name: str, index: int, kind: str) -> Node:
        """Return a part, which begins with nothing but its type where it was not announced."""
        parts = self.lists.setdefault(name, {})
        if index not in parts:
            parts[index] = Node({"type": raw(kind)})
        return parts[index]

    def is_now(self, fields: Fields) -> None:
        """Take the object as told in one piece: of pieces that came before is left what it says nothing of."""
        self.fields = fields if self._is_all_in(fields) else keeping(fields, self.record())
        self.texts.clear()
        self.lists.clear()

    def _is_all_in(self, told: Fields) -> bool:
        """Return whether it is told with something for all that came: most often it is, and a record takes a while."""
        texts = (name for name in _TEXTS if name in self.texts or name in self.fields)
        lists = [name for name in _LISTS if name in self.lists or name in self.fields]
        parts = (part for name in lists for part in objects_of(told.get(name)) or ())
        return not (
            any(_is_empty(told.get(name)) for name in (*texts, *lists))
            or any(all(_is_empty(part.get(name)) for name in _TEXTS) for part in parts)
        )

    def record(self) -> Fields:
        """Return the object as far as it came."""
        texts = {name: raw("".join(pieces)) for name, pieces in self.texts.items()}
        lists = {name: raw([parts[index].record() for index in sorted(parts)]) for name, parts in self.lists.items()}
        return self.fields | texts | lists


class Item(Node):
    """An item of the output.

    Attributes:
        index: its place in the output, where an event said it.
        name: what events without a place call it by; empty where none did so far.
        whole: whether it came to its end.
    """

    index: int | None = None
    name: str = ""
    whole = False


class Items:
    """The items of one reply. A piece says the place of its item in the output, or else its id.

    Some endpoints leave the place out, and some the id. Where both are missing, a piece is of the item that came last,
    if that is of its kind and has not come to its end.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._items: list[Item] = []
        self._at: dict[int, Item] = {}
        self._named: dict[str, Item] = {}

    def item(self, index: int | None, name: str | None, kind: str, *, begins: bool = False) -> Item:
        """Return the item that a piece is of: a new one, of its type and id, where it is of none that came.

        Args:
            index: the place in the output, where the piece says it.
            name: the id of the item, likewise.
            kind: the type of the item; empty where the piece does not say.
            begins: whether the piece announces an item, and is of none that has come to its end.
        """
        if index is not None and (known := self._at.get(index)) is not None and name in (None, known.name):
            return known  # as almost every piece is
        item = self._found(index, name, kind, begins=begins)
        if item is None:
            item = Item({"type": raw(kind)} | ({"id": raw(name)} if name else {}))
            self._items.append(item)
        if index is not None:
            item.index = index
            self._at[index] = item
        if name:
            item.name = name
            self._named[name] = item
        return item

    def _found(self, index: int | None, name: str | None, kind: str, *, begins: bool) -> Item | None:
        if index is not None and index in self._at:
            return self._at[index]
        named = self._named.get(name) if name else None
        if named is not None and _may_be(named, index) and not (begins and named.whole):
            return named
        last = self._items[-1] if self._items else None
        if last is None or begins or last.whole or not _may_be(last, index) or (name and last.name):
            return None
        return last if not kind or kind == (text_of(last.fields.get("type")) or kind) else None

    def __iter__(self) -> Iterator[Item]:
        """Iterate over the items in their order: by their place, or else as they came."""
        places = {id(item): place if item.index is None else item.index for place, item in enumerate(self._items)}
        return iter(sorted(self._items, key=lambda item: places[id(item)]))


def _may_be(item: Item, index: int | None) -> bool:
    """Return whether an item may be the one at a place: not where they say two."""
    return index is None or item.index is None
