"""PyYAML's reader as turns are read with it. Whoever imports this needs the package."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# PyYAML says nothing of its types.

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from turnlog.interop.geppetto_model.yaml_scalars import FORMS, integer_of, number_of

_HALF = re.compile("[\ud800-\udfff]")
_MERGE = "tag:yaml.org,2002:merge"


class Loader(yaml.SafeLoader):
    """Read plain words as `yaml_scalars` has them, `=` and `<<` as text, and a set as Go does: a record of nulls.

    Refuse a key that a record has twice, however it is spelled, merge keys, and aliases: few can stand for very much.
    """

    yaml_implicit_resolvers = {}  # noqa: RUF012 - the name is the package's

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node."""
        if self.check_event(yaml.AliasEvent):
            raise _problem("aliases (*name) are not read: write what they stand for", self.peek_event())
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a record."""
        if isinstance(node, yaml.MappingNode):  # pyright: ignore[reportUnnecessaryIsInstance] - a tag can say so of others
            self._check_keys(node)
        return super().construct_mapping(node, deep=deep)

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE or (key_node.value == "<<" and key_node.style is None):
                raise _problem("merge keys (<<) are not read: write what they stand for", key_node)
            # As JSON has only text for keys, 1 and "1" are one key, and as Python has it, 1, 1.0 and true are.
            found = {key_node.value} if isinstance(key_node, yaml.ScalarNode) else set()
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                found.add(key)
            if found & seen:
                raise _problem(f"the key {key_node.value!r} is there twice", key_node)
            seen |= found

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        """Return the text of a scalar. Halves of surrogate pairs that are escaped one by one are characters."""
        text = super().construct_scalar(node)
        if _HALF.search(text) is None:
            return text
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    def integer(self, node: yaml.ScalarNode) -> int:
        """Return an integer."""
        return integer_of(self.construct_scalar(node))

    def number(self, node: yaml.ScalarNode) -> float | str:
        """Return a number; text for one that is too large."""
        return number_of(self.construct_scalar(node))


for _tag, (_form, _first) in FORMS.items():
    Loader.add_implicit_resolver(_tag, _form, _first)
Loader.add_constructor("tag:yaml.org,2002:set", Loader.construct_yaml_map)
Loader.add_constructor("tag:yaml.org,2002:int", Loader.integer)
Loader.add_constructor("tag:yaml.org,2002:float", Loader.number)


def _problem(problem: str, at: yaml.Node | yaml.Event) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)
