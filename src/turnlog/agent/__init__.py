"""The run loop: model calls, tool calls, policies, MCP."""
