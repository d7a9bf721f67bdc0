"""PyYAML's reader as turns are read with it. Whoever imports this needs the package."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# PyYAML says nothing of its types.

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

_MERGE = "tag:yaml.org,2002:merge"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_FORMS = {
    "tag:yaml.org,2002:bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    "tag:yaml.org,2002:int": re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)\Z"),
    "tag:yaml.org,2002:float": re.compile(
        r"(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
}
"""What YAML 1.1 has as a flag or a number, and 1.2 as text, is text."""


class Loader(yaml.SafeLoader):
    """Read dates, `yes` and `1:30` as text, as YAML 1.2 does.

    Refuse a key that a record has twice, however it is spelled, merge keys, and aliases: few can stand for very much.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 - the name is the package's
        first: [(tag, _FORMS.get(tag, form)) for tag, form in forms if tag != _TIMESTAMP]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

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
            if key_node.tag == _MERGE:
                raise _problem("merge keys (<<) are not read: write what they stand for", key_node)
            # As JSON has only text for keys, 1 and "1" are one key, and as Python has it, 1, 1.0 and true are.
            found = {key_node.value} if isinstance(key_node, yaml.ScalarNode) else set()
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                found.add(key)
            if found & seen:
                raise _problem(f"the key {key_node.value!r} is there twice", key_node)
            seen |= found


def _problem(problem: str, at: yaml.Node | yaml.Event) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)
