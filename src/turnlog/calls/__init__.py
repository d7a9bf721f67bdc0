"""Model calls in the log: each request as its exact bytes, each reply as the events that came.

- `facade` records calls and replies, and reads them: `TurnLog.calls`.
- `tools` records that a tool call begins and how it ended, and tells of it: `TurnLog.tool_calls`.
- `reading` follows what turns and calls cite.
- `checking` makes requests again and adds replies up again, and compares.
"""

from turnlog.calls.facade import Calls
from turnlog.calls.tools import RecordedToolCall, ToolAttempt, ToolCalls
from turnlog.calls.values import Call, RequestCheck, UnreadableCall

__all__ = ["Call", "Calls", "RecordedToolCall", "RequestCheck", "ToolAttempt", "ToolCalls", "UnreadableCall"]
