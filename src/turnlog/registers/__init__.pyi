from .bookmarks import Bookmarks
from .checks import SERVER_SEPARATOR
from .pointers import Pointer, Pointers
from .providers import Providers
from .servers import Servers
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
