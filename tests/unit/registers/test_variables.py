"""Variables in registrations."""

import pytest

from turnlog.registers.variables import expanded, only_variable, variables_in


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a ${A} b${A}", "a 1 b1"),
        ("${B}", "${A}"),
        ("${EMPTY}|${EMPTY:-x}|${NONE:-}|${NONE:-a:-b}", "|x||a:-b"),
        ("$A ${1} ${A%x} ${#A} $${A}", "$A ${1} ${A%x} ${#A} $1"),
    ],
)
def test_variables_are_replaced_once(text: str, expected: str) -> None:
    """Values are not looked into; what is no reference stays."""
    assert expanded(text, {"A": "1", "B": "${A}", "EMPTY": ""}.get) == expected


def test_a_variable_without_a_value_is_named() -> None:
    """Where it has no default."""
    with pytest.raises(KeyError, match="NONE"):
        expanded("${NONE}", {}.get)


def test_variables_are_named_once_in_their_order() -> None:
    """A text that is nothing but one of them is told from others."""
    assert variables_in("${B}/${A:-x}/${B}/$C") == ["B", "A"]
    assert [only_variable(text) for text in ("${A}", "${A:-x}", " ${A}", "A")] == ["A", None, None, None]
