"""turnlog keeps LLM conversations as an append-only log of immutable turns."""
