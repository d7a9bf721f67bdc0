"""Many processes on one store: no turn is lost, none is recorded twice, and bookmarks move one step at a time."""

import threading
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.errors import HeadConflictError, StoreClosedError
from turnlog.testing.faults import run_process, run_processes

PROCESSES = 8
TURNS = 500


def _append_alone(url: str, process: int, turns: int) -> list[tuple[str, str]]:
    with TurnLog.open(url) as log:
        name = f"process {process}"
        head = log.add_turn("0", bookmark=name)
        found = [(head.id, "0")]
        for n in range(1, turns):
            found.append((log.add_turn(str(n), continues=name).id, str(n)))
        return found


def _append_together(url: str, process: int, turns: int) -> list[tuple[str, str]]:
    with TurnLog.open(url) as log:
        texts = [f"{process}/{n}" for n in range(turns)]
        return [(log.add_turn(text, continues="main").id, text) for text in texts]


def _append_once(url: str, expected_head: str, process: int) -> str | None:
    with TurnLog.open(url) as log:
        try:
            return log.add_turn(f"by {process}", continues="main", expected_head=expected_head).id
        except HeadConflictError:
            return None


def _texts(log: TurnLog, headish: str) -> list[str]:
    return [message.content[0].text for message in log.context(headish).messages]  # type: ignore[union-attr]


@pytest.mark.timeout(300)
def test_processes_with_threads_of_their_own_lose_nothing(tmp_path: Path) -> None:
    """Eight processes that open a new store at once and record 500 turns each leave 4,000 turns, in 8 runs."""
    url = f"sqlite:///{tmp_path}/log.db"
    found = run_processes([(_append_alone, (url, process, TURNS)) for process in range(PROCESSES)])
    with TurnLog.open(url) as log:
        # The genesis is recorded once, by whoever came first.
        assert [recorded.global_position for recorded in log.events()] == list(range(1, PROCESSES * TURNS + 2))
        assert [recorded.global_position for recorded in log.events(topics=["log.genesis"])] == [1]
        assert [thread.turns for thread in log.threads()] == [TURNS] * PROCESSES
        for process, turns in enumerate(found):
            ancestry = log.ancestry(f"process {process}")
            assert [turn.id for turn in ancestry] == [turn_id for turn_id, _ in turns]
            assert _texts(log, f"process {process}") == [text for _, text in turns]
        assert log.verify().damage == ()


@pytest.mark.timeout(300)
def test_processes_that_continue_one_bookmark_lose_nothing(tmp_path: Path) -> None:
    """Eight processes that continue one bookmark 500 times each make one run of 4,001 turns, with every turn once."""
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url) as log:
        root = log.add_turn("root", bookmark="main")
    found = run_processes([(_append_together, (url, process, TURNS)) for process in range(PROCESSES)])
    with TurnLog.open(url) as log:
        ancestry = log.ancestry("main")
        assert [(turn.stream, turn.position) for turn in ancestry] == [
            (root.id, position) for position in range(PROCESSES * TURNS + 1)
        ]
        text_of = dict(zip([turn.id for turn in ancestry], _texts(log, "main"), strict=True))
        assert text_of == {root.id: "root"} | {turn_id: text for turns in found for turn_id, text in turns}
        for turns in found:
            own = {turn_id for turn_id, _ in turns}
            assert [turn.id for turn in ancestry if turn.id in own] == [turn_id for turn_id, _ in turns]
        assert log.verify().damage == ()


def test_race_on_a_bookmark_has_one_winner(tmp_path: Path) -> None:
    """Of several processes that expect the same head exactly one records its turn; the others write nothing."""
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url) as log:
        head = log.add_turn("root", bookmark="main").id
        for round_ in range(10):
            found = run_processes([(_append_once, (url, head, process)) for process in range(4)])
            [head] = [turn_id for turn_id in found if turn_id is not None]
            assert log.turn("main").id == head
            assert len(list(log.events())) == round_ + 3


def test_store_of_another_process_is_seen_at_once(tmp_path: Path) -> None:
    """What one process recorded, another that has the store open sees with its next read."""
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url) as log:
        head = log.add_turn("root", bookmark="main").id
        added = run_process(_append_once, url, head, 1)
        assert log.turn("main").id == added
        assert _texts(log, "main") == ["root", "by 1"]


def _use_after_fork(url: str) -> dict[str, str]:
    """Open a log, fork, and tell for each call what it raised in the child."""
    import os  # noqa: PLC0415

    found: dict[str, str] = {}
    with TurnLog.open(url) as log:
        log.add_turn("before", bookmark="main")
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            calls = {
                "add_turn": lambda: log.add_turn("in the child", continues="main"),
                "turn": lambda: log.turn("main"),
                "context": lambda: log.context("main"),
                "verify": log.verify,
                "stats": log.stats,
                "events": lambda: list(log.events()),
                "threads": log.threads,
                "wait": lambda: log.wait(0),
                "feeds": log.feeds.all,
                "projections": log.feeds.unsearchable,
                "delivered": lambda: log.feeds.delivered_to([]),
                "forget": log.calls.forget,
                "place": lambda: log.store.place(b"x"),
            }
            lines = []
            for name, call in calls.items():
                try:
                    call()
                    lines.append(f"{name} nothing")
                except BaseException as error:  # noqa: BLE001 - it is reported
                    told = "opened before this process was forked: open it again" in str(error)
                    lines.append(f"{name} {type(error).__name__ if told else error}")
            os.write(writer, "\n".join(lines).encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader) as report:
            found = dict(line.split(maxsplit=1) for line in report.read().splitlines())
        log.add_turn("after", continues="main")
        found["parent"] = str(log.verify().clean)
    return found


def test_use_after_fork_raises(tmp_path: Path) -> None:
    """A log that was opened before a fork refuses every call in the child, and still works in the parent."""
    found = run_process(_use_after_fork, f"sqlite:///{tmp_path}/log.db")
    assert found.pop("parent") == "True"
    assert set(found.values()) == {StoreClosedError.__name__}, found
    assert len(found) == 13


def _follow(url: str, process: int, turns: int) -> list[int]:
    """Append, and follow the log to its end, in two threads; return the global positions that were seen."""
    seen: list[int] = []
    with TurnLog.open(url) as log:
        appending = threading.Thread(target=lambda: [log.add_turn(f"{process}/{n}") for n in range(turns)])
        appending.start()
        while not seen or seen[-1] <= PROCESSES * turns:
            log.wait(seen[-1] if seen else 0)
            seen += [recorded.global_position for recorded in log.events(seen[-1] if seen else 0)]
        appending.join()
    return seen


@pytest.mark.timeout(300)
def test_processes_that_wait_see_every_event(tmp_path: Path) -> None:
    """Eight processes that append and wait for each other's events see all of them, in order and without gaps."""
    url = f"sqlite:///{tmp_path}/log.db"
    found = run_processes([(_follow, (url, process, 20)) for process in range(PROCESSES)])
    assert found == [list(range(1, PROCESSES * 20 + 2))] * PROCESSES
