"""The projector: windows, and the windows that it keeps."""

import base64
import json
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.facts import with_facts
from tests.rewriting import erase

from turnlog import TurnLog
from turnlog.context import Projector
from turnlog.errors import CorruptionError, UnknownTurnError
from turnlog.model import ContextWindow, Erased, LeftOut, Message, ReplyFacts


def _window(log: TurnLog, projector: Projector, turn: str, **options: bool) -> ContextWindow:
    with log.store.read() as transaction:
        head = transaction.event(turn)
        assert head is not None
        return projector.window(transaction, head, **options)


def test_nothing_is_kept_as_of_an_erasure_that_was_read_before_it() -> None:
    """Whoever folds an older snapshot keeps nothing at any moment at which what was kept is dropped."""
    projector = Projector()
    with TurnLog.open("memory://") as log:
        secret = log.add_turn("secret", bookmark="main").id
        before = _resolved(log, projector)
        log.erase(turn=secret, reason="asked")
        log.add_turn("and on", continues=secret, bookmark="main")
        lock = projector._mutex

        class Watched:
            """A lock behind which somebody waits to keep what there was before."""

            def __enter__(self) -> None:
                lock.acquire()

            def __exit__(self, *_: object) -> None:
                lock.release()
                projector._mutex = lock
                projector._keep(*before)
                projector._mutex = self  # type: ignore[assignment]

        projector._mutex = Watched()  # type: ignore[assignment]
        assert "and on" in str(_window(log, projector, log.turn("main").id).messages)
        assert "secret" not in str(_window(log, projector, log.turn("main").id).messages)
        assert before[0] not in projector._kept.values()


def _resolved(log: TurnLog, projector: Projector) -> tuple[Any, int]:
    """Return what is known of the window of `main`, and the last erasure at that time."""
    _window(log, projector, log.turn("main").id)
    [kept] = projector._kept.values()
    return kept, projector._erasure


def _outline(log: TurnLog, projector: Projector, turn: str) -> list[Message]:
    with log.store.read() as transaction:
        head = transaction.event(turn)
        assert head is not None
        return _without_content(projector.outline(transaction, head))


def _without_content(messages: Sequence[Message]) -> list[Message]:
    return [structs.replace(message, content_json=b"") for message in messages]


def _texts(window: ContextWindow) -> list[str]:
    return [json.loads(message.content_json)[0]["text"] for message in window.messages]


def _random_turn(log: TurnLog, generator: random.Random, ids: list[str], number: int) -> str:
    count = generator.choice([0, 1, 1, 1, 1, 1, 2, 3]) if ids else 0
    recent = ids[-8:] if generator.random() < 0.7 else ids
    options: dict[str, Any] | None = None
    if generator.random() < 0.5:
        options = {
            generator.choice("abc"): generator.choice([None, 1, [], False, {"x": number}, {"x": None, "y": [1]}])
        }
    return log.add_turn(
        str(number),
        role=generator.choice(["user", "assistant", "system"]),
        continues=generator.sample(recent, min(count, len(recent))) or None,
        inherited=options,
        cache=generator.random() < 0.2,
        reply=ReplyFacts(
            stop_reason=generator.choice([None, None, None, "error", "end_turn"]), model=generator.choice([None, "m"])
        ),
    ).id


class TestWindow:
    """What a window holds."""

    def test_messages_have_content_role_cache_and_origin(self, log: TurnLog) -> None:
        """A message has what its turn has, and the exact content bytes."""
        root = log.add_turn("Grüß", role="system", cache=True)
        reply = log.add_turn(
            '[{"type":"text","text":"\\u00e9","n":1.50}]',
            json=True,
            role="assistant",
            continues=root.id,
            reply=ReplyFacts(model="m", provider="p", api="a"),
        )
        one, two = log.context(reply.id).messages
        assert (one.turn, one.role, one.cache) == (root.id, "system", True)
        assert one.content_json == '[{"type":"text","text":"Grüß"}]'.encode()
        assert (two.role, two.cache, two.model, two.provider, two.api) == ("assistant", False, "m", "p", "a")
        assert two.content_json == b'[{"type":"text","text":"\\u00e9","n":1.50}]'

    @pytest.mark.parametrize(
        ("name", "payload", "media_type"),
        [("a.png", b"\x00\xff\x01", "image/png"), ("a.md", b"# text", "text/markdown")],
    )
    def test_document_is_a_base64_block(
        self, log: TurnLog, tmp_path: Path, name: str, payload: bytes, media_type: str
    ) -> None:
        """A document is rebuilt from its raw bytes, text-like ones too."""
        (tmp_path / name).write_bytes(payload)
        document = log.add_document(tmp_path / name)
        [message] = log.context(document.id).messages
        assert json.loads(message.content_json) == [
            {
                "type": "document",
                "source": {"type": "base64", "media_type": media_type, "data": base64.b64encode(payload).decode()},
            }
        ]

    def test_options_are_merged_down_the_ancestry(self, log: TurnLog) -> None:
        """Later turns win, records recurse, null unsets; the explanation says who set each."""
        a = log.add_turn("a", servers=["x"], search=True, inherited={"r": {"k": 1, "l": 2}, "gone": 1})
        b = log.add_turn("b", continues=a.id, servers=[], inherited={"r": {"l": 3}, "gone": None})
        window = log.context(b.id, explain=True)
        assert window.options == {"servers": [], "search": True, "r": {"k": 1, "l": 3}}
        assert window.explanation is not None
        assert window.explanation.options == {"servers": b.id, "search": a.id, "r": {"k": a.id, "l": b.id}}
        assert window.explanation.turns == (a.id, b.id)
        assert log.context(a.id).options["gone"] == 1

    def test_options_of_a_merge_are_merged_in_ancestry_order(self, log: TurnLog) -> None:
        """Of two parents the one listed later wins."""
        a, b = log.add_turn("a", tool_mode="a"), log.add_turn("b", tool_mode="b")
        assert log.context(log.add_turn("m", continues=[a.id, b.id]).id).options == {"tool_mode": "b"}
        assert log.context(log.add_turn("m", continues=[b.id, a.id]).id).options == {"tool_mode": "a"}

    def test_failed_turns_are_left_out_unless_asked_for(self, log: TurnLog) -> None:
        """Errors and aborted replies are stored, left out by default with the reason, and shown in their places."""
        ids = [log.add_turn("0", reply=ReplyFacts(error="overloaded")).id]
        for text, given in [
            ("1", {}),
            ("2", {"stop_reason": "aborted"}),
            ("3", {"stop_reason": "error", "error": "cut"}),
            ("4", {"stop_reason": "end_turn"}),
            ("5", {"stop_reason": "error"}),
        ]:
            ids.append(log.add_turn(text, role="assistant", continues=ids[-1], **with_facts(given)).id)
        window = log.context(ids[-1], explain=True)
        assert _texts(window) == ["1", "4"]
        assert window.explanation is not None
        assert window.explanation.left_out == (
            LeftOut(turn=ids[0], reason="error: overloaded"),
            LeftOut(turn=ids[2], reason="stop_reason aborted"),
            LeftOut(turn=ids[3], reason="error: cut"),
            LeftOut(turn=ids[5], reason="stop_reason error"),
        )
        full = log.context(ids[-1], explain=True, include_failed=True)
        assert _texts(full) == ["0", "1", "2", "3", "4", "5"]
        assert full.explanation is not None
        assert full.explanation.left_out == ()
        assert full.explanation.turns == tuple(ids)

    def test_erased_turns_have_a_placeholder(self, file_log: TurnLog, store_path: Path) -> None:
        """Of an erased turn a window says that it was one: its content and its options are gone, the others stay."""
        a = file_log.add_turn("a", inherited={"x": 1})
        b = file_log.add_turn("b", continues=a.id, inherited={"x": 2, "y": 2}, role="system", cache=True)
        c = file_log.add_turn("c", continues=b.id)
        assert file_log.context(c.id).options == {"x": 2, "y": 2}
        erase(store_path, b.id)
        with file_log.store.read() as transaction:
            head = transaction.event(c.id)
            assert head is not None
            window = Projector().window(transaction, head, explain=True)
            full = Projector().window(transaction, head, include_failed=True)
        assert window.options == {"x": 1}
        assert window.explanation is not None
        assert (window.explanation.turns, window.explanation.left_out) == ((a.id, b.id, c.id), ())
        assert [message.erased for message in window.messages] == [False, True, False]
        assert (window.messages[1].role, window.messages[1].cache) == ("system", True)
        assert window.messages[1].content == [Erased(turn=b.id, time=b.time_ms)]
        assert full.messages == window.messages

    def test_explanation_is_there_only_if_asked_for(self, log: TurnLog) -> None:
        """Without `explain` a window has no explanation."""
        assert log.context(log.add_turn("x").id).explanation is None

    def test_longer_window_starts_with_the_shorter_one(self, log: TurnLog) -> None:
        """A turn more adds to the window and changes nothing before."""
        turn = log.add_turn("0").id
        for number in range(1, 20):
            before = log.context(turn).messages
            turn = log.add_turn(str(number), continues=turn).id
            assert log.context(turn).messages[:-1] == before


class TestKeptWindows:
    """A kept window never shows."""

    @pytest.mark.parametrize("cache_bytes_max", [0, 500, 20_000, 64 << 20])
    @pytest.mark.parametrize("seed", [1, 2])
    def test_warm_windows_equal_cold_ones(self, log: TurnLog, cache_bytes_max: int, seed: int) -> None:
        """Whatever was asked before, and however much is kept, every window is that of a fresh projector."""
        generator = random.Random(seed)
        warm = Projector(cache_bytes_max=cache_bytes_max)
        ids: list[str] = []
        for number in range(120):
            ids.append(_random_turn(log, generator, ids, number))
            for turn in {ids[-1], generator.choice(ids)}:
                _window(log, warm, turn, explain=True)
        generator.shuffle(ids)
        for turn in ids:
            for include_failed in (False, True):
                given = {"explain": True, "include_failed": include_failed}
                cold = _window(log, Projector(cache_bytes_max=0), turn, **given)
                assert _window(log, warm, turn, **given) == cold
            for projector in (Projector(), warm):
                assert _outline(log, projector, turn) == _without_content(_window(log, warm, turn).messages)

    def test_changed_options_do_not_reach_later_windows(self, log: TurnLog) -> None:
        """What a caller does to the options of a window, at any depth, stays with that window."""
        given: dict[str, Any] = {"r": {"k": {"l": [1, {"m": 2}]}}, "list": [[1]]}
        turn = log.add_turn("x", inherited=given)
        first: Any = log.context(turn.id, explain=True)
        first.options["r"]["k"]["l"][1]["m"] = 9
        first.options["list"][0].append(9)
        first.options["new"] = 9
        first.explanation.options["r"]["k"]["l"] = "forged"
        first.explanation.options["new"] = "forged"
        again = log.context(turn.id, explain=True)
        assert again.options == given
        assert again.explanation is not None
        assert again.explanation.options == {"r": {"k": {"l": turn.id}}, "list": turn.id}
        following = log.add_turn("y", continues=turn.id)
        assert log.context(following.id).options == given

    def test_second_window_reads_only_what_is_new(self, log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
        """After a window was built, one turn more reads one event of the stream, and the same window reads none."""
        turn = log.add_turn("0").id
        for number in range(1, 50):
            turn = log.add_turn(str(number), continues=turn).id
        projector = Projector()
        _window(log, projector, turn)
        longer = log.add_turn("50", continues=turn).id
        with log.store.read() as transaction:
            read: list[tuple[int, int]] = []
            scan = transaction.stream_payloads

            def counted(stream: str, first: int, last: int) -> Any:
                read.append((first, last))
                return scan(stream, first, last)

            monkeypatch.setattr(transaction, "stream_payloads", counted)
            head = transaction.event(longer)
            assert head is not None
            assert len(projector.window(transaction, head).messages) == 51
            assert read == [(50, 50)]
            projector.window(transaction, head)
            assert read == [(50, 50)]

    def test_an_outline_reads_no_content(self, log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also where no window is kept, and what it has read is not kept as one."""
        first = log.add_turn("0").id
        turn = log.add_turn("1", role="assistant", continues=first).id
        projector = Projector()
        with log.store.read() as transaction:
            head = transaction.event(turn)
            assert head is not None
            with monkeypatch.context() as patch:
                patch.setattr(transaction, "stream_payloads", None)
                assert [message.turn for message in projector.outline(transaction, head)] == [first, turn]
            assert _texts(projector.window(transaction, head)) == ["0", "1"]

    def test_fork_starts_from_the_kept_prefix(self, log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
        """A fork of a kept window reads its own turns only; one before the kept window reads from the root."""
        turns = [log.add_turn("0").id]
        for number in range(1, 20):
            turns.append(log.add_turn(str(number), continues=turns[-1]).id)
        projector = Projector()
        _window(log, projector, turns[10])
        late = log.add_turn("late", continues=turns[15]).id
        early = log.add_turn("early", continues=turns[5]).id
        with log.store.read() as transaction:
            read: list[tuple[int, int]] = []
            scan = transaction.stream_payloads

            def counted(stream: str, first: int, last: int) -> Any:
                read.append((first, last))
                return scan(stream, first, last)

            monkeypatch.setattr(transaction, "stream_payloads", counted)
            for turn, ranges in ((late, [(0, 0), (11, 15)]), (early, [(0, 0), (0, 5)])):
                head = transaction.event(turn)
                assert head is not None
                projector.window(transaction, head)
                assert read == ranges
                read.clear()

    def test_nothing_is_kept_with_a_limit_of_zero(self, log: TurnLog) -> None:
        """With a limit of 0 the projector holds no window."""
        projector = Projector(cache_bytes_max=0)
        _window(log, projector, log.add_turn("x").id)
        assert len(projector._kept) == 0

    def test_kept_windows_stay_below_the_limit(self, log: TurnLog) -> None:
        """What is kept stays bounded, and the least recently used window goes first."""
        projector = Projector(cache_bytes_max=20_000)
        turns = [log.add_turn("x" * 1000).id for _ in range(60)]
        _window(log, projector, turns[0])
        used_all_along = projector._kept[turns[0], 0]
        for turn in turns:
            _window(log, projector, turn)
            _window(log, projector, turns[0])
            assert projector._kept_bytes <= 20_000
            assert projector._kept_bytes == sum(kept.bytes for kept in projector._kept.values())
        assert 1 < len(projector._kept) < 60
        assert projector._kept[turns[0], 0] is used_all_along
        assert (turns[1], 0) not in projector._kept

    def test_window_larger_than_the_limit_is_not_kept_and_evicts_nothing(self, log: TurnLog) -> None:
        """One huge window does not push out all the others."""
        projector = Projector(cache_bytes_max=20_000)
        small, huge = log.add_turn("x").id, log.add_turn("x" * 30_000).id
        _window(log, projector, small)
        assert len(_window(log, projector, huge).messages) == 1
        assert list(projector._kept) == [(small, 0)]

    def test_damage_is_not_kept(self, file_log: TurnLog, poke: Any) -> None:
        """A window that could not be built is tried again, and succeeds once the bytes are back."""
        root = file_log.add_turn("x")
        turn = file_log.add_turn("y", continues=root.id)
        poke("CREATE TABLE kept AS SELECT notification_id AS id, payload FROM stored_events")
        poke("UPDATE stored_events SET payload = x'00' WHERE notification_id = 3")
        for _ in range(2):
            with pytest.raises(CorruptionError):
                file_log.context(turn.id)
        assert _texts(file_log.context(root.id)) == ["x"]
        poke("UPDATE stored_events SET payload = (SELECT payload FROM kept WHERE id = notification_id)")
        assert _texts(file_log.context(turn.id)) == ["x", "y"]

    def test_many_threads_get_the_same_windows(self, file_log: TurnLog) -> None:
        """Concurrent callers of one projector, with evictions, all get the right windows."""
        generator = random.Random(3)
        ids: list[str] = []
        for number in range(60):
            ids.append(_random_turn(file_log, generator, ids, number))
        expected = {turn: _window(file_log, Projector(cache_bytes_max=0), turn) for turn in ids}
        shared = Projector(cache_bytes_max=5_000)
        wrong: list[str] = []

        def ask(seed: int) -> None:
            chooser = random.Random(seed)
            for _ in range(100):
                turn = chooser.choice(ids)
                if _window(file_log, shared, turn) != expected[turn]:
                    wrong.append(turn)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_unknown_turn_has_no_window(log: TurnLog) -> None:
    """A window of nothing is an error."""
    with pytest.raises(UnknownTurnError):
        log.context("nope")
