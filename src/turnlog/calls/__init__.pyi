from .facade import Calls
from .tools import RecordedToolCall, ToolAttempt, ToolCalls
from .values import Call, RequestCheck, UnreadableCall

__all__ = ["Call", "Calls", "RecordedToolCall", "RequestCheck", "ToolAttempt", "ToolCalls", "UnreadableCall"]
