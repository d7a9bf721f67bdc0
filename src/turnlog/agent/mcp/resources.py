"""What MCP servers offer beside tools: resources, that are read and attached, and prompts, that are asked.

Source: Model Context Protocol 2025-11-25, Server Features, Resources and Prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast
from urllib.parse import unquote

from msgspec import Struct

from turnlog.agent.mcp.content import base64_content
from turnlog.agent.mcp.signals import MisbehaviourError
from turnlog.agent.opening import Attached
from turnlog.errors import MetaError
from turnlog.record.media import check_media_type

_Fields = Mapping[str, object]


class ServerResource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource as a server lists it.

    Attributes:
        uri: what it is read by; of a template, with `{names}` to fill in.
        name: the server's name for it.
        description: what it is.
        media_type: its media type, empty where the server does not say.
        is_template: whether the address is a template (RFC 6570).
    """

    uri: str
    name: str
    description: str = ""
    media_type: str = ""
    is_template: bool = False


class ServerPrompt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt as a server lists it.

    Attributes:
        name: its name.
        description: what it is for.
        arguments: the names of its arguments; the optional ones end with a question mark.
    """

    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()


def resource_of(fields: _Fields) -> ServerResource:
    """Return a resource, or a template of some, as it is listed."""
    template = fields.get("uriTemplate")
    return ServerResource(
        uri=str(fields.get("uri") if template is None else template),
        name=str(fields.get("name")),
        description=str(fields.get("description") or fields.get("title") or ""),
        media_type=str(fields.get("mimeType") or ""),
        is_template=template is not None,
    )


def prompt_of(fields: _Fields) -> ServerPrompt:
    """Return a prompt as it is listed."""
    arguments = (_fields(item) for item in _items(fields.get("arguments")))
    return ServerPrompt(
        name=str(fields.get("name")),
        description=str(fields.get("description") or fields.get("title") or ""),
        arguments=tuple(f"{item.get('name')}{'' if item.get('required') is True else '?'}" for item in arguments),
    )


def attached(server: str, uri: str, result: _Fields) -> list[Attached]:
    """Return what was read as documents, one for each part of a resource.

    Raises:
        MisbehaviourError: there is nothing in it, or what is there is neither text nor base64.
    """
    found: list[Attached] = []
    for item in _items(result.get("contents")):
        fields = _fields(item)
        place, text, blob, kind = (fields.get(key) for key in ("uri", "text", "blob", "mimeType"))
        if isinstance(text, str):
            payload, usual = text.encode(), "text/plain"
        elif isinstance(blob, str):
            content, usual = base64_content(blob), None
            if content is None:
                raise MisbehaviourError(f"answered for {uri!r} with bytes that are not base64")
            payload = content
        else:
            raise MisbehaviourError(f"answered for {uri!r} with neither text nor bytes")
        own = place if isinstance(place, str) and place else uri
        found.append(
            Attached(
                name=_name(own),
                payload=payload,
                media_type=_media_type(kind) or usual,
                origin=f"{server}/{own}",
            )
        )
    if not found:
        raise MisbehaviourError(f"has nothing in {uri!r}")
    return found


def question(name: str, result: _Fields) -> str:
    """Return what a prompt asks: the texts of its messages.

    Raises:
        MisbehaviourError: it has a message that is no text, or that somebody else is to have said.
    """
    texts: list[str] = []
    for item in _items(result.get("messages")):
        message = _fields(item)
        content = _fields(message.get("content"))
        text = content.get("text")
        if message.get("role") != "user" or not isinstance(text, str):
            what = f"a message of {message.get('role')!r} with {content.get('type')!r}"
            raise MisbehaviourError(f"has {what} in its prompt {name!r}, and only text that a user says can be asked")
        texts.append(text)
    if not texts:
        raise MisbehaviourError(f"has nothing in its prompt {name!r}")
    return "\n\n".join(texts)


def _media_type(kind: object) -> str | None:
    """Return the media type that a server gives, None where it gives none, or what can be none."""
    try:
        return check_media_type(kind) if isinstance(kind, str) else None
    except MetaError:
        return None


def _name(uri: str) -> str:
    """Return a name for the document of an address: its last part."""
    return unquote(uri.rstrip("/").rpartition("/")[2]) or uri


def _items(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list) else ()


def _fields(value: object) -> _Fields:
    return cast("_Fields", value) if isinstance(value, dict) else {}
