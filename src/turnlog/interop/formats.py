"""The formats that can be imported, by name: those of turnlog, and those that other packages register."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from turnlog.errors import MissingPackageError, NotFoundError
from turnlog.interop.importing import Importer

GROUP = "turnlog.importers"
"""The entry point group: name is the format's name, value an `Importer` subclass that is made without arguments."""

_BUILT_IN = {
    "anthropic-export": "turnlog.interop.transcripts.anthropic_export:AnthropicExport",
    "atif": "turnlog.interop.transcripts.atif:Atif",
    "claude-code": "turnlog.interop.claude_code:ClaudeCode",
    "codex": "turnlog.interop.transcripts.codex:Codex",
    "cursor": "turnlog.interop.transcripts.cursor:Cursor",
    "gemini-cli": "turnlog.interop.transcripts.gemini_cli:GeminiCli",
    "geppetto": "turnlog.interop.geppetto_model.importing:Geppetto",
    "llm": "turnlog.interop.transcripts.llm_logs:LlmLogs",
    "openai-export": "turnlog.interop.transcripts.openai_export:OpenAIExport",
    "opencode": "turnlog.interop.transcripts.opencode:OpenCode",
    "xs": "turnlog.interop.transcripts.xs:CrossStream",
}

TRANSCRIPTS = {
    "anthropic-export": "data exports of claude.ai",
    "atif": "trajectories in the Agent Trajectory Interchange Format",
    "claude-code": "sessions of Claude Code",
    "codex": "sessions of Codex CLI",
    "cursor": "transcripts of Cursor's agent",
    "gemini-cli": "sessions and saved chats of Gemini CLI",
    "geppetto": "runs and turns of Geppetto, YAML or JSON",
    "llm": "the database of the llm tool (logs.db)",
    "openai-export": "data exports of ChatGPT",
    "opencode": "sessions of OpenCode",
    "xs": "exports of cross.stream, with gpt2099's turns",
}
"""What the files of transcripts are, by format, for people."""


def names() -> list[str]:
    """Return the names of all formats, sorted."""
    return sorted({*_BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))})


def get(name: str) -> Importer:
    """Return the importer of a format.

    Raises:
        NotFoundError: there is none of this name, or what is registered is not an importer.
        MissingPackageError: the package that it needs is not installed.
    """
    path = _BUILT_IN.get(name) or next((entry.value for entry in entry_points(group=GROUP, name=name)), None)
    if path is None:
        raise NotFoundError(f"no format {name!r} to import (one of {', '.join(names())})")
    module, _, attribute = path.partition(":")
    try:
        found = getattr(import_module(module), attribute, None)
    except ImportError as error:
        raise MissingPackageError(f"the importer of {name!r} cannot be loaded: {error}", provider=name) from error
    if not isinstance(found, type) or not issubclass(found, Importer):
        raise NotFoundError(f"what is registered as format {name!r} is not an Importer class")
    return found()
