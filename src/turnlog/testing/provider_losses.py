"""What an adapter promises about what its wire cannot carry: it is refused or reported, never left out in silence."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.errors import UnsupportedContentError
from turnlog.model import Message
from turnlog.providers import Provider
from turnlog.testing.provider_harness import (
    Block,
    ProviderHarness,
    call,
    document,
    message,
    parsed,
    result,
    says,
    window,
)

MEDIA_TYPES = (
    "image/png",
    "image/jpeg",
    "image/svg+xml",
    "image/heic",
    "application/pdf",
    "text/plain",
    "text/markdown; charset=utf-8",
    "text/csv",
    "application/json",
    "application/zip",
    "audio/wav",
    "video/mp4",
)

FOREIGN = {"provider": "elsewhere", "api": "other", "model": "model-x"}


def every_block(role: str) -> list[Block]:
    """Return blocks of every kind that a turn may hold, each with a mark of its place: `mark-N-`."""
    kinds: list[Block] = [
        {"type": "text", "text": "{}"},
        {"type": "text", "text": "{}", "citations": [{"title": "cited-{}"}]},
        {"type": "thinking", "thinking": "{}"},
        {"type": "thinking", "thinking": "{}", "signature": "c2ln"},
        {"type": "thinking", "thinking": "{}", "signature": "c2ln", **FOREIGN},
        {"type": "thinking", "thinking": "", "signature": "{}", "redacted": True, **FOREIGN},
        {"type": "native", "provider": "elsewhere", "block": {"type": "x", "x": "{}"}},
    ]
    if role == "assistant":
        kinds += [call("call-{}", "{}"), call("call.{}", "{}"), call(None, "{}")]
    if role == "user":
        kinds += [result("nobody-{}", "{}")]
    filled = [_filled(kind, f"mark-{number}-") for number, kind in enumerate(kinds)]
    return filled + [
        document(media_type, f"mark-{number}-") for number, media_type in enumerate(MEDIA_TYPES, start=len(filled))
    ]


def _filled(value: Any, mark: str) -> Any:
    match value:
        case str():
            return value.replace("{}", mark)
        case list():
            return [_filled(inner, mark) for inner in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return {name: _filled(inner, mark) for name, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


class ProviderLosses(ProviderHarness):
    """Tests of loss reports and refusals."""

    @pytest.mark.parametrize("role", ["user", "assistant", "system"])
    def test_every_block_is_in_the_body_or_in_the_report(self, provider: Provider, role: str) -> None:
        """With losses allowed, each block of a turn is in the body, or the report names its turn and place."""
        blocks = every_block(role)
        request = provider.prepare_request(
            window(message("user", "hi", turn="t1"), message(role, *blocks, turn="t2")), model="m", on_loss="report"
        )
        body = parsed(request.body)
        reported = {
            entry.index for entry in request.loss_report.entries if entry.kind in ("dropped", "downgraded", "moved")
        }
        silent = [
            block for index, block in enumerate(blocks) if not says(body, f"mark-{index}-") and index not in reported
        ]
        assert silent == []

    def test_every_block_of_a_result_is_in_the_body_or_in_the_report(self, provider: Provider) -> None:
        """What a tool result holds is in the body too, or reported, also where it moves."""
        inner = [document(kind, f"mark-{kind}-") for kind in MEDIA_TYPES]
        for nested in (*([block] for block in inner), inner):
            messages = (
                message("assistant", call("c", "mark-call"), turn="t1"),
                message("user", result("c", nested), turn="t2"),
            )
            request = provider.prepare_request(window(*messages), model="m", on_loss="report")
            body = parsed(request.body)
            entries = [entry for entry in request.loss_report.entries if entry.kind in ("dropped", "downgraded")]
            marks = [f"mark-{block['source']['media_type']}-" for block in nested]
            missing = [mark for mark in marks if not says(body, mark)]
            assert len(missing) <= len(entries), missing

    @pytest.mark.parametrize("media_type", MEDIA_TYPES)
    def test_document_is_carried_or_reported(self, provider: Provider, media_type: str) -> None:
        """Where nothing is said, a document is in the body, or an entry of the report says that it is not."""
        messages = (message("user", "hi", turn="t1"), message("user", document(media_type, "mark-doc"), turn="t2"))
        request = provider.prepare_request(window(*messages), model="m")
        lost = [(entry.kind, entry.turn) for entry in request.loss_report.entries if entry.block == "document"]
        assert says(parsed(request.body), "mark-doc") or lost == [("dropped", "t2")]

    @pytest.mark.parametrize("media_type", MEDIA_TYPES)
    def test_document_is_carried_or_refused(self, provider: Provider, media_type: str) -> None:
        """Where nothing may be lost, a document is in the body, or refused: with adapter, block and turn."""
        messages = (message("user", "hi", turn="t1"), message("user", document(media_type, "mark-doc"), turn="t2"))
        refused: UnsupportedContentError | None = None
        body: Any = None
        try:
            body = parsed(provider.prepare_request(window(*messages), model="m", on_loss="error").body)
        except UnsupportedContentError as error:
            refused = error
        if refused is None:
            assert says(body, "mark-doc")
        else:
            assert (refused.provider, refused.block, refused.turn) == (provider.name, "document", "t2")
            assert provider.name in str(refused)
            assert "t2" in str(refused)

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln", **FOREIGN},
            {"type": "native", "block": {"type": "x"}, **FOREIGN},
            {"type": "text", "text": "a", "citations": [{"title": "b"}]},
        ],
        ids=["thinking", "native", "extra keys"],
    )
    def test_what_is_of_another_model_is_dropped_or_refused(self, provider: Provider, block: Block) -> None:
        """Thinking, native blocks and extra keys of others are reported by default; `on_loss="error"` refuses them."""
        messages = (message("user", "hi", turn="t1"), message("assistant", block, "more", turn="t2", **FOREIGN))
        names = {"text": "citations"}
        expected = ("dropped", "t2", names.get(block["type"], block["type"]), 0)
        for on_loss in (None, "report"):
            request = provider.prepare_request(window(*messages), model="m", on_loss=on_loss)
            [entry] = request.loss_report.entries
            assert (entry.kind, entry.turn, entry.block, entry.index) == expected
        with pytest.raises(UnsupportedContentError) as caught:
            provider.prepare_request(window(*messages), model="m", on_loss="error")
        assert (caught.value.provider, caught.value.block, caught.value.turn) == (provider.name, expected[2], "t2")
        assert provider.name in str(caught.value)

    def test_entries_say_where_and_why(self, provider: Provider) -> None:
        """Each entry names a turn of the window, a place in it, and a reason of one line."""
        turns: list[Message] = [
            message(role, *every_block(role), turn=f"t-{role}") for role in ("user", "assistant", "system", "user")
        ]
        request = provider.prepare_request(window(*turns), model="m", on_loss="report")
        sizes = {one.turn: len(one.content) for one in turns}
        assert request.loss_report
        for entry in request.loss_report.entries:
            assert entry.turn in sizes, entry
            assert entry.index is None or 0 <= entry.index < sizes[entry.turn], entry
            assert entry.block, entry
            assert entry.why, entry
            assert "\n" not in entry.why, entry

    def test_refusal_leaves_the_adapter_as_it_was(self, provider: Provider) -> None:
        """After a refusal, the same adapter prepares what it can carry as a fresh one does."""
        fine = (message("user", "hi", turn="t1"), message("assistant", "ho", turn="t2"))
        thought = {"type": "thinking", "thinking": "hm", **FOREIGN}
        before = provider.prepare_request(window(*fine), model="m", on_loss="error")
        with pytest.raises(UnsupportedContentError):
            provider.prepare_request(
                window(*fine, message("assistant", thought, turn="t3")), model="m", on_loss="error"
            )
        after = provider.prepare_request(window(*fine), model="m", on_loss="error")
        assert (after.body, after.loss_report) == (before.body, before.loss_report)
        longer = (*fine, message("user", "so", turn="t3"))
        fresh = self.adapter().prepare_request(window(*longer), model="m", on_loss="error")
        assert provider.prepare_request(window(*longer), model="m", on_loss="error").body == fresh.body
