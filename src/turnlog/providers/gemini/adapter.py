"""The adapter for Google's Gemini API, which needs no SDK.

The key is looked for as `GEMINI_API_KEY`. The other name that Google has for it, `GOOGLE_API_KEY`, is not read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Raw

from turnlog.model import Tool
from turnlog.providers.carriage import Capabilities, Carried
from turnlog.providers.gemini import reply, request
from turnlog.providers.gemini.client import CLIENT
from turnlog.providers.interface import Frame, FrameInput, Parameters, Provider, ReplyReader
from turnlog.providers.losses import Losses
from turnlog.providers.output_schema import OutputSchema, lose
from turnlog.providers.raw_json import Fields
from turnlog.providers.schemas import change_schemas, without_keywords

_ONE_OR_THE_OTHER = re.compile(r"gemini-[12][.-]")
"""Models that refuse a schema of the reply beside functions; from 3 on they take both."""

_OUTPUT_KEYWORDS = frozenset(
    {"$defs", "$ref", "additionalProperties", "anyOf", "description", "enum", "format", "items", "maxItems"}
    | {"maximum", "minItems", "minimum", "oneOf", "prefixItems", "properties", "required", "title", "type"}
)
"""What `responseJsonSchema` knows of JSON Schema (API reference, GenerationConfig)."""

_OLD_REFERENCE, _REFERENCE = b'"#/definitions/', b'"#/$defs/'
"""How references to definitions begin, up to draft 07 and from 2019-09 on."""


class Gemini(Provider):
    """Gemini API, `models.generateContent` (v1beta). The model and whether to stream are in the URL, not in the body.

    Thinking goes back part by part as it came: the API asks for its parts whole, signatures on the parts that they
    stood on. A signature is a thinking block before the block of its part.
    """

    name = "gemini"
    provider = "gemini"
    api = "generate_content"
    version = "9"
    key_variable = "GEMINI_API_KEY"
    client = CLIENT
    reserved = request.RESERVED
    embeds_texts = True
    capabilities = Capabilities(
        # No `image/svg+xml`, which is text; no other type that the API takes begins with an s.
        documents=("image/[!s]*", "application/pdf", "audio/*", "video/*"),
        thinking="all",
        native=True,
        system="joined",
        tool_id_pattern=None,
        tool_ids_of_others=False,
        tool_names=request.NAMES,
        result_errors=True,
        search="alone",
    )

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        return request.encode_message(carried)

    def _frame(self, given: FrameInput) -> Frame:
        return request.frame_body(given)

    def _output(self, schema: OutputSchema, tools: Sequence[Tool], model: str, losses: Losses) -> Parameters:
        if tools and _ONE_OR_THE_OTHER.match(model.rpartition("/")[2]):
            lose(losses, f"{model} takes none beside tools")
            return {}
        kept, removed = without_keywords(change_schemas(schema.schema, _in_its_words), keep=_OUTPUT_KEYWORDS)
        if removed:
            why = f"output_schema without the keywords {', '.join(removed)}"
            losses.lose("downgraded", "parameter", why, harmless=True)
        return {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": kept}}

    def reader(self, *, model: str | None = None) -> ReplyReader:
        """Return what reads one reply. Thinking and native blocks are of the model that was asked, if given."""
        return reply.Reader(self._sender(model))


def _in_its_words(keywords: Fields) -> Fields:
    """Return a schema object with `enum` for `const`, and with `$defs` for `definitions`, as older drafts call them."""
    changed = dict(keywords)
    if "const" in changed and "enum" not in changed:
        changed["enum"] = Raw(b"[%b]" % bytes(changed.pop("const")))
    if "definitions" in changed and "$defs" not in changed:
        changed["$defs"] = changed.pop("definitions")
    reference = bytes(changed.get("$ref", b""))
    if reference.startswith(_OLD_REFERENCE):
        changed["$ref"] = Raw(_REFERENCE + reference.removeprefix(_OLD_REFERENCE))
    return changed
