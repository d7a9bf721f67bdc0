"""Read the input of a GMI turn."""

import pytest

from turnlog.errors import MetaError
from turnlog.interop.gmi import GMIInteractionType, GMITurnInput, ToolCallResult, read_input


def test_camel_case_input_round_trips() -> None:
    """What was given comes back, undeclared keys too, and null differs from absent."""
    given = {
        "interactionId": "i1",
        "userId": "u1",
        "type": "text",
        "content": "hello",
        "metadata": {
            "options": {"temperature": 0.5, "preferredModelId": "m"},
            "rollingSummary": {"json": {"a": [1]}},
            "promptProfile": None,
            "traceId": "t",
        },
    }
    read = GMITurnInput.model_validate(given)
    assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == given


def test_user_api_keys_are_not_in_the_repr() -> None:
    """A printed input shows no key."""
    read = GMITurnInput.model_validate(
        {
            "interactionId": "i1",
            "userId": "u1",
            "type": "text",
            "content": "hello",
            "metadata": {"userApiKeys": {"openai": "secret-value"}},
        }
    )
    assert "secret-value" not in repr(read)


def test_a_missing_field_is_named() -> None:
    """The error names the field as the input spells it."""
    with pytest.raises(MetaError) as caught:
        read_input({"userId": "u1", "type": "text", "content": "hello"})
    assert caught.value.field == "interactionId"


RESULT = {"toolCallId": "c1", "toolName": "search", "output": {"hits": 3}, "isError": False}
IDS = {"interactionId": "i1", "userId": "u1"}


@pytest.mark.parametrize("kind", list(GMIInteractionType))
@pytest.mark.parametrize(
    ("content", "is_result"),
    [
        ("hello", False),
        ({"event": "start", "n": 1}, False),
        ([{"type": "image", "url": "u"}, {}], False),
        (RESULT, True),
        ([RESULT, RESULT | {"isError": True, "errorDetails": "no"}], True),
    ],
)
def test_each_content_of_each_type_is_read(kind: GMIInteractionType, content: object, *, is_result: bool) -> None:
    """Results of tools as such, and all comes back as it was given."""
    given = {**IDS, "type": kind.value, "content": content}
    read = read_input(given)
    assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == given
    first = read.content[0] if isinstance(read.content, list) else read.content
    assert isinstance(first, ToolCallResult) is is_result


def test_policies_are_those_of_the_document() -> None:
    """Others are refused, and the field is named without what was given."""
    policy = {"toolFailureMode": "fail_closed", "toolSelectionMode": "discovered", "plannerVersion": "2"}
    read = read_input({**IDS, "type": "text", "content": "x", "metadata": {"executionPolicy": policy}})
    assert read.metadata is not None
    assert read.metadata.execution_policy is not None
    assert read.metadata.execution_policy.tool_failure_mode == "fail_closed"
    with pytest.raises(MetaError, match=r"^metadata\.executionPolicy\.toolFailureMode: input should be") as caught:
        read_input(
            {**IDS, "type": "text", "content": "x", "metadata": {"executionPolicy": {"toolFailureMode": "sk-secret"}}}
        )
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"interactionId": ""}, "interactionId"),
        ({"userId": ""}, "userId"),
        ({"sessionId": ""}, "sessionId"),
        ({"type": "talk"}, "type"),
        ({"content": 5}, "content"),
        ({"timestamp": "yesterday"}, "timestamp"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, object], field: str) -> None:
    """In a line that begins small."""
    with pytest.raises(MetaError) as caught:
        read_input({**IDS, "type": "text", "content": "x"} | change)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")


def test_errors_name_no_provider_of_a_key() -> None:
    """In its place may stand the key; and long names are not repeated whole."""
    given = {**IDS, "type": "text", "content": "x"}
    with pytest.raises(MetaError, match=r"^metadata\.userApiKeys: ") as caught:
        read_input(given | {"metadata": {"userApiKeys": {"the-key-itself": 1}}})
    assert "the-key-itself" not in str(caught.value)
    with pytest.raises(MetaError) as caught:
        read_input(given | {"userContextOverride": {"x" * 10_000: {1, 2}}})
    assert len(str(caught.value)) < 200
