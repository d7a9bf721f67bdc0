"""turnlog's own portable form: JSON lines, one event a line with its payload, in global order.

The first line is a header: what the export is of. Each further line holds an event's exact bytes as JSON, its digest,
its private part, and its payload: under `payload` where it is JSON (verbatim), else under `payload_base64`.
`docs/reference/log-format.md` specifies it.

- `form` has the lines, their codec, and all that a line alone can be checked for.
- `choosing` says which events an export of a part has.
- `exporting` writes; `checking` and `importing` read.
"""

from turnlog.interop.portable.bookmarks import OnBookmark
from turnlog.interop.portable.checking import Survey
from turnlog.interop.portable.exporting import export
from turnlog.interop.portable.form import VERSION
from turnlog.interop.portable.importing import check, restore, seekable
from turnlog.interop.portable.report import KeptBookmark, RestoreReport

__all__ = [
    "VERSION",
    "KeptBookmark",
    "OnBookmark",
    "RestoreReport",
    "Survey",
    "check",
    "export",
    "restore",
    "seekable",
]
