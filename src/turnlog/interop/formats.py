"""The formats that can be imported, by name: those of turnlog, and those that other packages register."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from turnlog.errors import NotFoundError
from turnlog.interop.checked import CheckedSource
from turnlog.interop.importing import Importer, Source
from turnlog.plugins import Plugins
from turnlog.record import Redaction

GROUP = "turnlog.importers"
"""The entry point group: name is the format's name, value an `Importer` subclass that is made without arguments."""

_BUILT_IN = {
    "anthropic-export": "turnlog.interop.transcripts.anthropic_export:AnthropicExport",
    "atif": "turnlog.interop.transcripts.atif:Atif",
    "chat-messages": "turnlog.interop.transcripts.chat_messages:ChatMessages",
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
    "chat-messages": "chat messages as the APIs of OpenAI and Anthropic take them",
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


PLUGINS = Plugins(GROUP, Importer, "format", _BUILT_IN)


def names() -> list[str]:
    """Return the names of all formats, sorted."""
    return PLUGINS.names()


def get(name: str) -> Importer:
    """Return the importer of a format.

    Raises:
        NotFoundError: there is none of this name.
        MissingPackageError: the package that it needs is not installed.
        PluginError: what another package registers under the name cannot be used.
    """
    found = PLUGINS.make(name)
    if found is None:
        raise NotFoundError(f"no format {name!r} to import (one of {', '.join(names())})")
    return found


def read(format: str, path: Path, redaction: Redaction) -> Source[Any, Any]:
    """Read a file of a format: see `Importer.read`. What other packages make of theirs is checked as it is recorded.

    Raises:
        NotFoundError: there is no such format.
        MissingPackageError: the package that it needs is not installed.
        PluginError: what another package registers under the name failed, or cannot be used.
        FormatError: it is not of this format, or cannot be read.
        RedactionError: a hook failed.
    """
    importer = get(format)
    with PLUGINS.blamed(format):
        source = importer.read(path, redaction)
    if format in _BUILT_IN:
        return source
    return CheckedSource(source, format, PLUGINS.called(format), partial(PLUGINS.blamed, format))
