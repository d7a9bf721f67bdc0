"""Search, usage and tool activity of a log on PostgreSQL: what they find there is what they find on SQLite."""

import io
import random
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from platformdirs import user_cache_path, user_data_path
from psycopg import sql
from tests.agent.running import run
from tests.agent.scripted import Scripted, call, say
from tests.servers.postgres import Postgres, PostgresServer
from tests.servers.roles import Roles

from turnlog import TurnFilter, TurnLog
from turnlog.errors import StoreReadOnlyError
from turnlog.feeds.postgres_log import LogTarget, schema_of
from turnlog.feeds.sinks import JSONLines
from turnlog.feeds.words import Words
from turnlog.store.postgres import PostgresStore

Pair = tuple[TurnLog, TurnLog]

SCHEMA = "turnlog_projections"
TEXTS = {
    "fox": "The quick brown Fox jumps over the lazy dög",
    "quickly": "A fox, quickly",
    "code": "C++ and foo_bar(baz) at https://example.org/a-b?c=d 1e5 3.14 x²y",
    "accents": "Crème brûlée, cre\u0300me; ÅNGSTRÖM naïve Đặng İstanbul straße STRASSE",
    "others": "中文 日本語テキスト العربية עברית Ελληνικά ΣΊΣΥΦΟΣ русский ёлка 한국어",
    "unspaced": "東京タワーは高い。か\u3099 ｶﾞ 〇々 ภาษาไทยที่ 汉字 word字word 字\u0301e\u0301字 𠮷野家",
    "marks": "😀 smile 👍🏽 e\u0345x \u0301start a\u200bb c\u00add e\ufefff \ue000private",
    "nul": "before\0after \x01 and \x7f end",
    "quotes": "it's \\ 'quoted' \"twice\" & | ! <-> :* (x) %s ? %%",
    "repeated": "the river " * 400 + "the last bridge",
    "far": " ".join(f"w{number % 900}" for number in range(20_000)) + " far away bridge",
    "long": "x" * 150 + " " + "x" * 149 + "y " + "z" * 3000,
    "rare": " ".join(f"{number:x}{'q' * 40}" for number in range(30_000)) + " very last otter",
    "empty": "!?",
}
QUERIES = (
    *("fox", "FOX dog", '"brown fox"', '"fox brown"', "quick", "quick*", "qui* fo*", '"quick br*"', "quick-br*"),
    *("c", "C++", "foo_bar", '"foo bar baz"', "bar baz", "1e5", "3.14", '"3 14"', "x²y", "x2y", "example.org/a", "a-b"),
    *("creme", "brulee", "angstrom", "ångström", "naive", "dang", "istanbul", "i*", "strasse", "straße", "stras*"),
    *(
        "中文",
        "日本語テキスト",
        "日本*",
        "العربية",
        "עברית",
        "ελληνικα",
        "σισυφος",
        "ΣΊΣΥΦΟΣ",
        "елка",
        "ёлка",
        "한국어",
    ),
    *(
        "東京",
        "タワー",
        "高",
        "東京タワー",
        '"タワーは 高い"',
        "高い*",
        "か",
        "が",
        "ｶ",
        "々",
        "ไทย",
        "ที่",
        "ท",
        "汉",
        "字",
    ),
    *("字word", "word字", "wo*", "字é", "é字", "𠮷", "𠮷野", "語", "中 語", '"日本語 テキスト"'),
    *("smile", "smile 😀", "ex", "start", "ab", "b", "cd", "d", "ef", "private", "\ue000private"),
    *("before", "after", '"before after"', "end", "before\0after"),
    *("it's", "s", '"it s quoted"', "quoted'", "'quoted'", "twice", "(x)", "%s", "s ?", "a\\b", "x <-> quoted", "s:*"),
    *('"the river"', '"river the"', '"the last bridge"', '"river the last"', '"the river the river the river"', "last"),
    *('"far away"', '"far away bridge"', "w899 far", '"w199 far"', '"w198 far"', "far brid*", "bridge"),
    *("x" * 150, "x" * 149, "x" * 149 + "y", "x" * 120 + "*", "x" * 90 + "*", "z" * 3000, "z" * 2999, "z*"),
    *('"very last otter"', "otter", "ott*", "752f" + "q" * 40, "752f" + "q" * 39, "752f" + "q" * 39 + "*", "752*"),
    *("nothing", "fox nothing", "ⅷ", "½", "٣", "²"),
)


@pytest.fixture(scope="module")
def pair(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Give a log on SQLite, and the same log on PostgreSQL."""
    url = postgres.create_database()
    with ExitStack() as stack:
        stack.callback(postgres.drop_database, url)
        here = stack.enter_context(TurnLog.open(f"sqlite:///{tmp_path_factory.mktemp('pair')}/log.db"))
        there = stack.enter_context(TurnLog.open(url))
        here.add_turn("begin", bookmark="main")
        for name, text in TEXTS.items():
            here.add_turn(text, bookmark=name)
        talk(here)
        copy(here, there)
        yield here, there


def copy(here: TurnLog, there: TurnLog) -> None:
    """Make an empty log the same as another one."""
    file = io.BytesIO()
    here.export(file)
    file.seek(0)
    there.import_turnlog(file)


def talk(log: TurnLog) -> None:
    """Record replies of models, calls of tools, erasures and a merge."""
    source = random.Random(7)

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    for number in range(12):
        adapter = Scripted(call(("add", {"a": number, "b": 2}), ("nope", {})), say(f"Fox {number}.", tokens=number))
        run(log, adapter, continues="main", tools=[add], model=source.choice(["one", "two"]))
    log.add_turn("merge", continues=["main", "fox"], bookmark="merged")
    run(log, Scripted(say("Merged.", tokens=100)), continues="merged")
    for turn in source.sample([turn.id for turn in log.ancestry("main")], 6):
        log.erase(turn=turn, reason="asked")


def found(log: TurnLog, query: str, **wanted: Any) -> list[tuple[str, str]]:
    """Return the turns that are found, and their snippets, by id."""
    return sorted((each.turn, each.snippet) for each in log.feeds.search(query, limit=1000, **wanted))


# -------------------------------------------------------------------------------------------------------------- search


def test_both_engines_find_the_same(pair: Pair) -> None:
    """Whatever is asked for: words, phrases, beginnings, in any script, in long texts; with the same snippets."""
    here, there = pair
    finds = 0
    for query in QUERIES:
        expected, actual = found(here, query), found(there, query)
        assert [turn for turn, _ in actual] == [turn for turn, _ in expected], query
        assert actual == expected, query
        finds += bool(expected)
    assert finds > 70


def test_both_engines_take_the_same_words(pair: Pair) -> None:
    """Any character, alone and within words: what is made of it in Python is what FTS5 makes of it."""
    source = random.Random(3)
    codes = [code for code in range(1, 0x3000) if not 0xD800 <= code < 0xE000]
    codes += source.sample(range(0x3000, 0xD800), 200) + source.sample(range(0xE000, 0x20000), 400)
    text = " ".join(f"a{chr(code)}b {chr(code)}" for code in codes)
    words = Words()
    with pair[0].feeds.target.transaction() as db:
        db.execute(
            "CREATE VIRTUAL TABLE temp.one USING fts5(text, content='', tokenize='unicode61 remove_diacritics 2')"
        )
        db.execute("CREATE VIRTUAL TABLE temp.each USING fts5vocab(temp, one, instance)")
        db.execute("INSERT INTO temp.one (rowid, text) VALUES (1, ?)", (text,))
        expected = [word for (word,) in db.execute("SELECT term FROM temp.each ORDER BY offset").fetchall()]
        db.execute("DROP TABLE temp.each")
        db.execute("DROP TABLE temp.one")
    assert words.of(text) == expected
    assert words.of("ö" * 20_000) == ["o" * 20_000]
    assert words.of("中" * 20_000) == ["中" * (32768 // 3)]
    words.close()


def test_turns_are_picked_and_sorted_alike(pair: Pair) -> None:
    """By thread, role, model and time; the newest first, in one order."""
    here, there = pair
    since = datetime.fromisoformat(here.feeds.search("fox", newest=True, limit=5)[-1].time)
    for wanted in (
        {"thread": "main"},
        {"thread": "merged"},
        {"thread": "fox"},
        {"which": TurnFilter(role="assistant")},
        {"which": TurnFilter(role="user")},
        {"which": TurnFilter(model="one")},
        {"which": TurnFilter(model="*o*")},
        {"which": TurnFilter(model="none")},
        {"which": TurnFilter(since=since)},
        {"which": TurnFilter(until=since)},
        {"which": TurnFilter(since=since, role="assistant", model="two"), "thread": "main"},
        {"which": TurnFilter(until=datetime(2020, 1, 1, tzinfo=UTC))},
    ):
        assert found(there, "fox", **wanted) == found(here, "fox", **wanted), wanted
    for limit in (1, 3, 100):
        assert there.feeds.search("fox", newest=True, limit=limit) == here.feeds.search("fox", newest=True, limit=limit)


def test_index_is_used(pair: Pair) -> None:
    """A search does not read all turns."""
    target = pair[1].feeds.target
    pair[1].feeds.search("fox")
    with target.transaction() as db:
        db.execute("SET LOCAL enable_seqscan = off")
        plan = db.execute(
            "EXPLAIN SELECT 1 FROM search_turns t WHERE t.words @@ CAST(? AS tsquery) OR t.is_partial", ("'fox'",)
        ).fetchall()
    assert "search_turns_words" in str(plan)
    assert "search_turns_partial" in str(plan)


# --------------------------------------------------------------------------------------------------- usage and the rows


def test_both_engines_count_the_same(pair: Pair) -> None:
    """By everything, and of tools."""
    here, there = pair
    for by in ("day", "model", "provider", "thread", "bookmark"):
        assert there.feeds.usage(by) == here.feeds.usage(by), by
        assert here.feeds.usage(by)
        for which in (TurnFilter(model="o*"), TurnFilter(since=datetime(2026, 1, 1, tzinfo=UTC), model="two")):
            assert there.feeds.usage(by, which=which) == here.feeds.usage(by, which=which), (by, which)
            assert here.feeds.usage(by, which=which)
    assert there.feeds.total_usage() == here.feeds.total_usage()
    assert there.feeds.tools() == here.feeds.tools()
    assert {each.name for each in here.feeds.tools()} == {"add", "nope"}


def tables(log: TurnLog) -> dict[str, list[Any]]:
    """Return the rows of all tables, sorted."""
    names = [name for each in log.feeds.projections for name in each.tables]
    with log.feeds.target.reader() as db:
        return {name: sorted(db.execute(f"SELECT * FROM {name}").fetchall(), key=str) for name in names}


def test_rows_are_the_same(pair: Pair) -> None:
    """But for the columns that only PostgreSQL has."""
    here, there = (tables(log) for log in pair if log.feeds.run())
    found, expected = ([row[:7] for row in rows.pop("search_turns")] for rows in (there, here))
    assert found == expected
    assert there == here
    assert len(here["tool_calls"]) > 10


def test_rebuilding_gives_what_folding_gave(kept_postgres_url: str) -> None:
    """Row by row, after erasures between runs."""
    with TurnLog.open(kept_postgres_url) as log:
        log.add_turn("begin", bookmark="main")
        for number in range(4):
            adapter = Scripted(call(("add", {"a": number, "b": 2})), say(f"Done {number}.", tokens=number))
            run(log, adapter, continues="main", tools=[])
            log.feeds.run()
            log.erase(turn=log.ancestry("main")[-1 - number % 3].id, reason="asked")
        log.feeds.run()
        before = tables(log)
        for each in log.feeds.projections:
            assert log.feeds.rebuild(each.name).lag == 0
        assert tables(log) == before
        assert len(before["search_turns"]) > 5


# -------------------------------------------------------------------------------------------------------------- erasing


def test_erased_turns_are_found_no_more(own_postgres: PostgresServer) -> None:
    """And nothing of them is left in the files of the index, once erasing is finished."""
    url = own_postgres.create_database()
    with TurnLog.open(url) as log:
        turn = log.add_turn("the secret Zebulon told, and zebuline things", bookmark="main")
        log.add_turn("kept words", continues="main")
        assert found(log, "zebulon")
        log.erase(turn=turn.id, reason="asked")
        assert found(log, "zebulon") == []
        assert len(found(log, "kept")) == 1
        assert log.finish_erasing() is None
        assert [status.has_traces for status in log.feeds.run()] == [False] * len(log.feeds.projections)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
    raw = b"".join(path.read_bytes() for path in (own_postgres.folder / "data" / "base").rglob("*") if path.is_file())
    assert b"kept words" in raw
    assert b"zebul" not in raw.lower()


def test_erasure_makes_no_tables(kept_postgres_url: str) -> None:
    """Where nobody has asked for a projection there is nothing to reach."""
    with TurnLog.open(kept_postgres_url) as log:
        turn = log.add_turn("one")
        log.erase(turn=turn.id, reason="asked")
        with psycopg.connect(kept_postgres_url) as connection:
            rows = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (SCHEMA,)).fetchall()
        assert rows == []


# ------------------------------------------------------------------------------------------------------- who, and where


@pytest.fixture
def roles(postgres_url: str) -> Iterator[Roles]:
    """Give roles in the database of the test."""
    roles = Roles(postgres_url)
    yield roles
    roles.drop()


def test_tables_are_the_owners(roles: Roles, postgres_url: str) -> None:
    """Whoever made them; also where the server gives others rights by default."""
    owner, other = roles.make("keeper"), roles.make("other")
    roles.run("GRANT CREATE ON DATABASE " + "{} TO {}", postgres_url.rpartition("/")[2], owner)
    roles.run("ALTER DEFAULT PRIVILEGES FOR ROLE {} GRANT ALL ON SCHEMAS TO {}", owner, other)
    with TurnLog.open(roles.url_of(owner)) as log:
        log.add_turn("words")
    # A superuser asks first.
    with TurnLog.open(postgres_url) as log:
        assert len(found(log, "words")) == 1
    with TurnLog.open(roles.url_of(owner)) as log:
        log.add_turn("more words")
        assert len(found(log, "words")) == 2
        assert log.feeds.rebuild("search").error is None
        assert isinstance(log.feeds.target, LogTarget)
    with psycopg.connect(postgres_url) as connection:
        owners = connection.execute(
            "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = %s::regnamespace", (SCHEMA,)
        ).fetchall()
        rights = connection.execute("SELECT has_schema_privilege(%s, %s, 'USAGE')", (other, SCHEMA)).fetchall()
    assert owners == [(f'"{owner}"',)]
    assert rights == [(False,)]
    assert not user_cache_path("turnlog").exists()


@pytest.mark.parametrize("may", ["read", "write"])
def test_others_have_an_index_of_their_own(roles: Roles, postgres_url: str, may: Any) -> None:
    """In a file in the cache folder, for its owner alone. What is erased goes out of it when it is next used."""
    role = roles.make("other")
    with TurnLog.open(postgres_url) as log:
        turn = log.add_turn("words and a secret")
        log.add_turn("more words")
        assert isinstance(log.store, PostgresStore)
        log.store.grant(role, may)
        with TurnLog.open(roles.url_of(role)) as theirs:
            assert len(found(theirs, "words")) == 2
            [file] = user_cache_path("turnlog").glob("logs/*-projections")
            assert file.stat().st_mode & 0o777 == 0o600
            log.erase(turn=turn.id, reason="asked")
            assert len(found(theirs, "words")) == 1
            theirs.feeds.run()
    raw = b"".join(path.read_bytes() for path in file.parent.iterdir())
    assert b"secret" not in raw


def test_owner_without_the_right_to_make_schemas_has_a_file(roles: Roles, postgres_url: str) -> None:
    """As where somebody else has made the schema of the log for it."""
    owner = roles.make("keeper")
    roles.run("CREATE SCHEMA turnlog AUTHORIZATION {}", owner)
    with TurnLog.open(roles.url_of(owner)) as log:
        log.add_turn("words")
        assert len(found(log, "words")) == 1
        assert len(list(user_cache_path("turnlog").glob("logs/*-projections"))) == 1
        with pytest.raises(StoreReadOnlyError, match="GRANT CREATE ON DATABASE"):
            LogTarget(log.store.url).reader().__enter__()


def test_standby_is_searched_too(own_postgres: PostgresServer) -> None:
    """With a file, because nothing can be made there."""
    standby = own_postgres.standby()
    with TurnLog.open(own_postgres.url()) as log:
        log.add_turn("words")
        log.feeds.run()
    with TurnLog.open(standby.url()) as log:
        assert len(found(log, "words")) == 1


@pytest.mark.parametrize("name", ["x", "My log", "ü" * 31, "y" * 63, "y" * 52])
def test_schema_has_the_name_of_the_log(name: str, kept_postgres_url: str) -> None:
    """However long that is: PostgreSQL would cut it to that of the log."""
    schema = schema_of(name)
    assert schema != name
    assert len(schema.encode()) <= 63
    url = f"{kept_postgres_url}?schema={name.replace(' ', '%20')}"
    with TurnLog.open(url) as log:
        log.add_turn("words")
        assert len(found(log, "words")) == 1
        with psycopg.connect(kept_postgres_url) as connection:
            table = sql.Identifier(schema, "search_turns")
            assert connection.execute(sql.SQL("SELECT COUNT(*) FROM {}").format(table)).fetchall() == [(1,)]


# --------------------------------------------------------------------------------------------- how far feeds have come


def feed_files() -> list[Path]:
    """Return the files in the user's data folder that say how far feeds have come."""
    return sorted(user_data_path("turnlog").glob("logs/*-feeds"))


def test_feeds_are_remembered_on_this_machine(kept_postgres_url: str, tmp_path: Path) -> None:
    """In a file of the log's own, whatever URL it is opened by."""
    with TurnLog.open(kept_postgres_url) as log:
        log.add_turn("one")
        log.feeds.feed(JSONLines(tmp_path / "events"), name="mine").run()
    [file] = feed_files()
    assert file.stat().st_mode & 0o777 == 0o600
    with TurnLog.open(f"{kept_postgres_url}?application_name=elsewhere") as log:
        assert [(each.name, each.position, each.lag) for each in log.feeds.all()] == [("mine", 2, 0)]
        log.feeds.remove("mine")
        assert log.feeds.all() == []
    assert feed_files() == [file]


def test_feed_that_began_on_an_empty_log_goes_on(kept_postgres_url: str, tmp_path: Path) -> None:
    """Where it has begun, though the log has got its identity since."""
    with TurnLog.open(kept_postgres_url) as log:
        sink = JSONLines(tmp_path / "events")
        log.feeds.feed(sink, name="mine").run()
        log.add_turn("one")
        log.feeds.feed(sink, name="mine").run()
    with TurnLog.open(kept_postgres_url) as log:
        assert [(each.name, each.position) for each in log.feeds.all()] == [("mine", 2)]
    assert len(feed_files()) == 1
