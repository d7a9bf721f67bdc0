from . import asking, copying, erasing, holding, holds, retaining, sealing
from .anchors import Anchor
from .checkpoints import Checkpoint
from .erasure_report import ErasureReport
from .facade import Audit, KeptCheckpoint
from .heads import SignedHeads
from .holding import Holds
from .keeping import CheckpointKeeper
from .notes import Signer, Verifier
from .places import Place, parse_place
from .proof_events import ProvedEvent
from .proofs import Proof
from .report import Damage, VerifyReport
from .verification import verify

__all__ = [
    "Anchor",
    "Audit",
    "Checkpoint",
    "CheckpointKeeper",
    "Damage",
    "ErasureReport",
    "Holds",
    "KeptCheckpoint",
    "Place",
    "Proof",
    "ProvedEvent",
    "SignedHeads",
    "Signer",
    "Verifier",
    "VerifyReport",
    "asking",
    "copying",
    "erasing",
    "holding",
    "holds",
    "parse_place",
    "retaining",
    "sealing",
    "verify",
]
