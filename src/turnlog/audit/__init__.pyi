from . import copying, erasing, holding, holds, sealing
from .anchors import Anchor
from .facade import Audit, KeptCheckpoint
from .report import Damage, VerifyReport
from .verification import verify

__all__ = [
    "Anchor",
    "Audit",
    "Damage",
    "KeptCheckpoint",
    "VerifyReport",
    "copying",
    "erasing",
    "holding",
    "holds",
    "sealing",
    "verify",
]
