"""Providers: one adapter a wire, between context windows and what a provider's API sends and answers.

`get("anthropic")` returns an adapter; `Provider` is the contract that all of them keep, and
`turnlog.testing.ProviderSuite` checks it. Other packages add adapters by the entry point group `turnlog.providers`.
"""

from turnlog.providers.carriage import Capabilities, Carried
from turnlog.providers.interface import (
    Client,
    Connection,
    Frame,
    FrameInput,
    OnLoss,
    Parameters,
    PreparedRequest,
    Provider,
    RawEvent,
    Reply,
    forget,
)
from turnlog.providers.reader import ReplyReader, Sender
from turnlog.providers.registry import get, get_as, names
from turnlog.providers.tool_choice import ToolChoice, tool_choice

__all__ = [
    "Capabilities",
    "Carried",
    "Client",
    "Connection",
    "Frame",
    "FrameInput",
    "OnLoss",
    "Parameters",
    "PreparedRequest",
    "Provider",
    "RawEvent",
    "Reply",
    "ReplyReader",
    "Sender",
    "ToolChoice",
    "forget",
    "get",
    "get_as",
    "names",
    "tool_choice",
]
