"""What is registered by name in the log: pointers, providers and MCP servers. The last event of a name holds.

They say what a run calls, starts and sends keys to. So events that came with an import have no effect until a person
has seen and confirmed them; the confirmation is an event of this log, `log.trust`, that cites them.
"""

from turnlog.registers.pointers import Pointer, Pointers
from turnlog.registers.providers import Providers
from turnlog.registers.servers import SERVER_SEPARATOR, Servers
from turnlog.registers.trust import ImportedRegister, Registers

__all__ = ["SERVER_SEPARATOR", "ImportedRegister", "Pointer", "Pointers", "Providers", "Registers", "Servers"]
