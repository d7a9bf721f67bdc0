"""Search, usage and tool activity: what every log can have beside it."""

import asyncio
import io
import random
import re
import sqlite3
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.agent.running import run
from tests.agent.scripted import Scripted, call, say
from tests.sealed_log import seals_in

from turnlog import AsyncTurnLog, ReplyFacts, Turn, TurnFilter, TurnLog
from turnlog.errors import MetaError, NotFoundError, StoreError, UnknownTurnError
from turnlog.events import metadata
from turnlog.feeds import Status
from turnlog.feeds.facade import SUFFIX
from turnlog.feeds.listings import Listings
from turnlog.feeds.search import Search, terms_of, words_of
from turnlog.feeds.usage import TOKENS_MAX, By, UsageSum
from turnlog.model import Origin, ToolUse, Usage


@pytest.fixture(params=["memory", "file", "postgres"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TurnLog]:
    """Give a log in memory, one in a file, and one in a PostgreSQL database."""
    if request.param == "postgres":
        url = request.getfixturevalue("kept_postgres_url")
    else:
        url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url) as log:
        yield log


def found(log: TurnLog, query: str, **wanted: Any) -> list[str]:
    """Return the ids of the turns that are found."""
    return [each.turn for each in log.feeds.search(query, **wanted)]


# -------------------------------------------------------------------------------------------------------------- search


def test_words_are_found(log: TurnLog) -> None:
    """Whatever their case and accents; all of them, phrases, beginnings; also in what comes later."""
    fox = log.add_turn("The quick brown Fox jumps over the lazy dög", bookmark="main").id
    other = log.add_turn("A fox, quickly", continues="main").id
    assert sorted(found(log, "FOX")) == sorted([fox, other])
    assert found(log, "dog fox") == [fox]
    assert found(log, '"brown fox"') == [fox]
    assert found(log, '"fox brown"') == []
    assert found(log, "quick") == [fox]
    assert sorted(found(log, "quick*")) == sorted([fox, other])
    assert found(log, "hen") == []
    later = log.add_turn("a hen", continues="main").id
    assert found(log, "hen") == [later]
    [each] = log.feeds.search('"brown fox" dog')
    assert each.snippet == "The quick \x02brown Fox\x03 jumps over the lazy \x02dög\x03"
    assert (each.role, each.model, each.global_position) == ("user", None, 2)


def test_what_is_found_says_its_threads(log: TurnLog) -> None:
    """One, also in a fork; several behind a merge, and not before it."""
    one, two = (log.add_turn(f"river {name}", bookmark=name).id for name in ("one", "two"))
    fork = log.add_turn("river, too", continues=one, bookmark="fork").id
    later = log.add_turn("river behind it", continues="one").id
    merge = log.add_turn("river of both", continues=["one", "two"]).id
    last = log.add_turn("river, last", continues=merge).id
    both = tuple(sorted((one, two)))
    threads = {each.turn: each.threads for each in log.feeds.search("river")}
    assert threads == {one: (one,), two: (two,), fork: (one,), later: (one,), merge: both, last: both}


def test_what_means_the_same_is_found_however_it_is_spelled(log: TurnLog) -> None:
    """Composed, as most programs write, and decomposed, as macOS names files."""
    for text in ("Ελλάδα", "ёлка й", "が", "한국어", "Đặng", "שָׁלוֹם"):
        spelled = [unicodedata.normalize(form, text) for form in ("NFC", "NFD")]
        ids = [log.add_turn(each).id for each in spelled]
        for each in spelled:
            assert sorted(found(log, f'"{each}"')) == sorted(ids), each


CJK = {
    "tower": "東京タワーは高い。京都",
    "chinese": "我们在上海的博物馆看见了水獭",
    "thai": "ฉันรักแม่น้ำ",
    "mixed": "the 水獭otter lives",
    "korean": "한국어는 쉽다",
}


CJK_QUERIES = [
    *(
        (query, ["tower"])
        for query in ("東京", "タワー", "高", "東京タワー", "高い", "京 東", "東京*", '"タワーは高い"')
    ),
    *(("京", ["tower"]), ("東都", []), ("ワタ", []), ("博物馆", ["chinese"]), ("水獭", ["chinese", "mixed"])),
    *(("獭 上海", ["chinese"]), ("แม่น้ำ", ["thai"]), ("รัก", ["thai"]), ("水獭otter", ["mixed"]), ("otter", ["mixed"])),
    *(("獭ott*", ["mixed"]), ("한국어*", ["korean"]), ("한국", [])),
]


def test_scripts_without_blanks_are_found(log: TurnLog) -> None:
    """Any run of their characters, wherever it stands."""
    ids = {name: log.add_turn(text, bookmark=name).id for name, text in CJK.items()}
    for query, names in CJK_QUERIES:
        assert sorted(found(log, query)) == sorted(ids[name] for name in names), query


def test_snippet_of_a_long_text_is_of_the_first_place(log: TurnLog) -> None:
    """Which takes time that grows with the text alone; words of a query may be far apart."""
    filler = "the quick brown fox jumps over the lazy dog\n" * 20_000
    turn = log.add_turn(f"{filler}Here is an otter. {filler}And a dögfish.")
    for query, snippet in (
        ("the", "\x02the\x03 quick brown fox jumps over \x02the\x03 lazy dog"),
        ("otter dogfish", "Here is an \x02otter\x03. "),
        ("dogfish", "And a \x02dögfish\x03."),
        ('"an otter"', "Here is \x02an otter\x03. "),
    ):
        [each] = log.feeds.search(query)
        assert each.turn == turn.id
        assert snippet in each.snippet
        assert len(each.snippet) < 500


def test_snippets_show_the_text_as_it_is(log: TurnLog) -> None:
    """Without what the index has between characters."""
    log.add_turn(CJK["tower"] + " and the 水獭otter lives" + " there" * 30)
    assert [each.snippet for each in log.feeds.search("タワー")] == [
        "東京\x02タワー\x03は高い。京都 and the 水獭otter lives…"
    ]
    [each] = log.feeds.search("獭otter lives")
    assert "and the 水\x02獭otter\x03 \x02lives\x03…" in each.snippet


def test_control_characters_are_no_marks(log: TurnLog) -> None:
    """A snippet goes on behind a NUL, and what looks like a mark is replaced."""
    log.add_turn("alpha\0beta gamma \x02delta\x03 \x01end")
    for query in ("gamma", "gamma\x02"):
        [each] = log.feeds.search(query)
        assert each.snippet == "alpha\ufffdbeta \x02gamma\x03 \ufffddelta\ufffd \ufffdend"
    assert len(found(log, "beta")) == 1


def test_query_has_not_too_many_words(log: TurnLog) -> None:
    """Each counts once, and in a phrase too."""
    turn = log.add_turn("a b")
    assert found(log, "a b " * 50_000) == [turn.id]
    assert found(log, " ".join(map(str, range(256)))) == []
    for query in (" ".join(map(str, range(257))), '"' + "a " * 257 + '"', "a-" * 257, "a_" * 257, "中" * 257):
        with pytest.raises(MetaError, match="it has 257 words: give 256 at most"):
            found(log, query)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        *(("query", value) for value in (None, 5, b"x", ["x"])),
        *(("thread", value) for value in (5, b"x")),
        *(("which", value) for value in (None, "user", {"role": "user"})),
        *(("limit", value) for value in ("x", 0, -1, 2.0, True, None, 10**20, 1_000_001)),
        ("newest", "yes"),
    ],
)
def test_arguments_of_a_search_are_checked(field: str, given: Any) -> None:
    """Before anything is looked at."""
    with TurnLog.open("memory://") as log, pytest.raises(MetaError, match=field) as caught:
        log.feeds.search(**{"query": "x", field: given})
    assert caught.value.field == field


def test_results_are_ranked_and_limited(log: TurnLog) -> None:
    """The best match first, or the newest."""
    weak = log.add_turn("river " + "and much else " * 50).id
    strong = log.add_turn("river river").id
    last = log.add_turn("a river among many other words of this turn").id
    assert found(log, "river")[0] == strong
    assert found(log, "river")[-1] == weak
    assert found(log, "river", newest=True) == [last, strong, weak]
    assert found(log, "river", newest=True, limit=1) == [last]


def test_turns_are_picked(log: TurnLog) -> None:
    """By thread, role, model and time."""
    asked = log.add_turn("find the river", bookmark="main").id
    run(log, Scripted(say("The river is found.")), continues="main")
    answered = log.turn("main").id
    elsewhere = log.add_turn("a river elsewhere", bookmark="other").id
    assert sorted(found(log, "river", thread="main")) == sorted([asked, answered, log.ancestry("main")[1].id][:2])
    assert found(log, "river", thread="other") == [elsewhere]
    assert found(log, "river", which=TurnFilter(role="assistant")) == [answered]
    for model in ("scripted-1", "scripted*", "*", "scripted-[!2-9]"):
        assert found(log, "river", which=TurnFilter(model=model)) == [answered]
    for model in ("nope", "scripted", "Scripted*", "*-2", ""):
        assert found(log, "river", which=TurnFilter(model=model)) == []
    now = datetime.now(UTC)
    assert found(log, "river", which=TurnFilter(since=now + timedelta(hours=1))) == []
    said, near = log.turn("other").said_at, timedelta(microseconds=1)
    assert elsewhere in found(log, "river", which=TurnFilter(since=said, until=said + near))
    assert found(log, "elsewhere", which=TurnFilter(since=said + near)) == []
    assert found(log, "elsewhere", which=TurnFilter(until=said)) == []
    around = TurnFilter(since=now - timedelta(hours=1), until=now + timedelta(hours=1))
    assert len(found(log, "river", which=around)) == 3
    assert found(log, "river", which=msgspec.structs.replace(around, model="scripted*")) == [answered]
    with pytest.raises(UnknownTurnError):
        found(log, "river", thread="nope")


def test_what_tools_and_documents_say_is_found(log: TurnLog, tmp_path: Path) -> None:
    """Names and inputs of calls, results, names of documents and text in them."""

    def look(place: str) -> str:
        """Look somewhere."""
        return f"a heron at the {place}"

    run(log, Scripted(call(("look", {"place": "estuary"})), say("Done.")), bookmark="main", tools=[look])
    assert [log.turn(turn).meta.role for turn in found(log, "look estuary")] == ["assistant"]
    assert [log.turn(turn).meta.role for turn in found(log, "heron")] == ["user"]
    for name, content in (("kingfishers.txt", b"perched"), ("birds.bin", b"\x00\x01perched")):
        (tmp_path / name).write_bytes(content)
        log.add_document(tmp_path / name)
    assert len(found(log, "kingfishers perched")) == 1
    assert len(found(log, "birds")) == 1
    assert len(found(log, "perched")) == 1


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("two words", '"two" "words"'),
        ('"a phrase" more', '"a phrase" "more"'),
        ("begin*", '"begin"*'),
        ('C++ "x" OR', '"C++" "x" "OR"'),
        ('half"open', '"half""open"'),
        ("text:x NEAR(a b)", '"text:x" "NEAR(a" "b)"'),
        ("- word", '"word"'),
    ],
)
def test_query_is_words_and_nothing_else(log: TurnLog, query: str, words: str) -> None:
    """None of them is an operator, and none makes an error."""
    assert words_of(terms_of(query)) == words
    assert found(log, query) == []


@pytest.mark.parametrize("query", ["", " ", '""', "*", "!? -"])
def test_query_has_a_word(log: TurnLog, query: str) -> None:
    """What has none is refused."""
    with pytest.raises(MetaError, match="no word"):
        log.feeds.search(query)


def test_erased_turns_are_found_no_more(tmp_path: Path) -> None:
    """And nothing of them is left in the index, whose file is beside the store."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}") as log:
        turn = log.add_turn("the secret Zebulon told, and zebuline things", bookmark="main")
        log.add_turn("kept words", continues="main")
        assert found(log, "zebulon") == [turn.id]
        kept = path.with_name(path.name + SUFFIX)
        assert b"Zebulon" in kept.read_bytes() + kept.with_name(kept.name + "-wal").read_bytes()
        assert log.erase(turn=turn.id, reason="asked").remains is None
        assert found(log, "zebulon") == []
        assert len(found(log, "kept")) == 1
    raw = b"".join(each.read_bytes() for each in tmp_path.iterdir()).lower()
    assert b"zebul" not in raw


def test_rebuild_keeps_traces_and_that_is_said(tmp_path: Path) -> None:
    """Finishing when it has ended removes them."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        turn = log.add_turn("Zebulon")
        log.feeds.run()
        reports: list[str | None] = []
        log.feeds.rebuild("search", progress=lambda *_: reports.append(log.erase(turn=turn.id, reason="asked").remains))
        said = str(reports[0])
        assert f"'{tmp_path}/log.db-projections-search-" in said
        assert said.endswith("projection 'search' is being built: when that has ended, `turnlog erase --finish`")
        assert log.finish_erasing() is None
        assert found(log, "zebulon") == []
    assert b"Zebulon" not in b"".join(each.read_bytes() for each in tmp_path.iterdir() if each.is_file())


def test_reader_of_the_index_keeps_traces_and_that_is_said(tmp_path: Path) -> None:
    """Finishing later removes them."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}") as log:
        turn = log.add_turn("Zebulon")
        found(log, "zebulon")
        reader = sqlite3.connect(path.with_name(path.name + SUFFIX), isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM search_turns").fetchall()
        report = log.erase(turn=turn.id, reason="asked")
        assert "--finish" in (report.remains or "")
        reader.close()
        assert log.finish_erasing() is None
        assert log.verify().damage == ()
    assert b"Zebulon" not in b"".join(each.read_bytes() for each in tmp_path.iterdir())


def test_sealed_turns_are_not_indexed(tmp_path: Path) -> None:
    """The index would have them in plain. How many they are is told."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}", seals=seals_in(tmp_path / "keys")) as log:
        log.add_turn("plain words", bookmark="main")
        log.seal()
        log.add_turn("sealed words", continues="main")
        run(log, Scripted(call(("add", {"a": 1, "b": 2})), say("sealed too")), continues="main", tools=[])
        assert len(found(log, "words")) == 1
        assert log.feeds.unsearchable() == 5
        log.add_turn("sealed again", continues="main")
        assert log.feeds.unsearchable() == 6
        assert log.feeds.tools() == []
        assert [(each.key, each.replies) for each in log.feeds.usage("bookmark")] == [(None, 2)]
    raw = path.with_name(path.name + SUFFIX).read_bytes()
    assert b"sealed words" not in raw
    assert b"main" not in raw.replace(b"main\x00", b"")


def test_how_many_cannot_be_found_is_told_before_anything_was_searched(log: TurnLog) -> None:
    """The index is made for it, as for a search."""
    log.add_turn("words")
    assert log.feeds.unsearchable() == 0
    assert log.feeds.built() == ["search"]


# ------------------------------------------------------------------------------------------------------------ listings


DAY = datetime(2026, 1, 1, tzinfo=UTC)
SOONER_OR_LATER = ["2026-01-09", "2026-01-03T12:00:00.000500+00:00", "2019-05-05", "2031-01-01", "no time", None]


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a log of any length have its turns found by the index, after the last two were looked at."""
    monkeypatch.setattr("turnlog.feeds.facade.INDEXED_EVENTS", 0)
    for module in ("turnlog.log", "turnlog.projections.threads"):
        monkeypatch.setattr(f"{module}.LOOKED_AT_MAX", 2)


def of_a_time(log: TurnLog) -> list[str]:
    """Record turns of all sorts of times, some of them in one thread, and return their ids."""
    ids: list[str] = []
    for number, time in enumerate(SOONER_OR_LATER):
        origin = None if time is None else Origin(format="ours", ids=[str(number)], timestamp=time)
        parent = ids[number - 2] if number in (3, 4) else None
        ids.append(log.add_turn(f"turn {number}", continues=parent, origin=origin).id)
    return ids


def times(log: TurnLog) -> list[datetime]:
    """Return times around those of the turns."""
    said = {turn.said_at for turn in log.latest(None)}
    return sorted(time + timedelta(microseconds=beside) for time in said for beside in (-1, 0, 1))


def test_the_time_of_what_search_finds_is_that_of_the_turn(log: TurnLog) -> None:
    """To the microsecond, in the form that other listings have."""
    of_a_time(log)
    found = log.feeds.search("turn")
    assert len(found) == len(SOONER_OR_LATER)
    assert [each.time for each in found] == [log.turn(each.turn).to_record()["said_at"] for each in found]


def check_times(log: TurnLog, *, every: int = 1) -> None:
    """See that turns of a time, every so many of those tried, are found as they are where all are looked at."""
    turns, threads = log.latest(None), log.threads()
    bounds = times(log)
    one = [(since, None) for since in bounds] + [(None, until) for until in bounds]
    for since, until in [*one, *zip(bounds, bounds[4:], strict=False)][::every]:
        first, end = since or datetime.min.replace(tzinfo=UTC), until or datetime.max.replace(tzinfo=UTC)
        among = [turn for turn in turns if first <= turn.said_at < end]
        which = TurnFilter(since=since, until=until)
        assert log.latest(None, which=which) == among
        assert log.latest(2, which=which) == among[-2:]
        active = [thread for thread in threads if first <= datetime.fromisoformat(thread.last) < end]
        assert log.threads(which=which) == active
        assert log.threads(1, which=which) == active[-1:]


@pytest.mark.usefixtures("indexed")
def test_turns_of_a_time_are_found(log: TurnLog) -> None:
    """Whatever time their source says: in whatever order, what came since too, and what was erased."""
    ids = of_a_time(log)
    check_times(log)
    log.add_turn("later")
    check_times(log, every=2)
    log.erase(turn=ids[:2], reason="asked")
    check_times(log, every=2)
    assert [turn.id for turn in log.latest(9, which=TurnFilter(until=datetime(2020, 1, 1, tzinfo=UTC)))] == [ids[2]]


@pytest.mark.usefixtures("indexed")
def test_turns_of_a_time_are_exported(log: TurnLog) -> None:
    """Each with its ancestry, as where all turns are looked at."""
    of_a_time(log)
    for since in times(log)[::3]:
        found, expected = BytesIO(), BytesIO()
        log.export(found, which=TurnFilter(since=since, until=since + timedelta(days=3000)))
        log.export(expected, wanted=lambda turn, since=since: since <= turn.said_at < since + timedelta(days=3000))
        assert found.getvalue() == expected.getvalue()
    with pytest.raises(NotFoundError):
        log.export(BytesIO(), which=TurnFilter(since=datetime(2040, 1, 1, tzinfo=UTC)))


@pytest.mark.usefixtures("indexed")
def test_turns_of_a_time_are_found_without_reading_the_others(log: TurnLog) -> None:
    """Those between the first and the last of the time are looked at, and what came since the index was asked."""
    ids = of_a_time(log)
    spans = log.feeds.spans(TurnFilter(since=DAY, until=DAY + timedelta(days=30))) or ()
    first, second = (log.turn(id).global_position for id in ids[:2])
    end = log.turn(ids[-1]).global_position
    assert [(span.start, span.stop) for span in spans] == [(end + 1, (1 << 63) - 1), (first, second + 1)]
    later = TurnFilter(since=datetime(2040, 1, 1, tzinfo=UTC))
    assert [span.start for span in log.feeds.spans(later) or ()] == [end + 1]


def test_short_log_has_every_turn_looked_at(tmp_path: Path) -> None:
    """No file is made beside it."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        of_a_time(log)
        check_times(log)
    assert not (tmp_path / "log.db-projections").exists()


@pytest.mark.usefixtures("indexed")
def test_turns_of_a_time_are_found_where_there_can_be_no_index(tmp_path: Path) -> None:
    """Every one is looked at then."""
    (tmp_path / "log.db-projections").mkdir()
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        of_a_time(log)
        check_times(log)


@pytest.mark.usefixtures("indexed")
def test_turns_of_a_time_are_found_once_while_somebody_brings_the_index_up(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came is in the index by the time that it is asked."""
    of_a_time(log)

    def bring_up(name: str, progress: Any) -> Status:
        [status] = log.feeds.run([name], progress=progress)
        log.add_turn("meanwhile")
        log.feeds.run([name])
        return status

    monkeypatch.setattr(log.feeds, "_bring_up", bring_up)
    found = log.latest(None, which=TurnFilter(since=datetime.min.replace(tzinfo=UTC)))
    assert found == log.latest(None)


@pytest.mark.usefixtures("indexed")
def test_turns_of_a_time_are_found_where_one_is_passed_over(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index does not have it."""
    of_a_time(log)

    def refuse(*_: object) -> None:
        raise ValueError("no time is like this one")

    monkeypatch.setattr(Listings, "fold", refuse)
    log.feeds.run(["listings"])
    log.feeds.skip("listings", "for a test")
    monkeypatch.undo()
    monkeypatch.setattr("turnlog.feeds.facade.INDEXED_EVENTS", 0)
    check_times(log)
    [status] = [each for each in log.feeds.status() if each.name == "listings"]
    assert (status.lag, len(status.skipped)) == (0, 1)


@pytest.mark.usefixtures("indexed")
def test_index_that_does_not_know_how_far_it_has_come_is_told(tmp_path: Path) -> None:
    """What is kept of that is damaged; turns of a time are found all the same."""
    path = tmp_path / "log.db-projections"
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        ids = of_a_time(log)
        check_times(log)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE turnlog_projections SET state = substr(state, 2)")
        check_times(log)
        with pytest.raises(StoreError, match=r"is damaged, or none \(.*remove it"):
            log.feeds.status()
        assert "is damaged, or none" in (log.erase(turn=ids[0], reason="asked").remains or "")


@pytest.mark.usefixtures("indexed")
def test_sealed_turns_of_a_time_are_found(tmp_path: Path) -> None:
    """The index does not know when they were said: it is not sealed."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}", seals=seals_in(tmp_path / "keys")) as log:
        log.seal()
        of_a_time(log)
        check_times(log)
        with log.feeds.target.reader() as db:
            assert {time for (time,) in db.execute("SELECT time_ms FROM listed_turns").fetchall()} == {None}


MODELS = ["great-1", "great-2", "small", "Small", "odd [1]*", None, None]
SPEAKERS = [
    TurnFilter(role="user"),
    TurnFilter(role="system"),
    TurnFilter(model="great-*"),
    TurnFilter(model="small"),
    TurnFilter(model="odd [[]1]?"),
    TurnFilter(model="*"),
    TurnFilter(model="none"),
    TurnFilter(role="user", model="small"),
    TurnFilter(role="assistant", model="great-1"),
]


def of_speakers(log: TurnLog, source: random.Random, count: int) -> None:
    """Record turns of some roles and models, in threads with forks and merges."""
    ids: list[str] = []
    with log.group() as group:
        for number in range(count):
            parents = source.sample(ids, min(len(ids), source.choice([0, 1, 1, 1, 2])))
            role = "system" if number % 19 == 3 else source.choice(["user", "assistant"])
            model = source.choice(MODELS) if role == "assistant" else None
            reply = None if model is None else ReplyFacts(model=model)
            ids.append(group.add_turn(str(number), role=role, continues=parents, bookmark=False, reply=reply))


def check_speakers(log: TurnLog, which: TurnFilter) -> None:
    """See that turns and threads of a speaker are found as they are where all are looked at."""
    turns = [turn for turn in log.latest(None) if which.takes(turn.meta, turn.time_ms)]
    assert log.latest(None, which=which) == turns
    ids = {turn.id for turn in turns}
    threads = log.threads(wanted=lambda turn: turn.id in ids)
    assert log.threads(which=which) == threads
    for limit in (0, 1, 2, 5):
        assert log.latest(limit, which=which) == turns[len(turns) - min(limit, len(turns)) :]
        assert log.threads(limit, which=which) == threads[len(threads) - min(limit, len(threads)) :]
    odd = {turn.id for turn in turns if turn.global_position % 2}
    assert {turn.id for turn in log.latest(None, which=which, wanted=lambda turn: turn.global_position % 2 == 1)} == odd
    found, expected = BytesIO(), BytesIO()
    if turns:
        log.export(found, which=which, limit=2)
        log.export(expected, wanted=lambda turn: turn.id in ids, limit=2)
    assert found.getvalue() == expected.getvalue()


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize("near", [0, 3])
def test_turns_of_a_speaker_are_found(log: TurnLog, monkeypatch: pytest.MonkeyPatch, near: int) -> None:
    """By role and model, whether they are many or few; what came since too, and what was erased."""
    monkeypatch.setattr("turnlog.feeds.listings._NEAR", near)
    source = random.Random(near)
    of_speakers(log, source, 40)
    for which in SPEAKERS:
        check_speakers(log, which)
    for which in SPEAKERS:
        of_speakers(log, source, 3)
        found = log.latest(3, which=which)
        if found:
            log.erase(turn=[turn.id for turn in found], reason="asked")
        check_speakers(log, which)


@pytest.mark.usefixtures("indexed")
def test_turns_of_a_speaker_and_a_time_are_found(log: TurnLog) -> None:
    """Both are asked of each turn; of a thread, the time of its last turn."""
    for time in range(1, 9):
        origin = Origin(format="ours", ids=[str(time)], timestamp=f"2026-01-0{time}")
        reply = ReplyFacts(model=("great-1", "small")[time % 2])
        root = log.add_turn(str(time), role="assistant", bookmark=False, reply=reply, origin=origin)
        origin = Origin(format="ours", ids=[f"{time} on"], timestamp=f"2026-01-0{time}T12:00")
        log.add_turn("on", continues=root.id, bookmark=False, origin=origin)
    which = TurnFilter(model="small", since=DAY + timedelta(days=2), until=DAY + timedelta(days=6))
    assert [log.text(turn) for turn in log.latest(None, which=which)] == ["3", "5"]
    assert [log.text(turn) for turn in log.latest(1, which=which)] == ["5"]
    assert [log.text(thread.id) for thread in log.threads(which=which)] == ["3", "5"]
    _, *spans = log.feeds.spans(which) or ()
    assert 0 < sum(map(len, spans)) < 10


@pytest.mark.usefixtures("indexed")
def test_names_of_models_may_be_any_text(log: TurnLog) -> None:
    """Of any length, of any characters, and empty."""
    noise = random.Random(1).randbytes(5000).hex()
    names = ["", "a\tb", "a\0b", "\uffff", noise, noise[:200], noise[:201], noise[:199], "𝒎" * 900]
    turns = {
        name: log.add_turn("said", role="assistant", reply=ReplyFacts(model=name), bookmark=False).id for name in names
    }
    for name in names:
        assert [turn.id for turn in log.latest(None, which=TurnFilter(model=name))] == [turns[name]]
        assert [thread.id for thread in log.threads(which=TurnFilter(model=name))] == [turns[name]]
        assert found(log, "said", which=TurnFilter(model=name)) == ([turns[name]] if name else [])
    longer = [turns[name] for name in names if len(name) > 200 and name.startswith(noise[:9])]
    assert [turn.id for turn in log.latest(None, which=TurnFilter(model=f"{noise[:200]}?*"))] == longer


@pytest.mark.usefixtures("indexed")
def test_more_models_than_can_be_asked_for_by_name(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """All turns are looked at then."""
    monkeypatch.setattr("turnlog.feeds.listings._MODELS_MAX", 1)
    of_speakers(log, random.Random(1), 30)
    for which in SPEAKERS:
        check_speakers(log, which)


@pytest.mark.usefixtures("indexed")
def test_turns_of_a_rare_model_are_found_without_reading_the_others(log: TurnLog) -> None:
    """Nor are the threads that have none."""
    rare = log.add_turn("rare", role="assistant", bookmark=False, reply=ReplyFacts(model="rare"))
    log.add_turn("on", continues=rare.id, bookmark=False)
    with log.group() as group:
        for number in range(200):
            group.add_turn(str(number), bookmark=False)
    _, *spans = log.feeds.spans(TurnFilter(model="rare")) or ()
    assert spans == [range(rare.global_position, rare.global_position + 1)]
    seen: list[Turn] = []
    assert log.threads(1, which=TurnFilter(model="r*"), wanted=lambda turn: not seen.append(turn))[0].id == rare.id
    assert [turn.id for turn in seen] == [rare.id]


@pytest.mark.parametrize("wrong", [{"role": "tool"}, {"role": ""}, {"role": 5}, {"model": 3}, {"model": b"m"}])
def test_filter_that_is_none_is_refused(filed: TurnLog, wrong: dict[str, Any]) -> None:
    """When it is made; and so is what is no filter."""
    with pytest.raises(MetaError, match=f"^{next(iter(wrong))}: "):
        TurnFilter(**wrong)
    method: Any
    for method in (partial(filed.latest, 1), filed.threads, partial(filed.export, BytesIO())):
        with pytest.raises(MetaError, match=r"^which: expected TurnFilter, got dict$"):
            method(which=wrong)


@pytest.mark.parametrize("name", ["since", "until"])
@pytest.mark.parametrize("wrong", [datetime(2026, 1, 1), "2026-01-01"])  # noqa: DTZ001 - it is refused
def test_times_without_a_zone_are_refused(name: str, wrong: Any) -> None:
    """Nobody knows when they are."""
    with pytest.raises(MetaError, match=f"^{name}: give a datetime with a time zone, got "):
        TurnFilter(**{name: wrong})


# --------------------------------------------------------------------------------------------------------------- usage


def test_usage_adds_up(log: TurnLog) -> None:
    """By day, model, provider, thread and bookmark; replies that say nothing of tokens count too."""
    for name, tokens in (("main", 10), ("other", 7), ("main", 5)):
        heads = {bookmark.name for bookmark in log.bookmarks.all()}
        start = {"continues": name} if name in heads else {"bookmark": name}
        run(log, Scripted(say("Done.", tokens=tokens)), **start)
    today = datetime.now(UTC).date().isoformat()
    run(log, Scripted(say("Done.", tokens=0)), continues="other")
    everything = UsageSum(keys=(), replies=4, untold=1, usage=Usage(output_tokens=22))
    assert log.feeds.total_usage() == everything
    for by, key in (("day", today), ("model", "scripted-1"), ("provider", "scripted")):
        [each] = log.feeds.usage(by)
        assert (each.key, each.replies, each.untold, each.usage) == (key, 4, 1, everything.usage)
    expected = {"main": (2, 15), "other": (2, 7)}
    assert {each.key: (each.replies, each.usage.output_tokens) for each in log.feeds.usage("bookmark")} == expected
    roots = {log.ancestry(name)[0].id: sums for name, sums in expected.items()}
    assert {each.key: (each.replies, each.usage.output_tokens) for each in log.feeds.usage("thread")} == roots


USED = [
    TurnFilter(model="great-*"),
    TurnFilter(model="small"),
    TurnFilter(model="*"),
    TurnFilter(model="none"),
    TurnFilter(role="assistant"),
    TurnFilter(role="user"),
    TurnFilter(since=DAY + timedelta(days=3)),
    TurnFilter(until=DAY + timedelta(days=3, hours=1)),
    TurnFilter(since=DAY + timedelta(days=1), until=DAY + timedelta(days=5), model="small"),
    TurnFilter(since=DAY + timedelta(days=3), until=DAY + timedelta(days=3, microseconds=1)),
]


def of_usage(log: TurnLog) -> None:
    """Record turns of some times and models, some of which say what they used, in threads with forks and merges."""
    source = random.Random(3)
    ids: list[str] = []
    with log.group() as group:
        for number in range(80):
            parents = source.sample(ids, min(len(ids), source.choice([0, 1, 1, 1, 2])))
            role = source.choice(["user", "assistant"])
            model = source.choice(MODELS) if role == "assistant" else None
            usage = source.choice([None, {"input_tokens": number, "output_tokens": source.randrange(9)}])
            said = DAY + timedelta(
                days=source.randrange(7), hours=source.choice([0, 1]), microseconds=source.choice([0, 1])
            )
            turn = group.add_turn(
                str(number),
                role=role,
                continues=parents,
                bookmark=False,
                reply=None if model is None else ReplyFacts(model=model, usage=usage),
                origin=Origin(format="ours", ids=[str(number)], timestamp=said.isoformat()),
            )
            ids.append(turn)


def test_usage_of_a_time_or_a_model_adds_up(log: TurnLog) -> None:
    """To the microsecond, and also where threads fork and merge: as the turns that are found say themselves."""
    of_usage(log)
    roots = {
        turn.id: {each.id for each in log.ancestry(turn.id) if not each.meta.continues} for turn in log.latest(None)
    }
    for which in USED:
        check_usage(log, which, roots)


def check_usage(log: TurnLog, which: TurnFilter, roots: Mapping[str, set[str]]) -> None:
    """See that what replies of a filter used adds up, by all that it can be asked for. `roots` are those of turns."""
    wanted = [turn for turn in log.latest(None, which=which) if turn.role == "assistant"]

    def day(turn: Turn) -> list[str]:
        return [str(turn.meta.origin and turn.meta.origin.timestamp)[:10]]

    def check(by: By | Sequence[By], keys: Callable[[Turn], Iterable[object]]) -> None:
        expected: dict[object, list[int]] = {}
        for turn in wanted:
            used = turn.meta.usage or Usage()
            counts = (1, int(used == Usage()), used.input_tokens, used.output_tokens)
            for key in keys(turn):
                sums = expected.get(key, [0, 0, 0, 0])
                expected[key] = [one + more for one, more in zip(sums, counts, strict=True)]
        found = log.feeds.usage(by, which=which)
        order = [[(key is not None, key or "") for key in each.keys] for each in found]
        assert order == sorted(order)
        assert {
            each.key if isinstance(by, str) else each.keys: [
                each.replies,
                each.untold,
                each.usage.input_tokens,
                each.usage.output_tokens,
            ]
            for each in found
        } == expected, which

    check("model", lambda turn: [turn.meta.model])
    check("day", day)
    check("thread", lambda turn: roots[turn.id])
    check(["day", "model"], lambda turn: [(*day(turn), turn.meta.model)])
    check(("model", "thread"), lambda turn: [(turn.meta.model, root) for root in roots[turn.id]])
    check(["thread"], lambda turn: [(root,) for root in roots[turn.id]])
    total = log.feeds.total_usage(which=which)
    assert total.replies == len(wanted)
    assert total.usage.input_tokens == sum((turn.meta.usage or Usage()).input_tokens for turn in wanted)


def test_usage_of_what_is_no_filter_is_refused(log: TurnLog) -> None:
    """Nothing of it gets into a statement."""
    wrong: Any = {"model": "m"}
    for method in (log.feeds.usage, log.feeds.total_usage):
        with pytest.raises(MetaError, match=r"^which: expected TurnFilter, got dict$"):
            method(which=wrong)


def test_counts_that_no_reply_has_are_bounded(log: TurnLog) -> None:
    """Somebody else's log may have them, and the sum of all must be one that an engine can make."""
    log.add_turn("q", bookmark="main")
    for count in (2**63, 2**62, 2**62, 7):
        facts = ReplyFacts(model="m", usage={"input_tokens": count})
        log.add_turn("a", role="assistant", continues="main", reply=facts)
    assert log.feeds.total_usage().usage.input_tokens == 3 * TOKENS_MAX + 7


@pytest.mark.parametrize("by", ["(select group_concat(name) from sqlite_master)", "stream", "Day", "", ["day", "x"]])
def test_usage_is_by_what_is_known(log: TurnLog, by: Any) -> None:
    """Nothing else gets into a statement."""
    with pytest.raises(MetaError, match="one of day, model, provider, thread, bookmark"):
        log.feeds.usage(by)


@pytest.mark.parametrize("by", [None, 5, [5], [], ["day", "day"], {"day": 1}])
def test_usage_is_by_some_things_each_once(log: TurnLog, by: Any) -> None:
    """Or by one, which is a text."""
    with pytest.raises(MetaError, match=r"^by(\[0\])?: expected "):
        log.feeds.usage(by)


def test_reply_after_a_merge_counts_in_both_threads(log: TurnLog) -> None:
    """And one before it in its own."""
    one, two = log.add_turn("one", bookmark="one"), log.add_turn("two", bookmark="two")
    run(log, Scripted(say("first", tokens=1)), continues="one")
    merge = log.add_turn("merge", continues=["one", "two"], bookmark="one")
    run(log, Scripted(say("second", tokens=2)), continues=merge.id)
    tokens = {each.key: each.usage.output_tokens for each in log.feeds.usage("thread")}
    assert tokens == {one.id: 3, two.id: 2}
    assert log.feeds.total_usage().usage.output_tokens == 3


def test_erased_reply_keeps_its_tokens(log: TurnLog) -> None:
    """But not its bookmark, as after a rebuild."""
    run(log, Scripted(say("Done.", tokens=9)), bookmark="main")
    assert [each.key for each in log.feeds.usage("bookmark")] == ["main"]
    log.erase(turn=log.turn("main").id, reason="asked")
    [each] = log.feeds.usage("bookmark")
    assert (each.key, each.usage.output_tokens) == (None, 9)


def test_replies_of_another_log_are_under_no_bookmark_of_this_one(log: TurnLog) -> None:
    """Also where theirs has its name: neither sums nor followers take them for its own."""
    with TurnLog.open("memory://") as other:
        run(other, Scripted(say("Theirs.", tokens=5)), bookmark="main")
        theirs = io.BytesIO()
        other.export(theirs)
    run(log, Scripted(say("Mine.", tokens=9)), bookmark="main")
    theirs.seek(0)
    log.import_turnlog(theirs)
    tokens = {each.key: each.usage.output_tokens for each in log.feeds.usage("bookmark")}
    assert tokens == {None: 5, "main": 9}
    assert sum(1 for _ in log.events(bookmark="main", topics=["gpt.turn"])) == 2


def test_tools_tell_calls_results_and_errors(log: TurnLog) -> None:
    """A call without a result yet, or whose result was erased, has none."""

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    def fail() -> None:
        """Fail."""
        raise ValueError("no")

    adapter = Scripted(call(("add", {"a": 1, "b": 2}), ("fail", {})), call(("add", {"a": 3, "b": 4})), say("Done."))
    run(log, adapter, bookmark="main", tools=[add, fail])
    adding, failing = log.feeds.tools()
    assert (adding.name, adding.calls, adding.results, adding.errors) == ("add", 2, 2, 0)
    assert adding.mean_ms is not None
    assert (failing.name, failing.calls, failing.results, failing.errors) == ("fail", 1, 1, 1)
    results = [turn.id for turn in log.ancestry("main") if turn.meta.role == "user"][-1]
    log.erase(turn=results, reason="asked")
    assert log.feeds.tools()[0].results < adding.results
    log.erase(thread=log.turn("main").id, reason="asked")
    assert log.feeds.tools() == []


def test_calls_with_one_id_have_each_their_own_results(log: TurnLog) -> None:
    """In one reply, whatever turns their results are in, in forks, and where an id comes again."""

    def calls(*names: str) -> str:
        asked = [{"type": "tool_use", "id": "c", "name": name, "input": {}} for name in names]
        return log.add_turn(asked, role="assistant", continues="main").id

    def results(*errors: bool, after: str = "main") -> None:
        log.add_turn(
            [{"type": "tool_result", "tool_use_id": "c", "content": "", "is_error": each} for each in errors],
            continues=after,
        )

    log.add_turn("Look.", bookmark="main")
    calls("look", "look")
    results(False, True)
    forked = calls("first", "second")
    results(False)
    results(True)
    results(False, False, after=forked)
    calls("once")
    results(True, False)
    assert {each.name: (each.calls, each.results, each.errors) for each in log.feeds.tools()} == {
        "look": (2, 2, 1),
        "first": (1, 2, 0),
        "second": (1, 2, 1),
        "once": (1, 2, 1),
    }


def test_tools_of_one_reply_took_the_time_that_each_was_at_work(log: TurnLog) -> None:
    """And not that of the slowest, for which the turn with their results waits; what was called again, all of it."""
    tries: list[int] = []

    def fast() -> str:
        """Return at once."""
        return "fast"

    def slow() -> str:
        """Return once the other one has ended, or fail."""
        next(event for event in log.events(follow=True) if event.header.topic == "gpt.tool_end")
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("not yet")
        return "slow"

    policy: dict[str, Any] = {"on_tool_error": "retry", "tool_retry_wait_s": 0.001}
    run(log, Scripted(call(("fast", {}), ("slow", {})), say("Done.")), tools=[fast, slow], **policy)
    took: dict[int, list[int]] = {0: [], 1: []}
    for event in log.events(topics="gpt.tool_end"):
        end = metadata(event)
        took[end["block"]].append(end["duration_ms"])
    assert (len(took[0]), len(tries)) == (1, len(took[1]))
    means = {each.name: each.mean_ms for each in log.feeds.tools()}
    assert means == {"fast": sum(took[0]), "slow": sum(took[1])}


def test_what_came_to_no_tool_is_no_call(log: TurnLog) -> None:
    """It was denied, answered in its place, or there is no such tool. What was asked for again, and made, is a call."""

    def look() -> str:
        """Look."""
        return "seen"

    def denying(asked: ToolUse) -> Any:
        return "I have looked" if asked.id == "answer" else False

    run(log, Scripted(call(("look", {}), ("nope", {})), say("Done.")), bookmark="main", tools=[look], approve="never")
    [asked] = [turn.id for turn in log.ancestry("main") if turn.meta.role == "assistant"][:1]
    answered = _use("look", "answer")
    log.add_turn([answered], role="assistant", continues="main")
    run(log, Scripted(say("Done.")), None, continues="main", tools=[look], approve="ask", on_approval=denying)
    counted = {each.name: msgspec.structs.astuple(each)[1:] for each in log.feeds.tools()}
    assert counted == {"look": (0, 0, 0, None, 2), "nope": (0, 0, 0, None, 1)}
    run(log, Scripted(say("Done.")), None, continues=asked, bookmark=False, tools=[look])
    looked, nothing = log.feeds.tools()
    assert (looked.name, looked.calls, looked.not_called, nothing.not_called) == ("look", 1, 1, 1)
    results = log.turn("main").continues[0]
    log.erase(turn=results, reason="asked")
    assert [(each.calls, each.not_called) for each in log.feeds.tools()] == [(1, 1), (0, 1)]


def test_what_another_log_says_of_a_call_does_not_count(log: TurnLog) -> None:
    """Not even that it was denied."""
    log.add_turn([_use("look", "call")], role="assistant", bookmark="main")
    with TurnLog.open("memory://") as other:
        for source, target in ((log, other), (other, log)):
            exported = BytesIO()
            source.export(exported)
            target.import_turnlog(BytesIO(exported.getvalue()))
            if target is other:
                run(other, Scripted(say("Done.")), None, continues="main", tools=[], approve="never")
        assert [each.not_called for each in other.feeds.tools()] == [1]
    assert [(each.calls, each.not_called) for each in log.feeds.tools()] == [(1, 0)]


def test_imported_tools_took_the_time_that_their_source_says(log: TurnLog) -> None:
    """And not the time in which their rows were imported; where it says none, none is known."""
    for times in (("2026-01-01T10:00:00Z", "2026-01-01T10:00:07.5Z"), ("2026-01-01T10:00:00Z", None), (None, None)):
        call, result = (Origin(format="ours", ids=[f"{times} {at}"], timestamp=time) for at, time in enumerate(times))
        log.add_turn([_use("timed", "call")], role="assistant", bookmark="main", origin=call)
        answer = [{"type": "tool_result", "tool_use_id": "call", "content": "x"}]
        log.add_turn(answer, continues="main", origin=result)
    [timed] = log.feeds.tools()
    assert (timed.calls, timed.results, timed.mean_ms) == (3, 3, 7500)


def test_ids_of_calls_may_be_of_any_length(log: TurnLog) -> None:
    """Also of more than an index of PostgreSQL takes."""
    noise = random.Random(1).randbytes(5000).hex()
    for name, id in (("first", noise), ("second", noise[:-1]), ("third", noise[:200])):
        log.add_turn([_use(name, id)], role="assistant", bookmark="main")
        if name != "second":
            log.add_turn([{"type": "tool_result", "tool_use_id": id, "content": "x"}], continues="main")
    assert {each.name: each.results for each in log.feeds.tools()} == {"first": 1, "second": 0, "third": 1}


def test_a_result_is_of_the_call_that_it_answers(log: TurnLog) -> None:
    """Models of some providers call each first call `call_1`, in every thread and every step."""

    def result(call: str = "call_1", **facts: Any) -> list[dict[str, Any]]:
        return [{"type": "tool_result", "tool_use_id": call, "content": "x", **facts}]

    for name, tool in (("a", "look"), ("b", "find")):
        log.add_turn("Go.", bookmark=name)
        for _ in range(3):
            log.add_turn([_use(tool), _use("both", "call_2")], role="assistant", continues=name)
            log.add_turn([*result(), *result("call_2")], continues=name)
    forked = log.add_turn([_use("look")], role="assistant", continues="a")
    other = log.add_turn([_use("find")], role="assistant", continues="b")
    for turn, is_error in ((forked, True), (forked, False), (other, False)):
        log.add_turn(result(is_error=is_error), continues=turn.id)
    log.add_turn([_use("look"), _use("late", "call_9")], role="assistant", bookmark="c")
    log.add_turn(result(), continues="c")
    log.add_turn(result("call_9"), continues="c")
    log.add_turn(result("none"), continues="c")
    sums = {each.name: (each.calls, each.results, each.errors) for each in log.feeds.tools()}
    assert sums == {"both": (6, 6, 0), "look": (5, 6, 1), "find": (4, 4, 0), "late": (1, 1, 0)}


def _use(name: str, call: str = "call_1") -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": {}}


# --------------------------------------------------------------------------------------------------------- all of them


def test_rebuilding_gives_what_folding_gave(tmp_path: Path) -> None:
    """Row by row, after runs, erasures and forks in any order."""
    source = random.Random(4)
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("begin", bookmark="main")
        for number in range(40):
            if source.random() < 0.3:
                adapter = Scripted(call(("add", {"a": number, "b": 2})), say(f"Done {number}.", tokens=number))
                run(log, adapter, continues="main", tools=[])
            else:
                log.add_turn(f"words {number} and more", continues="main", id=None)
            if source.random() < 0.2:
                turns = [turn.id for turn in log.ancestry("main")]
                log.erase(turn=source.choice(turns), reason="asked")
                if not log.bookmarks.all():
                    log.bookmarks.set("main", turns[-1])
            if source.random() < 0.3:
                log.feeds.run()
        log.feeds.run()
        with log.feeds.target.reader() as db:
            before = _tables(log, db)
        for each in log.feeds.projections:
            assert log.feeds.rebuild(each.name).lag == 0
        with log.feeds.target.reader() as db:
            assert _tables(log, db) == before
            db.execute("INSERT INTO search_words (search_words, rank) VALUES ('integrity-check', 1)")


def _tables(log: TurnLog, db: Any) -> dict[str, list[Any]]:
    names = [name for each in log.feeds.projections for name in each.tables]
    return {name: db.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall() for name in names} | {
        "words": db.execute("SELECT rowid FROM search_words WHERE search_words MATCH 'words' ORDER BY rowid").fetchall()
    }


def test_existing_log_gains_them(tmp_path: Path) -> None:
    """By building them; where nobody asked, nothing is made. A file that was removed is made again."""
    path = tmp_path / "log.db"
    beside = path.with_name(path.name + SUFFIX)
    with TurnLog.open(f"sqlite:///{path}") as log:
        turn = log.add_turn("words")
        other = log.add_turn("other")
        log.erase(turn=other.id, reason="asked")
        assert not beside.exists()
        assert found(log, "words") == [turn.id]
        assert {each.stat().st_mode & 0o777 for each in tmp_path.glob(f"{beside.name}*")} == {0o600}
    for each in tmp_path.glob(f"{beside.name}*"):
        each.unlink()
    with TurnLog.open(f"sqlite:///{path}") as log:
        assert found(log, "words") == [turn.id]


def test_paused_projection_is_told(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """By who asks it, with what to do."""
    turn = log.add_turn("words")

    def fold(self: Search, db: Any, event: Any) -> None:
        raise ValueError("cannot be indexed")

    with monkeypatch.context() as patch:
        patch.setattr(Search, "fold", fold)
        with pytest.raises(StoreError, match=rf"paused at event '{turn.id}' \(ValueError: cannot be indexed\)"):
            log.feeds.search("words")
    log.feeds.skip("search", "as a test")
    assert log.feeds.search("words") == []
    [search] = [each for each in log.feeds.status() if each.name == "search"]
    assert [skip.reason for skip in search.skipped] == ["as a test"]
    assert log.feeds.rebuild("search").error is None


def test_coroutines_have_them_too(log: TurnLog) -> None:
    """With the same arguments."""

    async def go() -> None:
        here = AsyncTurnLog(log)
        turn = await here.add_turn("words", bookmark="main")
        assert [each.turn for each in await here.feeds.search("words", thread="main")] == [turn.id]
        assert await here.feeds.usage("model") == []
        assert {status.lag for status in await here.feeds.run()} == {0}

    asyncio.run(go())


def test_a_store_behind_a_link_has_one_index(tmp_path: Path) -> None:
    """Beside the file that the link leads to, unless there is one beside the link: who began there goes on there."""
    (tmp_path / "real").mkdir()
    link, file = tmp_path / "link.db", tmp_path / "real" / "log.db"
    link.symlink_to(file)
    with TurnLog.open(f"sqlite:///{file}") as log:
        turn = log.add_turn("a secret river")
    with TurnLog.open(f"sqlite:///{link}") as log:
        assert log.feeds.search("river")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.db", "real"]
    with TurnLog.open(f"sqlite:///{file}") as log:
        assert log.erase(turn=turn.id, reason="asked").remains is None
    assert not any(b"river" in each.read_bytes() for each in file.parent.iterdir())
    (tmp_path / "real" / "log.db-projections").rename(tmp_path / "link.db-projections")
    with TurnLog.open(f"sqlite:///{link}") as log:
        assert log.feeds.search("river") == []
    assert not (tmp_path / "real" / "log.db-projections").exists()


@pytest.mark.parametrize("beginning", [0, 4096])
def test_an_index_that_is_damaged_says_what_to_do(tmp_path: Path, beginning: int) -> None:
    """It is made again from the log; an erasure says so too."""
    path = tmp_path / "log.db-projections"
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        turn = log.add_turn("a secret river")
        assert log.feeds.search("river")
    with path.open("r+b") as file:
        file.seek(beginning)
        file.write(b"\xa5" * 3000)
    advice = rf"'{path}' is damaged, or none \(.*\): if it is one, remove it, .*, and it is built again from the log"
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        with pytest.raises(StoreError, match=advice):
            log.feeds.search("river")
        assert re.search(advice, log.erase(turn=turn.id, reason="asked").remains or "")
    path.unlink()
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        assert log.feeds.search("river") == []
        assert log.finish_erasing() is None
