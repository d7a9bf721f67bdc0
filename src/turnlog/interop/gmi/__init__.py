"""AgentOS's GMI: one turn of input, as pydantic models. `read_input` reads one."""

from turnlog.interop.gmi.input import (
    CapabilityDiscovery,
    ExecutionPolicy,
    GMIInteractionType,
    GMIMetadata,
    GMITurnInput,
    ModelOptions,
    PromptProfile,
    RollingSummary,
    ToolCallResult,
    read_input,
)

__all__ = [
    "CapabilityDiscovery",
    "ExecutionPolicy",
    "GMIInteractionType",
    "GMIMetadata",
    "GMITurnInput",
    "ModelOptions",
    "PromptProfile",
    "RollingSummary",
    "ToolCallResult",
    "read_input",
]
