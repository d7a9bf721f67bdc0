"""The body of Bedrock's Converse API as types, after what its reference documents: no SDK with types is installed.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, NotRequired

from annotated_types import Len
from pydantic import StringConstraints
from typing_extensions import TypedDict

Id = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
DocumentName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9()\[\] -]{1,200}$")]


class Bytes(TypedDict):
    bytes: str


class Text(TypedDict):
    text: str


class Json(TypedDict):
    json: Any


class _Media(TypedDict):
    format: str
    source: Bytes


class _Document(_Media):
    name: DocumentName


class _Point(TypedDict):
    type: Literal["default"]


class Image(TypedDict):
    image: _Media


class Video(TypedDict):
    video: _Media


class Audio(TypedDict):
    audio: _Media


class Document(TypedDict):
    document: _Document


class CachePoint(TypedDict):
    cachePoint: _Point


class _ToolUse(TypedDict):
    toolUseId: Id
    name: Id
    input: dict[str, Any]
    type: NotRequired[Literal["server_tool_use"]]


class _ToolResult(TypedDict):
    toolUseId: Id
    content: list[Text | Json | Image | Video | Document]
    status: NotRequired[Literal["success", "error"]]
    type: NotRequired[str]


class _ReasoningText(TypedDict):
    text: str
    signature: NotRequired[str]


class _Cited(TypedDict):
    content: list[Text]
    citations: list[dict[str, Any]]


class _Reasoning(TypedDict):
    reasoningText: _ReasoningText


class _Redacted(TypedDict):
    redactedContent: str


class ToolUse(TypedDict):
    toolUse: _ToolUse


class ToolResult(TypedDict):
    toolResult: _ToolResult


class ReasoningContent(TypedDict):
    reasoningContent: _Reasoning | _Redacted


class CitationsContent(TypedDict):
    citationsContent: _Cited


UserBlock = Text | Image | Video | Audio | Document | ToolResult | CachePoint
AssistantBlock = Text | ToolUse | ToolResult | ReasoningContent | CitationsContent | CachePoint


class UserMessage(TypedDict):
    """What the user said, and results."""

    role: Literal["user"]
    content: Annotated[list[UserBlock], Len(1)]


class AssistantMessage(TypedDict):
    """What the model said, and the results of tools that the provider ran."""

    role: Literal["assistant"]
    content: Annotated[list[AssistantBlock], Len(1)]


class _InputSchema(TypedDict):
    json: dict[str, Any]


class _ToolSpec(TypedDict):
    name: Id
    inputSchema: _InputSchema
    description: NotRequired[str]


class Tool(TypedDict):
    toolSpec: _ToolSpec


class ToolConfig(TypedDict):
    """The tools, one at least, and the choice among them."""

    tools: Annotated[list[Tool], Len(1)]
    toolChoice: NotRequired[dict[Literal["any", "auto", "tool"], dict[str, str]]]


class InferenceConfig(TypedDict, total=False):
    """Parameters that all models have."""

    maxTokens: int
    temperature: float
    topP: float
    stopSequences: list[str]


class Body(TypedDict):
    """A body. The model is in the URL."""

    messages: list[UserMessage | AssistantMessage]
    system: NotRequired[list[Text | CachePoint]]
    toolConfig: NotRequired[ToolConfig]
    inferenceConfig: NotRequired[InferenceConfig]
    additionalModelRequestFields: NotRequired[dict[str, Any]]


def check_roles(body: Body) -> None:
    """Check that the roles of the messages alternate."""
    roles = [message["role"] for message in body["messages"]]
    assert all(one != other for one, other in pairwise(roles)), roles
