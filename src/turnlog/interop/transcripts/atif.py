"""ATIF, the Agent Trajectory Interchange Format: one JSON document with the steps of an agent, versions 1.0 to 1.7.

A step of the agent is a turn, and what was observed after it is a turn that answers. Trajectories of sub-agents that
stand in the document grow from the turn of the call that started them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Raw

from turnlog.errors import FormatError
from turnlog.events.times import parse_time
from turnlog.interop.marked import begins, data_url, is_text, says, text_of, whole
from turnlog.interop.texts import BOM, file_bytes
from turnlog.interop.transcripts.blocks import (
    content_blocks,
    native_part,
    text_block,
    thinking_block,
    tool_result_block,
    tool_use_block,
)
from turnlog.interop.transcripts.documents import url_block
from turnlog.interop.transcripts.fields import Fields, fields, items, part_of, rest_of
from turnlog.interop.transcripts.lines import TranscriptImporter, count, name_of
from turnlog.interop.transcripts.transcript import Builder, Entry, Given, Role, Transcript, without
from turnlog.model import Usage

PROVIDER = "atif"
"""Whose blocks images are: the format names files beside the document."""

_version = re.compile(rb'"schema_version"\s*:\s*"ATIF-v')
_ROLES: dict[str | None, Role] = {"agent": "assistant", "user": "user", "system": "system"}
_APART = ("tool_calls", "observation")
"""What of a step is a piece of its own."""

_encoder = msgspec.json.Encoder()


class Atif(TranscriptImporter):
    """Trajectories in ATIF."""

    name = "atif"
    summary = "trajectories in the Agent Trajectory Interchange Format (trajectory.json)"

    def recognizes(self, path: Path, beginning: bytes) -> bool:  # noqa: ARG002 - others look at the path
        """Tell whether a file is one of this format: it says so."""
        begins_as_object = beginning.removeprefix(BOM).lstrip()[:1] == b"{"
        return begins_as_object and _version.search(beginning) is not None

    def build(self, path: Path, builder: Builder) -> Transcript:
        """Read a file."""
        given = builder.text(0, file_bytes(path).removeprefix(BOM))
        if given is None:
            what = builder.done(places=0).problems[-1].what.partition(";")[0]
            raise FormatError(f"{str(path)!r} is {what}; nothing was imported")
        version = text_of(given.record().get("schema_version"))
        if version is None or not version.startswith("ATIF-v"):
            raise FormatError(
                f"{str(path)!r} is not a file of atif: it has no schema_version of it; nothing was imported"
            )
        if not version.startswith("ATIF-v1."):
            builder.problem(0, f"version {version!r} is newer than what is known: read as ATIF-v1.7")
        reader = _Reader(builder=builder)
        reader.whole(given)
        return builder.done(places=reader.steps)


@dataclass(kw_only=True, slots=True)
class _Trajectory:
    """What is known of a trajectory while it is read."""

    session: str | None
    key: str
    model: str | None
    sidechain: bool
    last: int | None = None


@dataclass(kw_only=True, slots=True)
class _Reader:
    """Takes trajectories, the embedded ones behind the one that they stand in."""

    builder: Builder
    steps: int = 0
    starts: dict[str, int] = field(default_factory=dict[str, int])
    """The turn that started each sub-agent, by its id."""
    waiting: list[Given] = field(default_factory=list[Given])
    """Embedded trajectories that were not read yet."""

    def whole(self, given: Given) -> None:
        """Take the trajectory of a file, and those that are embedded in it, each behind the one that started it."""
        self.trajectory(given, None)
        while self.waiting:
            started = next((each for each in self.waiting if self._start(each) is not None), self.waiting[0])
            self.waiting.remove(started)
            start = self._start(started)
            if start is None:
                record = started.record()
                id = name_of(record.get("trajectory_id")) or name_of(record.get("session_id"))
                self.builder.problem(self.steps, f"no step names the sub-agent {id!r}: it became a thread")
            self.trajectory(started, start, sidechain=True)

    def _start(self, given: Given) -> int | None:
        """Return the turn that started an embedded trajectory. Before version 1.7 its session was what named it."""
        record = given.record()
        ids = [name_of(record.get(name)) for name in ("trajectory_id", "session_id")]
        return next((self.starts[id] for id in ids if id is not None and id in self.starts), None)

    def trajectory(self, given: Given, start: int | None, *, sidechain: bool = False) -> None:
        """Take a trajectory. `start` is the turn of the call that started it."""
        record = given.record()
        session = name_of(record.get("session_id"))
        id = name_of(record.get("trajectory_id"))
        model = name_of(fields(record.get("agent")).get("model_name"))
        own = _Trajectory(
            session=session or id,
            key=id or session or "",
            model=model,
            sidechain=sidechain,
            last=start,
        )
        first = len(self.builder.entries)
        for index, raw in enumerate(items(record.get("steps"))):
            self.steps += 1
            part = part_of(given, f"steps[{index}]", bytes(raw))
            self._step(own, Given(place=self.steps, text=part.text, findings=part.findings))
        if not self.steps:
            self.builder.problem(0, "the trajectory has no steps")
        entries = range(first, len(self.builder.entries))
        turn = next((index for index in entries if self.builder.entries[index].parts), None)
        rest = without(given.text, [(name,) for name in ("steps", "subagent_trajectories") if items(record.get(name))])
        shown = rest_of(rest_of(given, rest, apart="steps"), rest, apart="subagent_trajectories")
        self.builder.piece(shown, "trajectory", turn=turn, id=id, session=own.session)
        for index, raw in enumerate(items(record.get("subagent_trajectories"))):
            self.waiting.append(part_of(given, f"subagent_trajectories[{index}]", bytes(raw)))

    def _step(self, own: _Trajectory, given: Given) -> None:
        step = given.record()
        source = text_of(step.get("source"))
        role = _ROLES.get(source)
        if not step or role is None:
            what = f"a step of the unknown source {source!r}" if step else "a step that is no object"
            self.builder.problem(given.place, f"{what}: kept as an event, it became no turn")
            self.builder.piece(given, "step", turn=own.last, session=own.session)
            return
        turn = self._turn(own, step, role, "step")
        moved: list[tuple[str, ...]] = []
        blocks: list[bytes] = []
        told = step.get("reasoning_content")
        if role != "assistant" and not {"reasoning_content", "tool_calls"}.isdisjoint(step):
            self.builder.problem(given.place, f"reasoning or calls of a step of {source!r}: kept as an event")
        elif says(told):
            blocks.append(thinking_block(told))
            moved.append(("reasoning_content",))
        said = content_blocks(step.get("message"), _part)
        if said:
            blocks += said
            moved += _moved(step, "message")
        is_apart = {
            "tool_calls": role == "assistant" and bool(items(step.get("tool_calls"))),
            "observation": bool(items(fields(step.get("observation")).get("results"))),
        }
        rest = without(given.text, [(name,) for name in _APART if is_apart[name]])
        shown = rest_of(rest_of(given, rest, apart=_APART[0]), rest, apart=_APART[1])
        time = parse_time(text_of(step.get("timestamp")))
        id = whole(step.get("step_id", b"")).decode() or None
        is_said = bool(blocks) or self.builder.entries[turn].usage is not None  # a reply that says nothing is a turn
        self.builder.piece(
            shown,
            "step",
            turn=turn,
            blocks=blocks if is_said else None,
            moved=moved,
            time=time,
            id=id,
            session=own.session,
        )
        called = self._calls(own, given, step, turn) if is_apart["tool_calls"] else []
        if is_apart["observation"]:
            self._observed(own, given, step, turn, called)

    def _turn(self, own: _Trajectory, step: Fields, role: Role, part: str) -> int:
        timestamp = text_of(step.get("timestamp"))
        is_model = role == "assistant"
        own.last = self.builder.entry(
            Entry(
                role=role,
                parents=() if own.last is None else (own.last,),
                key=(own.key, whole(step.get("step_id", b"")).decode(), part),
                time=parse_time(timestamp),
                timestamp=timestamp,
                session=own.session,
                sidechain=own.sidechain,
                model=(name_of(step.get("model_name")) or own.model) if is_model else None,
                usage=_usage(step) if is_model else None,
            )
        )
        return own.last

    def _calls(self, own: _Trajectory, given: Given, step: Fields, turn: int) -> list[str]:
        """Take the calls of a step. Return their ids."""
        ids: list[str] = []
        for index, raw in enumerate(items(step.get("tool_calls"))):
            call = fields(raw)
            name, arguments, id = call.get("function_name"), call.get("arguments"), text_of(call.get("tool_call_id"))
            part = part_of(given, f"tool_calls[{index}]", bytes(raw))
            if name is None or not text_of(name):
                self.builder.problem(given.place, "a tool call without a name: kept as an event")
                self.builder.piece(part, "tool_call", turn=turn, session=own.session)
                continue
            if id is not None:
                ids.append(id)
            known = Raw(b"{}") if arguments is None else arguments
            known = known if begins(known, b"{") else Raw(_encoder.encode({"input": known}))
            self.builder.piece(
                part,
                "tool_call",
                turn=turn,
                blocks=[tool_use_block(name, known, id=id)],
                moved=[("arguments",)],
                time=parse_time(text_of(step.get("timestamp"))),
                session=own.session,
            )
        return ids

    def _observed(self, own: _Trajectory, given: Given, step: Fields, turn: int, called: list[str]) -> None:
        """Take what was observed after a step. A second answer to a call, and one to none, is text."""
        observation = fields(step.get("observation"))
        results = items(observation.get("results"))
        time = parse_time(text_of(step.get("timestamp")))
        if set(observation) != {"results"}:
            rest = without(bytes(step["observation"]), [("results",)])
            part = rest_of(part_of(given, "observation", rest), rest, apart="results")
            self.builder.piece(part, "observation", turn=turn, time=time, session=own.session)
        answers = self._turn(own, step, "user", "observation")
        for index, raw in enumerate(results):
            result = fields(raw)
            id = text_of(result.get("source_call_id"))
            if id is None and len(called) == 1 and len(results) == 1 and "content" in result:
                id = called[0]
            elif id is not None and id not in called:
                self.builder.problem(
                    given.place, f"a result of {id!r}, which the step did not call or has: kept as text"
                )
                id = None
            said = content_blocks(result.get("content"), _part)
            if id is not None:
                called.remove(id)
                told = result.get("content")
                content = told if is_text(told) else [Raw(each) for each in said]
                is_error = fields(result.get("extra")).get("is_error") == Raw(b"true")
                said = [tool_result_block(content or "", id=id, is_error=is_error)]
            for reference in items(result.get("subagent_trajectory_ref")):
                self._refer(fields(reference), turn, given.place)
            part = part_of(given, f"observation.results[{index}]", bytes(raw))
            self.builder.piece(
                part,
                "result",
                turn=answers,
                blocks=said or None,
                moved=_moved(result, "content"),
                time=time,
                session=own.session,
            )

    def _refer(self, reference: Fields, turn: int, place: int) -> None:
        """Take note of which turn started a sub-agent."""
        id = name_of(reference.get("trajectory_id")) or name_of(reference.get("session_id"))
        if id is not None:
            self.starts.setdefault(id, turn)
        elsewhere = text_of(reference.get("trajectory_path"))
        if elsewhere is not None and name_of(reference.get("trajectory_id")) is None:
            self.builder.problem(place, f"a sub-agent's trajectory is in another file, {elsewhere!r}: import it too")


def _part(raw: Raw) -> bytes:
    """Return what a part of a message or a result says. Images that are files beside the document stay native."""
    part = fields(raw)
    text = part.get("text")
    if is_text(text):
        return text_block(text)
    image = _image(part)
    return native_part(PROVIDER, raw) if image is None else image


def _image(part: Fields) -> bytes | None:
    """Return the image whose bytes stand in its URL; None where they do not, or where it says more than a block can."""
    source = fields(part.get("source"))
    url = source.get("path")
    media_type, _ = data_url(url) or ("", None)
    if part.keys() != {"type", "source"} or source.keys() != {"media_type", "path"}:
        return None
    return url_block(url) if f"{media_type};".startswith(f"{text_of(source.get('media_type'))};") else None


def _moved(record: Fields, name: str) -> list[tuple[str, ...]]:
    """Return that content stands in a turn; not where texts of it have fields that the turn has no place for."""
    parts = [fields(each) for each in items(record.get(name))]
    kinds = (None, Raw(b'"text"'))
    more = any("text" in part and (part.get("type") not in kinds or part.keys() - {"type", "text"}) for part in parts)
    return [] if more else [(name,)]


def _usage(step: Fields) -> Usage | None:
    """Return the tokens of a step.

    Those of a cache are counted as tokens of the prompt too, and those of reasoning as tokens of the completion. Which
    these are, but for what was read from a cache, stands in `extra`, as `turnlog export --format atif` writes it.
    """
    metrics = fields(step.get("metrics"))
    if not any(name in metrics for name in ("prompt_tokens", "completion_tokens", "cached_tokens")):
        return None
    extra = fields(metrics.get("extra"))
    cached, written = count(metrics, "cached_tokens"), count(extra, "cache_creation_input_tokens")
    reasoning = count(extra, "reasoning_tokens")
    return Usage(
        input_tokens=max(0, count(metrics, "prompt_tokens") - cached - written),
        cache_creation_input_tokens=written,
        cache_read_input_tokens=cached,
        output_tokens=max(0, count(metrics, "completion_tokens") - reasoning),
        reasoning_tokens=reasoning,
    )
