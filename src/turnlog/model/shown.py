"""How values with raw JSON text, and long ones, are shown: in a debugger, in a program's log, in a test that fails."""

from __future__ import annotations

from typing import cast

from msgspec import Raw, Struct

SHOWN_MAX = 200
"""So many bytes of a raw JSON text, and characters of a text, are shown."""


def shown(self: Struct) -> str:
    """Return the `repr` of a struct: as msgspec has it, but that raw JSON text can be read, and nothing is long."""
    fields = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in self.__struct_fields__)
    return f"{type(self).__name__}({fields})"


def _shown(value: object) -> str:
    if isinstance(value, Raw):
        text = memoryview(value)
        said = str(text[:SHOWN_MAX], errors="backslashreplace")
        return f"Raw({said!r})" if len(text) <= SHOWN_MAX else f"Raw({said!r}… {len(text):,} bytes)"
    if isinstance(value, str | bytes) and len(value) > SHOWN_MAX:
        what = "characters" if isinstance(value, str) else "bytes"
        return f"{value[:SHOWN_MAX]!r}… {len(value):,} {what}"
    if isinstance(value, dict):
        extra = cast("dict[str, object]", value)
        return "{" + ", ".join(f"{name!r}: {_shown(inner)}" for name, inner in extra.items()) + "}"
    return repr(value)
