from .bookmarks import Bookmarks
from .pointers import Pointer, Pointers
from .providers import Providers
from .servers import SERVER_SEPARATOR, Servers
from .trust import ImportedRegister, Registers

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
