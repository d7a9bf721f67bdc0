"""Commands: what do the commands of turnlog take on a large log, and what did they take in another version?

`BEFORE_PYTHON=… AFTER_PYTHON=… python -m benchmarks.commands [--quick] [--write] [--only WORD] [--rounds N]`.

Each of the two is the Python of an environment with one version of turnlog. Without AFTER_PYTHON it is the Python that
runs this, without BEFORE_PYTHON the other version is left out. Each command is a process of its own; its processor time
and its peak memory are what the system counted for it. What is found is written to `benchmarks/results/commands.json`
with `--write`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from benchmarks import results
from benchmarks.data import Texts
from benchmarks.material import MODEL, ROLES, open_log
from benchmarks.measure import Figure, Report, Settings, cost, machine
from turnlog import TurnLog
from turnlog.events import Recorded
from turnlog.model import ReplyFacts
from turnlog.providers import get
from turnlog.record import plan_turn, turn_draft
from turnlog.sources import Sources
from turnlog.store import WriteTransaction

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "commands"
BEFORE, AFTER, IMPORTS = "before", "after", "imports"
BASELINE = ("-c", "import sqlite3, msgspec, rich, cyclopts")
"""What every command has to pay in any case, or nearly: the packages that it stands on."""

TURNS_EACH = 100
FORK_EVERY = 10
FORK_TURNS = 24
"""So many of the turns of a thread with a fork are on its other way."""

FORK_PLACE = (TURNS_EACH - FORK_TURNS) // 2 - 1
"""The position of the turn that both ways continue: a reply in the middle of the longer way."""

BOOKMARKS = 48
CALLS = 20
YEAR_MS = 365 * 24 * 3600 * 1000
TURN_MS = 30_000
"""Time between two turns of a thread."""

SLOW_S = 3.0
"""A command that takes longer than this is run less often."""

_NOT_THERE = ("unknown option", "unknown command")

_LAUNCHER = """
import os, sys, time
null = os.open(os.devnull, os.O_RDWR)
errors = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
given = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, errors, 2)]
start = time.perf_counter()
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ, file_actions=given)
_, status, used = os.wait4(child, 0)
wall_s = time.perf_counter() - start
unit = 1 if sys.platform == "darwin" else 1024
print(os.waitstatus_to_exitcode(status), wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss * unit)
"""
"""Starts the command and says what it took. Linux counts the memory of whoever starts a process as the peak of that
process, so a large one cannot start it."""


class Command(Struct, frozen=True):
    """A command as it is measured.

    Attributes:
        name: what the table calls it.
        arguments: what follows `turnlog`, with names of `_given` in braces.
        whole: whether it reads or writes a whole log, so that its time grows with the log; else it shows a page.
        removes: what is removed before each run, as patterns below the folder of the version.
    """

    name: str
    arguments: tuple[str, ...]
    whole: bool = False
    removes: tuple[str, ...] = ()


def _command(arguments: str, name: str = "", *, whole: bool = False, removes: tuple[str, ...] = ()) -> Command:
    return Command(name or arguments, tuple(arguments.split()), whole, removes)


COMMANDS = (
    _command("--version"),
    _command("--help"),
    _command("add A_short_question --bookmark short", "add, a new thread"),
    _command("add And_one_more --continues work-01", "add --continues BOOKMARK"),
    _command("document {folder}/document.txt --no-bookmark", "document, 1 KiB"),
    _command("bookmarks set moved {middle}", "bookmarks set"),
    _command("bookmarks"),
    _command("log"),
    _command("log work-01", "log BOOKMARK"),
    _command("log forked", "log BOOKMARK, with a fork"),
    _command("log --all -n 10"),
    _command("log --all --since 24h"),
    _command("log --all --role system -n 10", "log --all --role system, of which there are none"),
    _command("log --all", whole=True),
    _command("threads"),
    _command("threads -n 10"),
    _command("threads --role system", "threads --role system, of which there are none"),
    _command("show work-01", "show BOOKMARK"),
    _command("show {middle}", "show ID"),
    _command("cat {middle}", "cat ID"),
    _command("context work-01", "context BOOKMARK"),
    _command("context work-01 --json", "context BOOKMARK --json"),
    _command("ancestry work-01", "ancestry BOOKMARK"),
    _command("children {middle}", "children ID"),
    _command("stats"),
    _command("usage"),
    _command("usage --by thread"),
    _command("search river bridge", "search, two words"),
    _command("search the -n 10", "search, a frequent word"),
    _command("tail -n 10"),
    _command("replay called", "replay BOOKMARK"),
    _command("replay called --check", "replay BOOKMARK --check"),
    _command("request called", "request BOOKMARK"),
    _command("wire prepare --provider openai_chat --model m {folder}/window.json", "wire prepare, 100 turns"),
    _command("pointer list"),
    _command("provider list"),
    _command("mcp list"),
    _command("registers"),
    _command("hold list"),
    _command("keys list"),
    _command("feeds"),
    _command("projections list"),
    _command("projections status"),
    _command("seal --list"),
    _command("export work-02", "export BOOKMARK"),
    _command("export work-02 --format markdown", "export BOOKMARK --format markdown"),
    _command("import {guest}", "import, a new thread"),
    _command("import {folder}/guests/0.jsonl", "import, a thread that is there"),
    _command("checkpoint", "checkpoint, after some events"),
    _command("checkpoint list"),
    _command("prove work-02 --output {folder}/event.proof --force", "prove BOOKMARK"),
    _command("verify-proof {folder}/event.proof", "verify-proof"),
    _command("evidence work-02 --output {folder}/evidence --force", "evidence BOOKMARK"),
    _command("demo", removes=("turnlog-demo.db*",)),
    _command("retain --older-than 90d", whole=True),
    _command("export", whole=True),
    _command("verify", whole=True),
    _command("verify --since {end}", "verify --since END", whole=True),
    _command("projections rebuild search", whole=True),
    _command("projections rebuild usage", whole=True),
    _command("copy {url} sqlite:///{folder}/copy.db", "copy", whole=True, removes=("copy.db*",)),
)


class Built(Struct, frozen=True, kw_only=True):
    """What the commands have to know of the store: a turn that has two children, and where the log ended."""

    middle: str
    end: int


class Version(Struct, frozen=True, kw_only=True):
    """A version of turnlog, with a folder of its own in which its copy of the store is."""

    python: str
    name: str
    folder: Path
    built: Built

    @property
    def url(self) -> str:
        """The URL of its copy of the store."""
        return f"sqlite:///{self.folder / 'log.db'}"

    def environment(self) -> dict[str, str]:
        """Return all that its commands see of the environment: nothing of whoever runs this."""
        return {
            "HOME": str(self.folder),
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "COLUMNS": "100",
            "TURNLOG_STORE": self.url,
            "TURNLOG_KEYS_DIR": str(self.folder / "keys"),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        }

    def run(self, *arguments: str) -> str:
        """Run turnlog, untimed, and return its standard output.

        Raises:
            subprocess.CalledProcessError: it failed.
        """
        command = [_turnlog(self.python), *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout


class Run(Struct, frozen=True, kw_only=True):
    """What one run of a command took."""

    wall_s: float
    cpu_s: float
    peak_bytes: float


class Spread(Struct, frozen=True, kw_only=True):
    """A median, and the first and third quartile."""

    median: float
    low: float
    high: float


class Taken(Struct, frozen=True, kw_only=True):
    """What the runs of a command took; a megabyte is a million bytes."""

    cpu_ms: Spread
    wall_ms: Spread
    peak_mb: Spread


class Row(Struct, frozen=True, kw_only=True):
    """A command, with what it took in each version; None where the version does not have it."""

    name: str
    arguments: tuple[str, ...]
    whole: bool
    runs: int
    before: Taken | None
    after: Taken | None
    imports: Taken


class Found(results.Result, frozen=True, kw_only=True):
    """A result that has all figures of every command too."""

    commands: tuple[Row, ...]


# ------------------------------------------------------------------------------------------------------------ the store


def build(folder: Path, threads: int, guests: int, seed: int) -> None:
    """Make the store, and files that each have one thread of another log."""
    texts = Texts(seed)
    begin_ms = time.time_ns() // 1_000_000 - YEAR_MS
    path = folder / "log.db"
    middle = ""
    with open_log(path) as log:
        for number in range(threads):
            forked = number % FORK_EVERY == FORK_EVERY // 2
            marked, place = divmod(number, max(1, threads // BOOKMARKS))
            bookmark = f"work-{marked:02}" if place == 0 and marked < BOOKMARKS else None
            ids = _record_thread(
                log, texts, forked=forked, bookmark=bookmark, time_ms=begin_ms + YEAR_MS * number // threads
            )
            if forked and not middle:
                middle = ids[FORK_PLACE]
                log.bookmarks.set("forked", ids[-1])
        _record_calls(log, texts)
        end = log.wait(0)
    with open_log(folder / "guests.db") as log:
        heads = [_record_thread(log, texts, time_ms=begin_ms)[-1] for _ in range(guests)]
        (folder / "guests").mkdir()
        for number, head in enumerate(heads):
            with (folder / "guests" / f"{number}.jsonl").open("wb") as file:
                log.export(file, head)
    (folder / "built.json").write_bytes(msgspec.json.encode(Built(middle=middle, end=end)))


def _record_thread(
    log: TurnLog, texts: Texts, *, forked: bool = False, bookmark: str | None = None, time_ms: int
) -> list[str]:
    """Record a thread in one transaction, on the path of `add_turn`, and return the ids of its turns."""
    clock = count(time_ms, TURN_MS)
    sources = Sources(time_ms=lambda: next(clock))
    ids = [sources.new_id() for _ in range(TURNS_EACH)]
    parents = [None, *ids[:-1]]
    if forked:
        parents[TURNS_EACH - FORK_TURNS] = ids[FORK_PLACE]
    drafts = [
        turn_draft(
            text,
            role=ROLES[number % 2],
            continues=parents[number],
            id=ids[number],
            bookmark=bookmark or False if number == TURNS_EACH - 1 else False,
            reply=ReplyFacts(model=MODEL if number % 2 else None),
        )
        for number, text in enumerate(islice(texts, TURNS_EACH))
    ]
    placed = [(draft, log.store.place(draft.payload)) for draft in drafts]

    def plan(transaction: WriteTransaction) -> list[Recorded]:
        return [plan_turn(transaction, draft, payload, sources) for draft, payload in placed]

    log.store.write(plan)
    return ids


def _record_calls(log: TurnLog, texts: Texts) -> None:
    """Record a conversation of some model calls."""
    adapter = get("openai_chat")
    for number in range(CALLS):
        turn = log.add_turn(next(texts), continues="called" if number else None, bookmark="called")
        request = adapter.prepare_request(log.context("called"), model=MODEL)
        call = log.calls.record(turn.id, request)
        chunk = {"id": "c", "model": MODEL, "choices": [{"index": 0, "message": {"content": next(texts)}}]}
        events = [msgspec.json.encode(chunk)]
        log.calls.record_reply(call, events, adapter.aggregate(events, model=MODEL))


# -------------------------------------------------------------------------------------------------------- the measuring


def measure(
    commands: Sequence[Command], versions: Mapping[str, Version], *, rounds: int, slow_rounds: int
) -> dict[str, dict[str, list[Run]]]:
    """Run all commands by turns, and return the runs of each, by name of the command and of the version.

    A version that does not have the command has no runs of it. The first round is not counted.

    Raises:
        RuntimeError: a command failed.
    """
    found: dict[str, dict[str, list[Run]]] = {command.name: {name: [] for name in versions} for command in commands}
    for runs in found.values():
        runs[IMPORTS] = []
    slow: set[str] = set()
    for number in range(1 + rounds):
        for command in commands:
            runs = found[command.name]
            if command.name in slow and number > slow_rounds:
                continue
            names = list(runs)
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                run = _baseline(versions[AFTER]) if name == IMPORTS else _timed(command, versions[name], number)
                if run is None:
                    del runs[name]
                elif number:
                    runs[name].append(run)
                elif run.wall_s > SLOW_S:
                    slow.add(command.name)
        print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
    return found


def _timed(command: Command, version: Version, number: int) -> Run | None:
    """Run a command, and return what it took; None if this version does not have it."""
    for pattern in command.removes:
        for path in version.folder.glob(pattern):
            path.unlink()
    arguments = _arguments(command, version, number)
    return _launched([_turnlog(version.python), *arguments], version)


def _arguments(command: Command, version: Version, number: int) -> list[str]:
    """Return the arguments of a command, with the names in braces filled in."""
    given = {
        "folder": version.folder,
        "url": version.url,
        "middle": version.built.middle,
        "end": version.built.end,
        "guest": version.folder / "guests" / f"{number}.jsonl",
    }
    return [argument.format_map(given) for argument in command.arguments]


def _baseline(version: Version) -> Run | None:
    return _launched([version.python, *BASELINE], version)


def _launched(command: Sequence[str], version: Version) -> Run | None:
    """Run a program from a process that is small, and return what it took.

    Raises:
        RuntimeError: it failed.
    """
    errors = version.folder / "errors.txt"
    launcher = [version.python, "-I", "-S", "-c", _LAUNCHER, str(errors), *command]
    done = subprocess.run(
        launcher, cwd=version.folder, env=version.environment(), stdout=subprocess.PIPE, text=True, check=True
    )
    status, wall_s, cpu_s, peak_bytes = (float(part) for part in done.stdout.split())
    if status == 0:
        return Run(wall_s=wall_s, cpu_s=cpu_s, peak_bytes=peak_bytes)
    said = errors.read_text()
    if status == 2 and any(words in said for words in _NOT_THERE):
        return None
    raise RuntimeError(f"{command} of {version.name} ended with {status:g}: {said}")


def _turnlog(python: str) -> str:
    """Return the command of the environment that a Python is of."""
    return str(Path(python).parent / "turnlog")


# ---------------------------------------------------------------------------------------------------------- the figures


def rows(commands: Sequence[Command], found: Mapping[str, Mapping[str, Sequence[Run]]]) -> tuple[Row, ...]:
    """Return a row of the table for each command."""
    return tuple(
        Row(
            name=command.name,
            arguments=command.arguments,
            whole=command.whole,
            runs=len(found[command.name][IMPORTS]),
            before=_taken(found[command.name].get(BEFORE)),
            after=_taken(found[command.name].get(AFTER)),
            imports=_spreads(found[command.name][IMPORTS]),
        )
        for command in commands
    )


def _taken(runs: Sequence[Run] | None) -> Taken | None:
    return None if runs is None else _spreads(runs)


def _spreads(runs: Sequence[Run]) -> Taken:
    return Taken(
        cpu_ms=_spread([run.cpu_s * 1e3 for run in runs]),
        wall_ms=_spread([run.wall_s * 1e3 for run in runs]),
        peak_mb=_spread([run.peak_bytes / 1e6 for run in runs]),
    )


def _spread(values: Sequence[float]) -> Spread:
    several = values if len(values) > 1 else [*values, *values]
    low, median, high = statistics.quantiles(several, n=4, method="inclusive")
    return Spread(median=round(median, 1), low=round(low, 1), high=round(high, 1))


def figures(row: Row, found: Mapping[str, Sequence[Run]]) -> Iterator[Figure]:
    """Return the ratios of a command: after to before, or to the imports where one of the two does not have it."""
    cpu = {name: [run.cpu_s for run in runs] for name, runs in found.items()}
    peak = {name: [run.peak_bytes for run in runs] for name, runs in found.items()}
    taken = {BEFORE: row.before, AFTER: row.after}
    here: Literal["before", "after"] = AFTER if row.after is not None else BEFORE
    mine = taken[here]
    if mine is None:
        return
    both = row.before is not None and row.after is not None
    against, other = (BEFORE, row.before) if both else (IMPORTS, row.imports)
    if other is None:
        return
    lack = "" if both else f", {here} only"
    yield cost(
        cpu,
        here,
        against,
        what=f"`{row.name}`{lack}: {mine.cpu_ms.median:,.0f} ms of CPU",
        baseline=f"{against}: {other.cpu_ms.median:,.0f} ms",
    )
    yield cost(
        peak,
        here,
        against,
        what=f"`{row.name}`{lack}: {mine.peak_mb.median:,.0f} MB at most",
        baseline=f"{against}: {other.peak_mb.median:,.0f} MB",
    )


def table(found: Sequence[Row]) -> str:
    """Return all commands as a table in Markdown."""
    lines = [
        "| command | CPU before, ms | CPU after, ms | x before | x imports | wall before, ms | wall after, ms"
        " | MB before | MB after | x before |",
        "|---" * 10 + "|",
    ]
    for row in found:
        before, after = row.before, row.after
        last = after or before or row.imports
        lines.append(
            f"| `{row.name}` | {_cell(before, _cpu)} | {_cell(after, _cpu)} | {_ratio(before, after, _cpu)}"
            f" | {_ratio(row.imports, last, _cpu)} | {_cell(before, _wall)} | {_cell(after, _wall)}"
            f" | {_cell(before, _peak)} | {_cell(after, _peak)} | {_ratio(before, after, _peak)} |"
        )
    return "\n".join(lines) + "\n"


def _cpu(taken: Taken) -> Spread:
    return taken.cpu_ms


def _wall(taken: Taken) -> Spread:
    return taken.wall_ms


def _peak(taken: Taken) -> Spread:
    return taken.peak_mb


def _cell(taken: Taken | None, of: Callable[[Taken], Spread]) -> str:
    return "not there" if taken is None else f"{of(taken).median:,.0f}"


def _ratio(base: Taken | None, taken: Taken | None, of: Callable[[Taken], Spread]) -> str:
    return "" if base is None or taken is None else f"{of(taken).median / of(base).median:.2f}"


# -------------------------------------------------------------------------------------------------------------- the run


def _versions(
    settings: Settings, pythons: Mapping[str, str], threads: int, *, guests: int
) -> tuple[dict[str, Version], str]:
    """Give each version a copy of the store, and say who built it: the newer one, or each its own if it must be."""
    sizes = (threads, guests, settings.seed)
    stores = dict.fromkeys(pythons, _built(pythons[AFTER], settings.folder / f"{AFTER}-{threads}-{guests}", sizes))
    versions = {name: _version(name, python, settings.folder, stores[name]) for name, python in pythons.items()}
    builder = AFTER
    if BEFORE in versions:
        try:
            versions[BEFORE].run("stats")
        except subprocess.CalledProcessError:
            own = _built(pythons[BEFORE], settings.folder / f"{BEFORE}-{threads}-{guests}", sizes)
            versions[BEFORE] = _version(BEFORE, pythons[BEFORE], settings.folder, own)
            builder = "each its own"
    for version in versions.values():
        _prepare(version)
    return versions, builder


def _built(python: str, folder: Path, sizes: Sequence[int]) -> Path:
    """Build a store with the turnlog of an environment, unless it is there, and return its folder."""
    if not (folder / "built.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        arguments = ["--folder", str(folder), "--build", *map(str, sizes)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([python, "-m", "benchmarks.commands", *arguments], cwd=folder, env=environment, check=True)
    return folder


def _version(name: str, python: str, above: Path, store: Path) -> Version:
    """Return a version, with a folder that is a copy of the store's."""
    folder = above / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(store, folder)
    built = msgspec.json.decode((folder / "built.json").read_bytes(), type=Built)
    return Version(python=python, name=named(python), folder=folder, built=built)


def named(python: str) -> str:
    """Return the version of turnlog that an environment has, with the commit where it is a checkout."""
    code = "import turnlog, importlib.metadata as m; print(m.version('turnlog'), turnlog.__file__)"
    said = subprocess.run([python, "-P", "-c", code], cwd="/", stdout=subprocess.PIPE, text=True, check=True).stdout
    version, _, file = said.strip().partition(" ")
    git = ["git", "-C", str(Path(file).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return f"{version} at {commit}" if commit else version


def _prepare(version: Version) -> None:
    """Make what the commands read, and what is made once and grows from then on: projections and hashes of the tree."""
    folder = version.folder
    (folder / "document.txt").write_text(next(Texts(0)))
    (folder / "window.json").write_text(version.run("context", "work-01", "--json"))
    version.run("projections", "run")
    version.run("keys", "new", "--name", "turnlog.example/commands")
    version.run("checkpoint")
    version.run("prove", "work-02", "--output", str(folder / "event.proof"))


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.commands", description="Measure the commands of two versions of turnlog."
    )
    parser.add_argument("--quick", action="store_true", help="a small log and few runs, to see that it works")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/")
    parser.add_argument("--only", default="", metavar="WORD", help="only commands that have this in their names")
    parser.add_argument("--rounds", type=int, metavar="N", help="runs of each (default: 9), of slow ones a third")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the stores go (default: build/commands)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the data (default: 1)")
    parser.add_argument("--build", type=int, nargs=3, metavar="N", help="build the store, as the run itself asks")
    arguments = parser.parse_args()
    if arguments.only and arguments.write:
        parser.error("--write keeps a whole run: leave out --only")
    return arguments


def main() -> int:
    """Measure, print the table, and keep it with --write."""
    arguments = _parsed()
    if arguments.build is not None:
        build(arguments.folder, *arguments.build)
        return 0
    settings = Settings(folder=arguments.folder.absolute(), quick=arguments.quick, seed=arguments.seed)
    threads = settings.pick(quick=20, full=2_000)
    rounds = arguments.rounds or settings.pick(quick=2, full=9)
    slow_rounds = min(rounds, settings.pick(quick=2, full=3), max(1, rounds // 3))
    pythons = {BEFORE: os.environ.get("BEFORE_PYTHON"), AFTER: os.environ.get("AFTER_PYTHON", sys.executable)}
    if pythons[BEFORE] is None:
        print("BEFORE_PYTHON names no Python: one version is measured", file=sys.stderr)
    commands = [command for command in COMMANDS if arguments.only in command.name]
    start = time.perf_counter()
    given = {name: python for name, python in pythons.items() if python is not None}
    versions, builder = _versions(settings, given, threads, guests=rounds + 1)
    store_bytes = (versions[AFTER].folder / "log.db").stat().st_size
    try:
        runs = measure(commands, versions, rounds=rounds, slow_rounds=slow_rounds)
    finally:
        for version in versions.values():
            shutil.rmtree(version.folder)
    table_rows = rows(commands, runs)
    imports = _spreads([run for found in runs.values() for run in found[IMPORTS]])
    report = Report(
        question=f"What do the commands take on a log of {threads * TURNS_EACH:,} turns?",
        figures=tuple(figure for row in table_rows for figure in figures(row, runs[row.name])),
        measured={
            "imports, ms of CPU": imports.cpu_ms.median,
            "imports, ms": imports.wall_ms.median,
            "imports, MB": imports.peak_mb.median,
        },
        shape={
            **{name: version.name for name, version in versions.items()},
            "store built by": builder,
            "turns": threads * TURNS_EACH,
            "threads": threads,
            "bytes of the store": store_bytes,
            "runs": rounds,
            f"runs of commands of more than {SLOW_S:g} s": slow_rounds,
        },
    )
    print(table(table_rows))
    if arguments.write:
        taken_s = time.perf_counter() - start
        result = results.result("commands", report, settings, machine(settings.folder), taken_s)
        results.write(Found(**msgspec.structs.asdict(result), commands=table_rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
