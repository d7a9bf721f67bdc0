"""Whether two names mean the same model."""

import pytest

from turnlog.providers.identity import same_model


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("m", "m"),
        ("gpt-5", "gpt-5-2025-08-07"),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku-20241022"),
        ("claude-sonnet-4-0", "claude-sonnet-4-20250514"),
        ("m-2025-08-07", "m-2025-08-07"),
        ("gpt-5.6", "gpt-5.6-sol"),
    ],
)
def test_dates_and_aliases_do_not_make_another_model(one: str, other: str) -> None:
    """Whichever comes first."""
    assert same_model(one, other)
    assert same_model(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("m", "n"),
        ("gpt-5", "gpt-5-mini"),
        ("gpt-5-mini-2025-08-07", "gpt-5-2025-08-07"),
        ("m-2025-08-07", "m-2025-09-01"),
        ("m-20250807", "m-20250901"),
        ("m", None),
        (None, None),
    ],
)
def test_other_names_are_other_models(one: object, other: object) -> None:
    """An unknown model is no model's own."""
    assert not same_model(one, other)
    assert not same_model(other, one)
