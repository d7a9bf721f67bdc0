"""Claude Code's session files: JSON lines that become turns, and events of their own.

- `lines` reads the file: each line becomes a `Row`, or is reported as damaged.
- `content` turns a message's content into content blocks.
- `chains` finds which row continues which, and which rows are one turn.
- `session` says what of it is in the log, and what is to be recorded.

Every row is kept as an event of the topic `claude-code.<type>`, with the row as payload. The content of a message is
left out there, because it is the payload of the message's turn. `LineMeta` is the metadata of these events.
"""

from turnlog.interop.claude_code.report import LineMeta
from turnlog.interop.claude_code.session import ClaudeCode

__all__ = ["ClaudeCode", "LineMeta"]
