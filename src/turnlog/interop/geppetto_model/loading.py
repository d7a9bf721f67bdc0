"""PyYAML's reader as turns are read with it. Whoever imports this needs the package."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# PyYAML says nothing of its types.

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import IO, Any

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from turnlog.interop.geppetto_model.yaml_scalars import FORMS, integer_of, number_of
from turnlog.interop.texts import BOM
from turnlog.model.pieces import PIECE

UNREADABLE = (yaml.YAMLError, RecursionError, ValueError, AttributeError)
"""What PyYAML raises of what is not YAML, or no text at all."""

_SHOWN = 60
"""So many characters of a scalar are told."""

_TEXT = "tag:yaml.org,2002:str"
_HALF = re.compile("[\ud800-\udfff]")
_MERGE = "tag:yaml.org,2002:merge"
_VALUE = "tag:yaml.org,2002:value"


class Loader(yaml.SafeLoader):
    """Read plain words as `yaml_scalars` has them, `=` and `<<` as text, and a set as Go does: a record of nulls.

    Refuse a key that a record has twice, however it is spelled, merge keys, and aliases: few can stand for very much.
    """

    yaml_implicit_resolvers = {}  # noqa: RUF012 - the name is the package's
    mark: Callable[[str], str] | None = None
    """What gives a mark for a text that is long, and else the text: it is asked for all but keys."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node."""
        if self.check_event(yaml.AliasEvent):
            raise _problem("aliases (*name) are not read: write what they stand for", self.peek_event())
        node = super().compose_node(parent, index)
        if node is not None and node.tag == _VALUE:
            raise _problem("the tag !!value is not read: write the text that is meant", node)
        is_key = isinstance(parent, yaml.MappingNode) and index is None
        if self.mark is not None and isinstance(node, yaml.ScalarNode) and node.tag == _TEXT and not is_key:
            node.value = self.mark(node.value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node."""
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, LookupError, AttributeError) as error:  # what its spelling, or a tag, promises
            raise _problem(f"{_shown(node)} cannot be read as {node.tag}: quote it if it is text", node) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a record."""
        if isinstance(node, yaml.MappingNode):  # pyright: ignore[reportUnnecessaryIsInstance] - a tag can say so of others
            self._check_keys(node)
        return super().construct_mapping(node, deep=deep)

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE or (key_node.value == "<<" and not key_node.style):
                raise _problem("merge keys (<<) are not read: write what they stand for", key_node)
            # As JSON has only text for keys, 1 and "1" are one key, and as Python has it, 1, 1.0 and true are.
            found = {key_node.value} if isinstance(key_node, yaml.ScalarNode) else set()
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                found.add(key)
            if found & seen:
                raise _problem(f"the key {_shown(key_node)} is there twice", key_node)
            seen |= found

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        """Return the text of a scalar. Halves of surrogate pairs that are escaped one by one are characters."""
        text = super().construct_scalar(node)
        if _HALF.search(text) is None:
            return text
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    def integer(self, node: yaml.ScalarNode) -> int:
        """Return an integer."""
        value = integer_of(self.construct_scalar(node))
        str(value)  # of so many digits that Python does not write them: ValueError
        return value

    def number(self, node: yaml.ScalarNode) -> float | str:
        """Return a number; text for one that is too large."""
        return number_of(self.construct_scalar(node))


_LibyamlLoader: type[Loader] | None = None
if yaml.__with_libyaml__:
    from yaml.cyaml import CParser  # pyright: ignore[reportAttributeAccessIssue] - not all have been built with it

    class _Libyaml(CParser, Loader):  # pyright: ignore[reportUntypedBaseClass]
        """The same with the parser of libyaml, of which Go's was made."""

        # The parser's own way from events to nodes would not ask `compose_node`.
        check_node = Composer.check_node
        get_node = Composer.get_node
        get_single_node = Composer.get_single_node

        def __init__(self, text: str | IO[bytes]) -> None:
            # A file without its name, which can be a number.
            CParser.__init__(self, text if isinstance(text, str) else SimpleNamespace(read=text.read))
            Composer.__init__(self)
            SafeConstructor.__init__(self)
            Resolver.__init__(self)

    _LibyamlLoader = _Libyaml


for _tag, (_form, _first) in FORMS.items():
    Loader.add_implicit_resolver(_tag, _form, _first)
Loader.add_constructor("tag:yaml.org,2002:set", Loader.construct_yaml_map)
Loader.add_constructor("tag:yaml.org,2002:int", Loader.integer)
Loader.add_constructor("tag:yaml.org,2002:float", Loader.number)


def documents(text: str | IO[bytes], mark: Callable[[str], str] | None = None) -> Iterator[Any]:
    """Give the values of the documents of a YAML text, as far as it can be read.

    libyaml reads it, where PyYAML has that: some fifty times as fast as PyYAML itself, with a fraction of the memory.
    What it would refuse is for PyYAML, which takes a little more, and says more of what is wrong.

    Args:
        text: the text, or a file in UTF-8 that is at its beginning.
        mark: what gives a mark for a text that is long, and else the text; None to leave all as they are.

    Raises:
        UNREADABLE: what follows is not valid YAML.
    """
    loader = _loader(text)
    loader.mark = mark
    try:
        while loader.check_data():
            yield loader.get_data()
    finally:
        loader.dispose()


def _loader(text: str | IO[bytes]) -> Loader:
    """Return what reads a text: with libyaml, where that can read all of it, and as PyYAML does.

    At the beginning of a line it passes over a byte order mark, and takes the line for indented.
    """
    if _LibyamlLoader is not None and not _has_inner_bom(text):
        with suppress(*UNREADABLE, TypeError):
            _LibyamlLoader(text).raw_parse()  # pyright: ignore[reportAttributeAccessIssue]
            _rewind(text)
            return _LibyamlLoader(text)
        _rewind(text)
    return Loader(text if isinstance(text, str) else text.read().decode())


def _rewind(text: str | IO[bytes]) -> None:
    if not isinstance(text, str):
        text.seek(0)


def _has_inner_bom(text: str | IO[bytes]) -> bool:
    """Tell whether a text has a byte order mark behind its beginning. A file is at its beginning again."""
    if isinstance(text, str):
        return text.find(BOM.decode(), 1) > 0
    end = text.read(len(BOM))[1:]
    while piece := text.read(PIECE):
        if BOM in end + piece:
            break
        end = piece[1 - len(BOM) :]
    _rewind(text)
    return bool(piece)


def _shown(node: yaml.Node) -> str:
    """Return the beginning of what a node has, for people."""
    text = node.value if isinstance(node.value, str) else type(node).__name__
    return repr(text[:_SHOWN]) + ("…" if len(text) > _SHOWN else "")


def _problem(problem: str, at: yaml.Node | yaml.Event) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)
