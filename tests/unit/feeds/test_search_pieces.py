"""Searching texts that are indexed in pieces: what is found is what is found where they are whole."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from turnlog import TurnFilter, TurnLog
from turnlog.feeds.postgres_log import LogTarget, PostgresSearch, PostgresSearchView
from turnlog.feeds.runner import Runner
from turnlog.feeds.search import PIECES_MAX, Filter, Search, SearchView, Term, bounds_of, terms_of
from turnlog.feeds.sqlite_target import SQLiteTarget
from turnlog.feeds.words import PIECE_CHARACTERS, WORD_BYTES_MAX, Words, indexed, pieces

PIECE = 64
VOCABULARY = ("a", "bö", "Ccc", "dd-e", "f_g", "水獭", "ｶﾞ", "รัก", "e\u0301t", "\ue000x", "😀", "hhhhhhhhhhhh")


class InPieces(Search):
    """The index of words, with pieces so short that most turns have several."""

    piece_characters = PIECE


class InPiecesOnPostgres(PostgresSearch):
    """The same on PostgreSQL."""

    piece_characters = PIECE


def texts(number: int) -> Iterator[str]:
    """Yield texts of words that repeat, from none to many of them."""
    source = random.Random(9)
    for _ in range(number):
        words = source.choices(VOCABULARY, k=source.choice([0, 1, 5, 20, 60, 200]))
        yield "".join(word + source.choice([" ", "\n", ", ", " \u0301"]) for word in words)


def terms(number: int) -> Iterator[str]:
    """Yield queries: words, beginnings and phrases, one to three of them."""
    source = random.Random(10)
    for _ in range(number):
        query: list[str] = []
        for _ in range(source.choice([1, 1, 2, 3])):
            words = source.choices(VOCABULARY[:-1], k=source.choice([1, 1, 2, 3]))
            query.append(f'"{" ".join(words)}"' if len(words) > 1 else words[0][:1] + source.choice(["*", ""]))
        yield " ".join([*query, source.choice(VOCABULARY[:-2])])


def has(words: Words, said: list[str], term: Term) -> bool:
    """Tell whether a term is in words, one after the other."""
    wanted = words.of(term.text)
    for at in range(len(said) - len(wanted) + 1):
        found = said[at : at + len(wanted)]
        last = found[-1].startswith(wanted[-1]) if term.is_beginning and found else found[-1:] == wanted[-1:]
        if found[:-1] == wanted[:-1] and last:
            return True
    return not wanted


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_what_is_found_is_in_the_words(engine: str, request: pytest.FixtureRequest) -> None:
    """Words in different pieces, phrases over a cut, beginnings, in any script, and nothing else."""
    kept_postgres_url = request.getfixturevalue("kept_postgres_url") if engine == "postgres" else None
    words = Words()
    with closing(words), TurnLog.open(kept_postgres_url or "memory://") as log:
        said = {log.add_turn(text).id: words.of(indexed(text)) for text in texts(60)}
        target = LogTarget(kept_postgres_url, "in_pieces") if kept_postgres_url else SQLiteTarget(":memory:")
        search = InPiecesOnPostgres(words) if kept_postgres_url else InPieces()
        with closing(target):
            [status] = Runner(log.store, target, [search]).run()
            assert (status.lag, status.error) == (0, None)
            finds = 0
            with target.transaction() as db:
                view = PostgresSearchView(words, db) if kept_postgres_url else SearchView(words, db)
                assert db.execute("SELECT COUNT(*) FROM search_turns WHERE position < 0").fetchall()[0][0] > 200
                for query in terms(80):
                    wanted = [term for term in terms_of(query) if words.of(term.text)]
                    expected = {
                        turn for turn, of_turn in said.items() if wanted and all(has(words, of_turn, t) for t in wanted)
                    }
                    found = view.find(query, Filter(limit=1000))
                    assert {each.turn for each in found} == expected, query
                    assert len(found) == len(expected)
                    assert all("\x02" in each.snippet for each in found), query
                    finds += len(found)
                    newest = view.find(query, Filter(newest=True, limit=5))
                    assert [each.global_position for each in newest] == sorted(
                        (each.global_position for each in found), reverse=True
                    )[:5]
            assert finds > 400


@pytest.mark.parametrize("size", [40, 64, 200, 1000])
def test_pieces_have_what_the_texts_have(size: int) -> None:
    """All of their words, and of each piece the last ones again."""
    words = Words()
    with closing(words):
        given = [*texts(80)]
        cut = [*pieces(given, size)]
        assert len(cut) > 20
        assert max(map(len, cut)) <= size
        said = words.of(indexed("\n".join(given)))
        at = 0
        for piece in cut:
            found = words.of(indexed(piece))
            while said[at : at + len(found)] != found:  # it begins with words that were in the one before
                at -= 1
                assert at >= 0
            at += len(found)
        assert at == len(said)


def test_texts_that_fit_are_one_piece() -> None:
    """Also none at all."""
    assert [*pieces([])] == [""]
    assert [*pieces(["a b", "", "c"])] == ["a b\n\nc"]
    assert [*pieces(["a" * 10, "b" * 10], 21)] == [f"{'a' * 10}\n{'b' * 10}"]


def test_of_a_very_long_word_the_beginning_is_kept() -> None:
    """As much of it as an index has, and all that stands around it."""
    text = (
        "before " + "ab" * PIECE_CHARACTERS + " between " + "ö" * WORD_BYTES_MAX + " behind " + "x " * 500_000 + "end"
    )
    words = Words()
    with closing(words):
        found = [word for piece in pieces([(text,)]) for word in words.of(piece)]
    assert [word for word in found if len(word) > 1] == [
        *("before", "ab" * (WORD_BYTES_MAX // 2), "between", "o" * WORD_BYTES_MAX, "behind", "end"),
    ]


def test_texts_are_cut_where_no_word_goes_on() -> None:
    """Behind whatever character that is: to FTS5, what stands on its two sides is in no word together."""
    codes = [code for code in range(1, 0x20000) if not 0xD800 <= code < 0xE000]
    cut = [chr(code) for code in codes if next(pieces([f"aaaa{chr(code)}bbbb"], 8)) == f"aaaa{chr(code)}"]
    assert len(cut) > 29_000
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE VIRTUAL TABLE texts USING fts5(text, tokenize='unicode61 remove_diacritics 2')")
        db.execute("CREATE VIRTUAL TABLE words USING fts5vocab(texts, row)")
        db.execute("INSERT INTO texts (text) VALUES (?)", (" ".join(indexed(f"a{each}b") for each in cut),))
        assert db.execute("SELECT cnt FROM words WHERE term IN ('a', 'b')").fetchall()[:2] == [(len(cut),)] * 2
        assert db.execute("SELECT term FROM words WHERE term LIKE 'a%b'").fetchall() == []


def test_large_turn_is_found_by_words_of_any_piece(tmp_path: Path) -> None:
    """And by a phrase over a cut; it is shown where the first word is, and gone when it is erased."""
    filler = "the quick brown fox jumps over the lazy dog " * 24_000
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        small = log.add_turn("An otter and a heron.", bookmark="main").id
        large = log.add_turn(f"otter {filler} heron {filler} bridge", continues="main").id
        for query, turns in (
            ("otter bridge", [large]),
            ("otter heron", [small, large]),
            ('"jumps over the lazy dog the quick brown fox jumps"', [large]),
            ('"dog heron" bri*', [large]),
            ('"heron dog"', []),
            ("otter nothing", []),
        ):
            assert sorted(each.turn for each in log.feeds.search(query)) == sorted(turns), query
        [each] = log.feeds.search("bridge heron")
        assert (each.global_position, each.role) == (3, "user")
        assert "the lazy dog  \x02heron\x03 the quick" in each.snippet
        assert each.snippet.startswith("…")
        assert len(log.feeds.search("heron", thread="main", which=TurnFilter(role="user"), limit=1)) == 1
        assert log.feeds.search("bridge", which=TurnFilter(role="assistant")) == []
        # The shorter text is the better match.
        assert [each.turn for each in log.feeds.search("otter heron")] == [small, large]
        log.erase(turn=large, reason="asked")
        with log.feeds.target.reader() as db:
            assert db.execute("SELECT position FROM search_turns").fetchall() == [(2,)]
        assert [each.turn for each in log.feeds.search("heron")] == [small]


def test_rows_of_a_turn_are_between_those_of_its_neighbours() -> None:
    """None is that of another turn."""
    for at in (1, 2, 1 << 40):
        first, last = bounds_of(at)
        assert last == -at * PIECES_MAX
        assert last - first == PIECES_MAX - 1
        assert bounds_of(at + 1)[1] == first - 1


class Older(Search):
    """The index as an older version had it: each turn whole."""

    version = 2
    piece_characters = 1 << 40


def test_index_of_an_older_version_is_built_anew(tmp_path: Path) -> None:
    """By the next search, in pieces."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        large = log.add_turn("otter " + "heron " * (PIECE_CHARACTERS // 4) + "bridge").id
        log.feeds.runner([Older()]).run()
        with log.feeds.target.reader() as db:
            assert db.execute("SELECT position FROM search_turns").fetchall() == [(2,)]
        assert [each.turn for each in log.feeds.search("otter bridge")] == [large]
        with log.feeds.target.reader() as db:
            assert db.execute("SELECT position FROM search_turns").fetchall() == [
                (-2 * PIECES_MAX - 1,),
                (-2 * PIECES_MAX,),
            ]
        assert log.feeds.status()[0].version == Search.version
