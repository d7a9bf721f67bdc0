"""The adapter for Google's Gemini API, which needs no SDK.

The key is looked for as `GEMINI_API_KEY`. The other name that Google has for it, `GOOGLE_API_KEY`, is not read.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.providers.carriage import Capabilities, Carried
from turnlog.providers.gemini import client, reply, request
from turnlog.providers.interface import Frame, FrameInput, Provider, ReplyReader


class Gemini(Provider):
    """Gemini API, `models.generateContent` (v1beta). The model and whether to stream are in the URL, not in the body.

    Thinking goes back part by part as it came: the API asks for its parts whole, signatures on the parts that they
    stood on. A signature is a thinking block before the block of its part.
    """

    name = "gemini"
    provider = "gemini"
    api = "generate_content"
    version = "2"
    key_variable = "GEMINI_API_KEY"
    client = client
    home = "gemini"
    capabilities = Capabilities(
        # No `image/svg+xml`, which is text; no other type that the API takes begins with an s.
        documents=("image/[!s]*", "application/pdf", "audio/*", "video/*"),
        thinking="all",
        native=True,
        system="joined",
        tool_id_pattern=None,
        tool_ids_of_others=False,
        result_errors=True,
        search="alone",
    )

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        return request.encode_message(carried)

    def _frame(self, given: FrameInput) -> Frame:
        return request.frame_body(given)

    def reader(self, *, model: str | None = None) -> ReplyReader:
        """Return what reads one reply. Thinking and native blocks are of the model that was asked, if given."""
        return reply.Reader(self._sender(model))
