"""Logs made at random, with all that a log can have: what the readers of the log format are tried on."""

import io
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

from msgspec import Raw

from turnlog import LossEntry, LossReport, Response, Text, Tool, ToolResult, ToolUse, TurnLog
from turnlog.errors import BookmarkExistsError, ConflictError
from turnlog.events import ERASURE, REGISTERS, TARGET, TRUST, TURN, Recorded, cite
from turnlog.model import ErasureMeta, ReplyFacts, ToolCallMeta, ToolEnding, ToolEndMeta
from turnlog.providers import PreparedRequest
from turnlog.record import EventDraft, plan_event
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD

STEPS = 40
NAMES = ("main", "draft", "ü", "two words", "a", "b")
WORDS = ("rain", "river", "naïve", "茶", "🌿", '"quoted"', "back\\slash", "tab\t", "line\n", "\u2028", "\x7f", "/")


class RandomLog:
    """Fills a log, one random step after the other."""

    def __init__(self, path: Path, random: Random, *, depth: int = 1) -> None:
        """Make a log at a path. `depth` is how deep logs may be taken in that took in others."""
        self.path = path
        self.random = random
        self.depth = depth
        self.log = TurnLog.open(f"sqlite:///{path}")

    def fill(self, steps: int = STEPS) -> None:
        """Take random steps, and close the log."""
        every: list[tuple[int, Callable[[], None]]] = [
            (30, self.turn),
            (6, self.blocks),
            (5, self.document),
            (10, self.call),
            (4, self.tool_calls),
            (6, self.bookmark),
            (3, self.register),
            (3, self.event),
            (2 * self.depth, self.take_in),
        ]
        with self.log:
            self.log.add_turn("root", bookmark="main")
            chosen = self.random.choices([step for _, step in every], [weight for weight, _ in every], k=steps)
            for step in chosen:
                step()
            targets = [each for each in self.log.events() if self.random.random() < 0.05 and each.header.private]
            self.erase([each for each in targets if each.header.topic not in (ERASURE, TRUST) and not each.erased])

    # Steps

    def turn(self) -> None:
        """Add a turn, somewhere."""
        self.log.add_turn(
            self.words(),
            role=self.random.choice(["user", "assistant", "system"]),
            continues=self.parents(),
            bookmark=self.random.choice([None, *NAMES]),
            inherited=self.random.choice([None, {"a": {"b": 1e-7, "c": None}, "d": [1.0, -0.0, 2**64 - 1]}, {"a": 1}]),
            reply=ReplyFacts(error=self.random.choice([None, None, None, "overloaded"])),
            cache=self.random.random() < 0.1,
        )

    def blocks(self) -> None:
        """Add a turn with blocks of all kinds, in a spelling of its own."""
        blocks = [
            '{ "text" : "spaced  out", "type": "text", "citations": [1.50, 1e5] }',
            '{"type":"tool_use","name":"find","input":{"z":1,"a":[ ]},"id":"c1"}',
            '{"type":"tool_result","content":[{"type":"text","text":"\\u00e9"}],"is_error":null}',
            '{"type":"thinking","thinking":"hm","signature":"c2ln","redacted":false}',
            '{"type":"native","provider":"p","block":{"k":[null,true]},"model":"m"}',
            '{"type":"document","source":{"type":"base64","media_type":"text/plain","data":"AAEC"}}',
        ]
        chosen = self.random.sample(blocks, self.random.randint(1, len(blocks)))
        self.log.add_turn("[" + ", ".join(chosen) + "]", json=True, continues=self.parents(), bookmark=False)

    def document(self) -> None:
        """Add a document of any size, some of them twice."""
        size = self.random.choice([0, 3, 127, 128, 5000, 65_535, 65_536, 90_000])
        file = self.path.with_name("document.bin")
        file.write_bytes(self.random.choice([Random(size).randbytes(size), b"all the same " * (size // 13)]))
        self.log.add_document(file, continues=self.parents(), bookmark=False)
        file.unlink()

    def call(self) -> None:
        """Record a call, with or without tools, a loss report and a reply, and the turn that came of it."""
        turn = self.random.choice(self.turns()).header.id
        lost = LossEntry(kind="moved", turn=turn, block="text", why="it had to", index=self.random.choice([None, 0]))
        messages = [message.content_json + b"," for message in self.log.context(turn).messages]
        model = self.random.choice(["m", "m", "n"])
        request = PreparedRequest(
            adapter="random",
            version="1",
            provider="p",
            api="a",
            model=model,
            stream=self.random.random() < 0.5,
            head=b'{"messages":[',
            messages=messages,
            closing=b"]}" + self.words().encode(),
            loss_report=LossReport(entries=(lost,) * self.random.choice([0, 0, 1, 5])),
            tools=tuple(
                Tool(name=name, description=self.words()) for name in self.random.choice([(), ("one",), ("a", "b")])
            ),
        )
        call = self.log.calls.record(turn, request, servers=["s"] if request.tools else [])
        if self.random.random() < 0.8:
            events = [self.words().encode().replace(b"\n", b" ") for _ in range(self.random.randint(0, 4))]
            response = Response(
                content=(Text(text=self.words()),), model=model, stop_reason="stop", provider="p", api="a"
            )
            self.log.calls.record_reply(call, events, response, bookmark=self.random.choice([None, *NAMES]))

    def tool_calls(self) -> None:
        """Add a reply with tool calls, some of them begun or ended, and sometimes the turn with the results."""
        calls = [ToolUse(id=f"c{number}", name="find", input=Raw(b"{}")) for number in range(self.random.randint(1, 3))]
        turn = self.log.add_turn(calls, role="assistant", continues=self.parents(), bookmark=False).id
        ends: list[ToolEndMeta] = []
        known: list[str] = []
        for block in range(len(calls)):
            begun = self.random.random() < 0.8
            if begun:
                server = self.random.choice([None, "s"])
                meta = ToolCallMeta(turn=turn, block=block, attempt=1, approved="auto", server=server)
                self.log.tool_calls.begin([meta])
            endings: tuple[ToolEnding, ...] = ("answer", "denied", "not_called")
            ending = self.random.choice(("result", "error", "given_up", "broken_off", "unknown") if begun else endings)
            end = ToolEndMeta(turn=turn, block=block, attempt=1, ending=ending)
            if self.random.random() < 0.4:
                ends.append(end)
            elif self.random.random() < 0.6:
                known.append(self.log.tool_calls.end(end, [Text(text=self.words())]))
        if self.random.random() < 0.7:
            results = [ToolResult(tool_use_id=call.id, content=self.words()) for call in calls]
            self.log.tool_calls.record_results(results, turn=turn, ends=ends, known=known, bookmark=False)

    def bookmark(self) -> None:
        """Set, rename or delete a bookmark."""
        known = [bookmark.name for bookmark in self.log.bookmarks.all()]
        name = self.random.choice(NAMES)
        if not known or self.random.random() < 0.4:
            self.log.bookmarks.set(name, self.random.choice(self.turns()).header.id)
        elif self.random.random() < 0.5:
            self.log.bookmarks.delete(self.random.choice(known))
        else:
            try:
                self.log.bookmarks.rename(self.random.choice(known), name)
            except BookmarkExistsError:
                return

    def register(self) -> None:
        """Register something, or confirm what came with an import."""
        name = self.random.choice(["nano", "giga"])
        imported = self.log.registers.imported()
        if imported and self.random.random() < 0.5:
            self.log.registers.trust([self.random.choice(imported).id])
            return
        self.log.pointers.set(name, "p", "m", params={"max_tokens": 1})
        self.log.providers.set(name, adapter="openai_chat", base_url="https://models.example/v1")
        self.log.servers.set(name, ["serve"], env=["HOME"], timeout_s=self.random.choice([None, 1, 2.5]))

    def event(self) -> None:
        """Record an event of another's topic."""
        cited = self.random.choice(list(self.log.events())).header.id
        self.log.add_event(
            self.random.choice(["acme.review", "acme.other-thing"]),
            self.random.choice([None, b"", b'{"a": 1}', b"\x00" * 300]),
            private=self.random.choice([None, {"by": self.words(), "marks": [1e22, 0.1, -5e-324]}]),
            public=self.random.choice([None, {"grade": 1.5}]),
            cites=self.random.choice([[], [("reviewed", cited)], [("reviewed", cited), ("turn", cited)]]),
        )

    def take_in(self) -> None:
        """Take in the export of another log, or of a part of one."""
        path = self.path.with_name(f"{self.path.stem}-{self.random.randrange(1 << 30)}.db")
        other = RandomLog(path, Random(self.random.random()), depth=0)
        other.fill(10)
        exported = io.BytesIO()
        with TurnLog.open(f"sqlite:///{path}") as log:
            parts = [bookmark.name for bookmark in log.bookmarks.all()]
            if any(event.erased for event in log.events()):
                parts = []  # a part does not have the events that say why something was erased
            log.export(exported, self.random.choice([None, *parts]))
        exported.seek(0)
        try:
            self.log.import_turnlog(exported, bookmarks=self.random.choice(["keep", "take"]))
        except ConflictError:
            return

    def erase(self, targets: list[Recorded]) -> None:
        """Take the private parts and payloads of events away, and record that. No command does so yet."""
        targets = [each for each in targets if not _moves_a_bookmark(each)]
        if not targets:
            return
        sources = Sources()
        draft = EventDraft(topic=ERASURE, meta=ErasureMeta(reason=self.words()))
        citations = [cite(target, TARGET) for target in targets]
        self.log.store.write(lambda t: plan_event(t, draft, NO_PAYLOAD, sources, citations))
        with closing(sqlite3.connect(self.path)) as database, database:
            for target in targets:
                database.execute(
                    "UPDATE stored_events SET private = NULL, payload_placement = 5, payload = NULL WHERE event_id = ?",
                    (target.header.id,),
                )
            kept = {name for (name,) in database.execute("SELECT hex(payload) FROM stored_events")}
        for file in self.path.with_name(f"{self.path.name}-payloads").glob("??/*"):
            if f"{file.parent.name}{file.name.removesuffix('.zst')}".upper() not in kept:
                file.unlink()

    # What steps are made of

    def words(self) -> str:
        """Return a text of a few words, or of many."""
        return " ".join(self.random.choices(WORDS, k=self.random.choice([1, 3, 40, 400])))

    def turns(self) -> list[Recorded]:
        """Return all turns."""
        return list(self.log.events(topics=[TURN]))

    def parents(self) -> list[str]:
        """Return what a turn may continue: often the last turn of a line, sometimes others."""
        names = [bookmark.name for bookmark in self.log.bookmarks.all()]
        ids = [turn.header.id for turn in self.turns()]
        count = self.random.choice([0, 1, 1, 1, 1, 1, 1, 2, 3])
        return [self.random.choice(names if names and self.random.random() < 0.7 else ids) for _ in range(count)]


def _moves_a_bookmark(event: Recorded) -> bool:
    private = b"" if event.private is None else bytes(event.private.meta)
    return event.header.topic == "gpt.bookmark" or b'"head":' in private or event.header.topic in REGISTERS


def fill(path: Path, seed: int, steps: int = STEPS) -> None:
    """Make a random log."""
    RandomLog(path, Random(seed)).fill(steps)
