"""Audit: show that nothing was changed, cut or forged. Verification re-reads the stored bytes and trusts no index.

- `verification` walks the log, and puts the rest together.
- `rows` checks one row by itself, `citations` what it rests on, `contents` what is in its payload.
- `requests` puts the requests of calls together again; `threads` tells whether two calls are of one thread.
- `erasures` finds what was erased on nobody's word; `projections` compares projections with their rebuild.
- `known` is what the events read so far say of the log; `report` what was found.
"""

from turnlog.audit.report import Damage, VerifyReport
from turnlog.audit.verification import verify

__all__ = ["Damage", "VerifyReport", "verify"]
