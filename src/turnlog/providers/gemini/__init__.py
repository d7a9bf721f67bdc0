"""The wire of Google's Gemini API: https://ai.google.dev/api/generate-content."""

from turnlog.providers.gemini.adapter import Gemini

__all__ = ["Gemini"]
