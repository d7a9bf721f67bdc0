"""Cerebras: Chat Completions with a smaller vocabulary for the schemas of tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Raw

from turnlog.providers.interface import Parameters
from turnlog.providers.openai_chat import OpenAIChat
from turnlog.providers.schemas import without_keywords


class Cerebras(OpenAIChat):
    """Cerebras Inference. It reports usage without being asked."""

    name = "cerebras"
    provider = "cerebras"
    version = "5"
    key_variable = "CEREBRAS_API_KEY"
    call_params: ClassVar[Parameters] = {}
    base_url = "https://api.cerebras.ai/v1"
    schema_keywords_refused: ClassVar[frozenset[str]] = frozenset({"$schema", "format"})
    """Keywords that it refuses in the schema of any tool. In strict mode, which only a caller asks for, it refuses more
    (Cerebras documentation, "Structured Outputs", schema limitations)."""

    def _schema(self, schema: Raw) -> tuple[Raw, Sequence[str]]:
        return without_keywords(schema, drop=self.schema_keywords_refused)
