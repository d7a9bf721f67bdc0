"""Hold the input of one AgentOS GMI turn as pydantic models."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic.alias_generators import to_camel

from turnlog.errors import MetaError
from turnlog.interop.gmi.naming import shortened


class GMIInteractionType(StrEnum):
    """Say what kind of input a turn brings."""

    TEXT = "text"
    MULTIMODAL_CONTENT = "multimodal_content"
    TOOL_RESPONSE = "tool_response"
    SYSTEM_MESSAGE = "system_message"
    LIFECYCLE_EVENT = "lifecycle_event"


class _Open(BaseModel):
    """Take camelCase keys or field names, and keep keys that are not declared."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow", frozen=True)


class RollingSummary(_Open):
    """Sum up the conversation so far, as text, JSON or both."""

    text: str | None = None
    json_value: JsonValue = Field(default=None, alias="json")


class PromptProfile(_Open):
    """Select a prompt profile for this turn."""

    id: str
    system_instructions: str | None = None
    reason: str | None = None


class ExecutionPolicy(_Open):
    """Say how tools are selected, and what a failed tool does to the turn."""

    planner_version: str | None = None
    tool_failure_mode: Literal["fail_open", "fail_closed"] | None = None
    tool_selection_mode: Literal["all", "discovered"] | None = None


class CapabilityDiscovery(_Open):
    """Hold what the discovery of capabilities found for this turn."""

    query: str | None = None
    kind: str | None = None
    selected_tool_names: list[str] | None = None
    prompt_context: str | None = None
    fallback_reason: str | None = None
    result: JsonValue = None


class ModelOptions(_Open):
    """Hold the completion options of this turn; other options are kept as given."""

    preferred_model_id: str | None = None
    preferred_provider_id: str | None = None
    tool_choice: JsonValue = None
    response_format: JsonValue = None


class GMIMetadata(_Open):
    """Hold the metadata of one input."""

    options: ModelOptions | None = None
    user_api_keys: dict[str, str] | None = Field(default=None, repr=False)
    user_feedback: JsonValue = None
    explicit_persona_switch_id: str | None = None
    conversation_history_for_prompt: list[JsonValue] | None = None
    rolling_summary: RollingSummary | None = None
    prompt_profile: PromptProfile | None = None
    execution_policy: ExecutionPolicy | None = None
    capability_discovery: CapabilityDiscovery | None = None


class ToolCallResult(_Open):
    """Hold what a tool answered to one call."""

    tool_call_id: str
    tool_name: str
    output: JsonValue = None
    is_error: bool | None = None
    error_details: JsonValue = None


Content = Annotated[
    str | ToolCallResult | list[ToolCallResult] | dict[str, JsonValue] | list[dict[str, JsonValue]],
    Field(union_mode="left_to_right"),
]
"""What a turn brings: text, a record, the result of a tool or several of them, or a list of records."""


class GMITurnInput(_Open):
    """Hold one turn of input to a GMI."""

    interaction_id: str = Field(min_length=1)
    user_id: str = Field(min_length=1)
    session_id: str | None = Field(default=None, min_length=1)
    type: GMIInteractionType
    content: Content
    timestamp: datetime | None = None
    user_context_override: dict[str, JsonValue] | None = None
    task_context_override: dict[str, JsonValue] | None = None
    metadata: GMIMetadata | None = None


_PLACES_MAX = 4
"""How deep fields of the document stand, and so how much of a place is named."""


def read_input(given: object) -> GMITurnInput:
    """Read one input; the error never repeats a value, which may be a key.

    Raises:
        MetaError: a field is missing or is not what it should be.
    """
    try:
        return GMITurnInput.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_input=False, include_context=False, include_url=False)[0]
        # Behind it pydantic names the member of the union that it tried, and deep in what is any JSON the way there.
        names = first["loc"][:1] if first["loc"][:1] == ("content",) else first["loc"][:_PLACES_MAX]
        if "userApiKeys" in names:  # behind it stand names of providers, or keys in their place
            names = names[: names.index("userApiKeys") + 1]
        field = ".".join(shortened(str(part)) for part in names)
        why = first["msg"][:1].lower() + first["msg"][1:]
    raise MetaError(f"{field or 'input'}: {why}", field=field or "input")
