"""Audit: show that nothing was changed, cut or forged. Verification re-reads the stored bytes and trusts no index."""

from turnlog.audit.verification import Damage, VerifyReport, verify

__all__ = ["Damage", "VerifyReport", "verify"]
