"""AgentOS's GMI on the log: its inputs as turns, its prompts as windows, its replies as chunks.

`record` makes a turn of an input and `input_of` gives it back. `window_of` is the window that a model is asked with.
`run`, `arun` and `stream` record an input, ask a model, and give the reply as `GMIOutput` and `GMIOutputChunk`.
"""

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
from turnlog.interop.gmi.output import (
    CostAggregator,
    FinishReason,
    GMIError,
    GMIOutput,
    GMIOutputChunk,
    GMIOutputChunkType,
    ModelUsage,
    ToolCallRequest,
    UsagePart,
    output_of,
)
from turnlog.interop.gmi.prompt import on_window_of, window_of
from turnlog.interop.gmi.record import TASK_CONTEXT, USER_CONTEXT, bookmark_of, record
from turnlog.interop.gmi.run import RunSettings, arun, run, stream
from turnlog.interop.gmi.stored import TOPIC
from turnlog.interop.gmi.transcript import json_line_pieces, json_lines
from turnlog.interop.gmi.turns import input_of, nearest_input

__all__ = [
    "TASK_CONTEXT",
    "TOPIC",
    "USER_CONTEXT",
    "CapabilityDiscovery",
    "CostAggregator",
    "ExecutionPolicy",
    "FinishReason",
    "GMIError",
    "GMIInteractionType",
    "GMIMetadata",
    "GMIOutput",
    "GMIOutputChunk",
    "GMIOutputChunkType",
    "GMITurnInput",
    "ModelOptions",
    "ModelUsage",
    "PromptProfile",
    "RollingSummary",
    "RunSettings",
    "ToolCallRequest",
    "ToolCallResult",
    "UsagePart",
    "arun",
    "bookmark_of",
    "input_of",
    "json_line_pieces",
    "json_lines",
    "nearest_input",
    "on_window_of",
    "output_of",
    "read_input",
    "record",
    "run",
    "stream",
    "window_of",
]
