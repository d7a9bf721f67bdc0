"""The Messages API of Anthropic (https://docs.anthropic.com/en/api/messages).

A message is a role and a list of blocks. System turns are joined at the top, images and PDFs are blocks of their own,
also in tool results, and blocks of a kind that turnlog does not know (server tools and their results, …) go back as
they came. Beside the files that every wire has, `blocks.py` reads the blocks of a reply, and `breakpoints.py` marks
what is to be cached.
"""

from turnlog.providers.anthropic.adapter import Anthropic

__all__ = ["Anthropic"]
