"""What has a name in the log: bookmarks, and the registers: pointers, providers and MCP servers.

The last event of a name holds, and all are reached alike: `all()`, `get(name)`, `set(name, …)`, `delete(name)`. What a
provider is called by is no event's to delete: it is refused with `disable(name)`.

Registers say what a run calls, starts and sends keys to. So events that came with an import have no effect until a
person has seen and confirmed them; the confirmation is an event of this log, `log.trust`, that cites them.
"""

from turnlog.registers.bookmarks import Bookmarks
from turnlog.registers.pointers import Pointer, Pointers
from turnlog.registers.providers import Providers
from turnlog.registers.servers import SERVER_SEPARATOR, Servers
from turnlog.registers.trust import ImportedRegister, Registers

__all__ = [
    "SERVER_SEPARATOR",
    "Bookmarks",
    "ImportedRegister",
    "Pointer",
    "Pointers",
    "Providers",
    "Registers",
    "Servers",
]
