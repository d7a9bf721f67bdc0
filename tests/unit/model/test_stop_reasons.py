"""Why a model stopped, in the words of several systems."""

from typing import get_args

import pytest

from turnlog.model import STOP_REASONS, Spelling, StopReason, normal_stop_reason, spell_stop_reason


def test_there_are_six_reasons() -> None:
    """The enum has the six words of the log."""
    assert STOP_REASONS == ("stop", "length", "tool_use", "refusal", "error", "aborted")


@pytest.mark.parametrize(
    ("reason", "messages", "canonical"),
    [
        ("stop", "end_turn", "stop"),
        ("length", "max_tokens", "length"),
        ("tool_use", "tool_use", "tool-use"),
        ("refusal", "refusal", "stop"),
        ("error", "error", "error"),
        ("aborted", "aborted", "aborted"),
    ],
)
def test_reason_is_spelled_as_others_spell_it(reason: StopReason, messages: str, canonical: str) -> None:
    """Each reason has a word in each spelling."""
    assert spell_stop_reason(reason, "turnlog") == reason
    assert spell_stop_reason(reason, "messages") == messages
    assert spell_stop_reason(reason, "canonical") == canonical


@pytest.mark.parametrize("spelling", get_args(Spelling))
@pytest.mark.parametrize("reason", STOP_REASONS)
def test_every_spelling_is_read_back(reason: StopReason, spelling: Spelling) -> None:
    """What was spelled is understood again, but for the one that has no word of its own."""
    expected = "stop" if (reason, spelling) == ("refusal", "canonical") else reason
    assert normal_stop_reason(spell_stop_reason(reason, spelling)) == expected


@pytest.mark.parametrize(
    ("spelled", "reason"),
    [
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("model_context_window_exceeded", "length"),
        ("STOP", None),
        ("", None),
        ("tired", None),
    ],
)
def test_other_words_are_known_or_not(spelled: str, reason: StopReason | None) -> None:
    """Words that only one side has are mapped; unknown ones are none."""
    assert normal_stop_reason(spelled) == reason
