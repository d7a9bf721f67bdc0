from . import claude_code, formats, importing, portable

__all__ = ["claude_code", "formats", "importing", "portable"]
