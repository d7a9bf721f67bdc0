"""Audit: show that nothing was changed, cut or forged. Verification re-reads the stored bytes and trusts no index.

- `verification` walks the log, and puts the rest together.
- `rows` checks one row by itself, `citations` what it rests on, `contents` what is in its payload.
- `requests` puts the requests of calls together again; `threads` tells whether two calls are of one thread.
- `erasures` finds what was erased on nobody's word; `projections` compares projections with their rebuild.
- `known` is what the events read so far say of the log; `report` what was found.

`erasing` takes content away, and says so; `retaining` does that to threads that are old enough; `holding` keeps what a
legal hold is on. `copying` makes another store the same log, and compares the two.

Checkpoints and proofs show it to others, who need not trust whoever keeps the store.

- `merkle` is the tree as arithmetic, `tree` the tree of a log; `notes` and `checkpoints` are the forms that are signed.
- `keys` keeps signing keys, `heads` what was signed last (`memory` is its file); `places` is where checkpoints go
  outside the store; `keeping` makes them by itself.
- `seals` keeps the keys of what is sealed, in `seal_files`; `masters` are what wraps them.
- `anchors` compares checkpoints with the log while it is verified; `witness` is a witness, and its client.
- `proving` makes proofs, `proofs` writes, reads and checks them (`proof_events` has their events, `base64_reading` what
  they are written in); `facade` is `TurnLog.audit`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # pyright: ignore[reportUnknownVariableType]
