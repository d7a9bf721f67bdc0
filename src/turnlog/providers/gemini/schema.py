"""Tool schemas for Gemini: JSON Schema in the vocabulary of its `Schema` type, a part of OpenAPI 3.0's.

References are put in place, `const` and lists of types are said in the words that the API has, and what it has no
words for is taken out. Schemas are walked by where they stand: a property that is called `format` is no keyword.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

import msgspec
from msgspec import Raw

from turnlog.providers.raw_json import Fields as Keywords
from turnlog.providers.raw_json import fields_of, items_of, raw

KEPT = frozenset(
    {
        "anyOf",
        "default",
        "description",
        "enum",
        "example",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "nullable",
        "pattern",
        "properties",
        "propertyOrdering",
        "required",
        "title",
        "type",
    }
)
"""The keywords that the API takes as they are (Gemini API, `Schema`). It knows `format` too, and few of its values."""

_DEFINITIONS = frozenset({"$defs", "definitions"})
"""Keywords that say nothing themselves: what they define is put where it is used."""

_MERGED = "allOf "
"""What stands before a reference that a schema was merged from: other parts of it may refer to the same one."""

_LABELS = frozenset({"title", "description"})
_TRUE = Raw(b"true")
_NULL_TYPES = ("null", "NULL")
_keywords = msgspec.json.Decoder(dict[str, Raw])
_list = msgspec.json.Decoder(list[Raw])
_names = msgspec.json.Decoder(list[str])
_text = msgspec.json.Decoder(str)


SCHEMAS_MAX = 10_000
"""How many schema objects a schema may have once its references are in place. References can double at each step."""


class EndlessSchemaError(Exception):
    """A schema that has no end, or none in sight, without references. Handled where the tool's name is known."""


def converted(schema: bytes | Raw, *, cut: bool = False) -> tuple[Raw, tuple[str, ...]]:
    """Return a schema as the API takes it, and the keywords that it lost something of, sorted.

    Args:
        schema: the schema, as JSON text.
        cut: put an object of any form where a schema refers to itself, or becomes too long, rather than to refuse it.

    Raises:
        EndlessSchemaError: the schema refers to itself, or is longer than `SCHEMAS_MAX` without references.
        msgspec.DecodeError: it is not a JSON object, or not a schema.
    """
    conversion = _Conversion(_keywords.decode(schema), cut=cut)
    return raw(conversion.whole()), tuple(sorted(conversion.lost))


class _Conversion:
    """The conversion of one schema. `lost` names the keywords that said something which is gone."""

    def __init__(self, root: Keywords, *, cut: bool) -> None:
        self._root = root
        self._cut = cut
        self._count = 0
        self.lost: set[str] = set()

    def whole(self) -> Keywords:
        return self._schema(self._root, ())

    def _inner(self, text: Raw, references: tuple[str, ...]) -> Keywords:
        if bytes(text) in (b"true", b"false"):  # the same as `{}` and `{"not":{}}`
            self.lost |= {"not"} if bytes(text) == b"false" else set()
            return {}
        return self._schema(_keywords.decode(text), references)

    def _schema(self, keywords: Keywords, references: tuple[str, ...]) -> Keywords:
        self._count += 1
        if self._count > SCHEMAS_MAX:
            if self._cut:
                self.lost.add("$ref")
                return {"type": Raw(b'"object"')}
            raise EndlessSchemaError(f"it has more than {SCHEMAS_MAX:,} schemas without references")
        keywords, references = self._plain(keywords, references)
        alternatives: list[Keywords] = []
        if "anyOf" in keywords:
            keywords, alternatives = self._alternatives(keywords, references)
        if "enum" in keywords:
            keywords = self._texts_only(keywords)
        result: Keywords = {}
        for name, value in keywords.items():
            if name not in KEPT:
                self.lost |= {name} - _DEFINITIONS
            elif name == "properties":
                properties = _keywords.decode(value).items()
                result[name] = raw({inner: self._inner(text, references) for inner, text in properties})
            elif name == "items":
                result |= self._items(value, references)
            elif name == "anyOf":
                result[name] = raw(alternatives)
            else:
                result[name] = value
        return self._whole_array(self._known_required(result))

    def _plain(self, keywords: Keywords, references: tuple[str, ...]) -> tuple[Keywords, tuple[str, ...]]:
        """Return a schema without `$ref`, `allOf`, `oneOf`, `const` and lists of types."""
        if "$ref" in keywords:
            keywords, references = self._resolved(keywords, references)
        if "allOf" in keywords:
            keywords, references = self._merged(keywords, references)
        if "oneOf" in keywords and "anyOf" not in keywords:
            self.lost.add("oneOf")  # that no more than one alternative holds
            keywords = {("anyOf" if name == "oneOf" else name): value for name, value in keywords.items()}
        if "const" in keywords:
            keywords = _const_as_enum(keywords)
        return self._one_type(keywords), references

    # References

    def _resolved(self, keywords: Keywords, references: tuple[str, ...]) -> tuple[Keywords, tuple[str, ...]]:
        """Return a schema with what it refers to in the place of its reference."""
        reference = _text.decode(keywords["$ref"])
        beside = {name: value for name, value in keywords.items() if name != "$ref"}
        if reference == "#" or reference in references or references.count(_MERGED + reference) > 1:
            if not self._cut:
                raise EndlessSchemaError(f"it refers to itself by {reference!r}")
            self.lost.add("$ref")
            return {"type": Raw(b'"object"')} | beside, references
        target = self._target(reference)
        target |= self._joined(beside, target, "$ref")
        references = (*references, reference)
        return self._resolved(target, references) if "$ref" in target else (target, references)

    def _target(self, reference: str) -> Keywords:
        """Return the schema at a JSON pointer (RFC 6901 §6, as a URI fragment). References to elsewhere are lost."""
        found = raw(self._root)
        if reference.startswith("#/"):
            for part in reference.removeprefix("#/").split("/"):
                name = unquote(part).replace("~1", "/").replace("~0", "~")
                found = _step(found, name)
                if found is None:
                    break
            else:
                return self._found(found)
        self.lost.add("$ref")
        return {}

    def _found(self, text: Raw) -> Keywords:
        if (found := fields_of(text)) is not None:
            return found
        self.lost |= {"$ref"} if bytes(text) != b"true" else set()
        return {}

    # Combinations

    def _merged(self, keywords: Keywords, references: tuple[str, ...]) -> tuple[Keywords, tuple[str, ...]]:
        """Return a schema with its `allOf` merged into it."""
        merged = {name: value for name, value in keywords.items() if name != "allOf"}
        for text in _list.decode(keywords["allOf"]):
            part = fields_of(text)
            if part is None:
                self.lost |= {"allOf"} if bytes(text) == b"false" else set()
                continue
            if "$ref" in part:
                part, followed = self._resolved(part, references)
                references += tuple(_MERGED + reference for reference in followed[len(references) :])
            if "allOf" in part:
                part, references = self._merged(part, references)
            merged = self._joined(merged, part, "allOf")
        return merged, references

    def _joined(self, first: Keywords, second: Keywords, keyword: str) -> Keywords:
        """Return two schemas as one: properties and required ones add up, else the first wins and `keyword` is lost."""
        joined = dict(first)
        for name, value in second.items():
            if name not in joined:
                joined[name] = value
            elif joined[name] == value:
                continue
            elif name == "properties":
                joined[name] = raw(_both(_keywords.decode(joined[name]), _keywords.decode(value)))
            elif name == "required":
                joined[name] = raw(_unique([*_names.decode(joined[name]), *_names.decode(value)]))
            elif name == "allOf":
                joined[name] = raw([*_list.decode(joined[name]), *_list.decode(value)])
            elif name in KEPT - _LABELS:
                self.lost.add(keyword)
        return joined

    def _alternatives(self, keywords: Keywords, references: tuple[str, ...]) -> tuple[Keywords, list[Keywords]]:
        """Return a schema and its alternatives: `null` is none, but `nullable`; one alone becomes the schema itself."""
        texts = _list.decode(keywords["anyOf"])
        alternatives = [self._inner(text, references) for text in texts if not _is_null(text)]
        if len(alternatives) < len(texts):
            keywords = keywords | {"nullable": _TRUE}
        if len(alternatives) > 1:
            return keywords, alternatives
        rest = {name: value for name, value in keywords.items() if name != "anyOf"}
        if not alternatives:
            return rest, []
        only = alternatives[0]
        self.lost |= {name for name in only if name in rest and rest[name] != only[name]} - _LABELS
        return only | rest, []

    # Values and types

    def _one_type(self, keywords: Keywords) -> Keywords:
        """Return a schema with one type: `null` among several becomes `nullable`, several others are alternatives."""
        if "type" not in keywords:
            return keywords
        if bytes(keywords["type"])[:1] != b"[":
            _text.decode(keywords["type"])
            return keywords
        types = _names.decode(keywords["type"])
        others = [name for name in types if name not in _NULL_TYPES]
        nullable = {"nullable": _TRUE} if len(others) < len(types) else {}
        if len(others) == 1:
            return keywords | {"type": raw(others[0])} | nullable
        rest = {name: value for name, value in keywords.items() if name != "type"} | nullable
        if not others or "anyOf" in rest:
            self.lost |= {"type"} if others else set()
            return rest
        beside = {name: value for name, value in rest.items() if name in _OF_ONE_TYPE}
        shared = {name: value for name, value in rest.items() if name not in _OF_ONE_TYPE}
        return shared | {"anyOf": raw([{"type": name} | _fitting(beside, name) for name in others])}

    def _texts_only(self, keywords: Keywords) -> Keywords:
        """Return a schema whose `enum` holds texts only, which is all that the API can list."""
        values = _list.decode(keywords["enum"])
        present = [value for value in values if bytes(value) != b"null"]
        rest = {name: value for name, value in keywords.items() if name != "enum"}
        if len(present) < len(values):
            rest["nullable"] = _TRUE
        if not present or any(bytes(value)[:1] != b'"' for value in present):
            self.lost.add("enum")
            return rest
        return {"type": Raw(b'"string"')} | rest | {"enum": raw(present)}

    def _items(self, value: Raw, references: tuple[str, ...]) -> Keywords:
        """Return the `items` of a list; that each place has its own schema, as in draft 04, is lost."""
        if bytes(value)[:1] == b"[":
            self.lost.add("items")
            return {}
        return {"items": raw(self._inner(value, references))}

    def _known_required(self, keywords: Keywords) -> Keywords:
        """Return a schema that requires only properties that it describes: the API refuses others."""
        if "required" not in keywords:
            return keywords
        known = _keywords.decode(keywords.get("properties", b"{}"))
        required = _names.decode(keywords["required"])
        kept = [name for name in required if name in known]
        if len(kept) == len(required):
            return keywords
        self.lost.add("required")
        rest = {name: value for name, value in keywords.items() if name != "required"}
        return rest | {"required": raw(kept)} if kept else rest

    def _whole_array(self, keywords: Keywords) -> Keywords:
        """Return a schema that says what a list holds: the API refuses one that does not."""
        if _type(keywords) not in (b'"array"', b'"ARRAY"') or "items" in keywords:
            return keywords
        self.lost.add("items")
        return keywords | {"items": Raw(b'{"type":"string"}')}


_OF_TYPE: dict[str, tuple[str, ...]] = {
    "array": ("items", "minItems", "maxItems", "prefixItems", "uniqueItems"),
    "object": ("properties", "required", "minProperties", "maxProperties", "propertyOrdering", "additionalProperties"),
    "string": ("enum", "pattern", "minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
}
_OF_ONE_TYPE = frozenset(name for names in _OF_TYPE.values() for name in names)
"""Keywords that say something about values of some types only."""


def _type(keywords: Keywords) -> bytes:
    return bytes(keywords.get("type", b""))


def _fitting(keywords: Keywords, type_name: str) -> Keywords:
    names = _OF_TYPE.get(type_name.lower(), ())
    return {name: value for name, value in keywords.items() if name in names}


def _const_as_enum(keywords: Keywords) -> Keywords:
    rest = {name: value for name, value in keywords.items() if name not in ("const", "enum")}
    return rest | {"enum": Raw(b"[" + bytes(keywords["const"]) + b"]")}


def _step(text: Raw, name: str) -> Raw | None:
    """Return what stands under a name, or at an index, of a JSON value; None where there is nothing."""
    if (fields := fields_of(text)) is not None:
        return fields.get(name)
    items = items_of(text) or []
    return items[int(name)] if re.fullmatch("[0-9]+", name) and int(name) < len(items) else None


def _is_null(text: Raw) -> bool:
    return _type(fields_of(text) or {}) in (b'"null"', b'["null"]')


def _both(first: Keywords, second: Keywords) -> Keywords:
    """Return properties that have to follow what two schemas say of them."""
    same = {name: Raw(b'{"allOf":[%b,%b]}' % (first[name], second[name])) for name in first if name in second}
    return first | second | {name: first[name] if first[name] == second[name] else both for name, both in same.items()}


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
