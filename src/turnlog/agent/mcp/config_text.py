"""Texts of other programs' MCP files: what `${…}` stands for in them, and what it becomes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from msgspec import Struct

from turnlog.errors import MetaError
from turnlog.registers.variables import with_references

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?::-.*)?", re.ASCII | re.DOTALL)
_OF_AN_EDITOR = re.compile(
    r"(?:command|config):.*|file(?:[A-Z]\w*)?|relativeFile(?:Dirname)?|lineNumber|columnNumber|selectedText|execPath|"
    r"defaultBuildTask|cwd",
    re.DOTALL,
)
_UNREPLACED = re.compile(r"\$[A-Za-z_]\w*|%[A-Za-z_]\w*%|\$\(.*", re.ASCII | re.DOTALL)


class Input(Struct, frozen=True, kw_only=True):
    """What an editor would ask a person for, and here is a variable of the environment.

    Attributes:
        id: what the file calls it.
        variable: the variable's name.
        default: what it is where the variable is not set; None for nothing.
    """

    id: str
    variable: str
    default: str | None = None


def inputs_of(given: object) -> Mapping[str, Input]:
    """Return the `inputs` of a file, by their ids.

    Raises:
        MetaError: one cannot be a variable.
    """
    if not isinstance(given, list):
        raise MetaError("inputs: expected an array", field="inputs")
    found: dict[str, Input] = {}
    for index, item in enumerate(cast("list[object]", given)):
        place = f"inputs[{index}]"
        fields = cast("dict[str, object]", item) if isinstance(item, dict) else {}
        name = fields.get("id")
        if not isinstance(name, str) or not name:
            raise MetaError(f"{place}: it has no `id`", field=place)
        if fields.get("type") not in ("promptString", "pickString"):
            raise MetaError(
                f"{place}: {name!r} is of type {fields.get('type')!r}, which only an editor can do: write ${{NAME}} in"
                " its place, and set that variable",
                field=place,
            )
        default = fields.get("default")
        if isinstance(default, str) and ("{" in default or "}" in default):
            raise MetaError(f"{place}: the default of {name!r} has braces in it: leave it out", field=place)
        variable = _variable_of(name)
        twin = next((other.id for other in found.values() if other.variable == variable), None)
        if twin is not None:
            raise MetaError(f"{place}: {name!r} and {twin!r} would both be the variable {variable}", field=place)
        found[name] = Input(id=name, variable=variable, default=default if isinstance(default, str) else None)
    return found


class Texts:
    """Rewrites the texts of a file, so that `${NAME}` is all that is left to be replaced.

    Attributes:
        workspace: what `${workspaceFolder}` stands for.
        notes: what there is to say of the texts, each once.
    """

    def __init__(self, *, workspace: Path, inputs: Mapping[str, Input]) -> None:
        """Take what the file has for its texts."""
        self.workspace = workspace
        self.notes: list[str] = []
        self._inputs = inputs
        self._fixed = {
            "workspaceFolder": str(workspace),
            "workspaceRoot": str(workspace),
            "workspaceFolderBasename": workspace.name,
            "userHome": "${HOME}",
            "pathSeparator": "/",
            "/": "/",
        }

    def rewritten(self, text: str, place: str) -> str:
        """Return a text with `${NAME}` for variables and inputs, and paths for folders.

        Raises:
            MetaError: it has something that only an editor knows, or an input that the file does not have.
        """
        if "\0" in text:
            raise MetaError(f"{place}: it has a NUL character in it", field=place)
        if _UNREPLACED.fullmatch(text):
            self._note(f"{place}: {text} is handed on as it stands: only ${{NAME}} stands for a variable")

        def of(inner: str) -> str:
            kind, colon, rest = inner.partition(":")
            if inner in self._fixed:
                return self._fixed[inner]
            if kind == "env" and colon and _VARIABLE.fullmatch(rest):
                return f"${{{rest}}}"
            if kind == "input" and colon:
                return self._input(rest, place)
            if _OF_AN_EDITOR.fullmatch(inner):
                raise MetaError(
                    f"{place}: ${{{inner}}} is known to an editor only: write what it is, or ${{NAME}} for a variable",
                    field=place,
                )
            return f"${{{inner}}}"

        return with_references(text, of)

    def _input(self, name: str, place: str) -> str:
        known = self._inputs.get(name)
        if known is None:
            raise MetaError(f"{place}: there is no {name!r} among the inputs of the file", field=place)
        self._note(f"input {name!r} is the environment variable {known.variable}: set it, or put it into the keyring")
        return f"${{{known.variable}}}" if known.default is None else f"${{{known.variable}:-{known.default}}}"

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def _variable_of(name: str) -> str:
    """Return the variable that an input is: `github-token` is GITHUB_TOKEN."""
    variable = re.sub(r"[^A-Z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()).strip("_")
    return variable if variable and not variable[0].isdigit() else f"INPUT_{variable}"
