from .carriage import Capabilities, Carried
from .interface import (
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
from .losses import Losses
from .reader import ReplyReader, Sender
from .registry import get, get_as, names
from .tool_choice import ToolChoice, tool_choice
from .tool_names import ToolNames

__all__ = [
    "Capabilities",
    "Carried",
    "Client",
    "Connection",
    "Frame",
    "FrameInput",
    "Losses",
    "OnLoss",
    "Parameters",
    "PreparedRequest",
    "Provider",
    "RawEvent",
    "Reply",
    "ReplyReader",
    "Sender",
    "ToolChoice",
    "ToolNames",
    "forget",
    "get",
    "get_as",
    "names",
    "tool_choice",
]
