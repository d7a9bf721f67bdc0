"""Keys in the `extra` of blocks: what a message of Chat Completions has that the block itself has no place for.

A reply puts them there, and a request takes them out again: none goes to the wire under these names.
"""

from __future__ import annotations

from turnlog.providers.extras import AUDIO, MESSAGE

THINKING_FIELDS = ("reasoning_content", "reasoning", "content")
"""The fields that thinking comes in: two that are text, and parts of the content."""

SENT_IN = "sent_in"
"""Of thinking: in which of these fields it came, a list. It goes back in them."""

DETAILS = "reasoning_details"
"""Of thinking: the records behind it, some of them encrypted. They go back as they came, in place of `reasoning`."""

PART = "part"
"""Of thinking that came as parts of the content: what these had beside their text."""

ANNOTATIONS = "annotations"
"""Of text: its citations. They stay behind: the wire does not take them."""

OWN = (ANNOTATIONS, AUDIO, MESSAGE)
"""Those that do not stand beside a block on the wire: a field of the wire that is called so is kept elsewhere."""
