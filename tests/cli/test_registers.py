"""`turnlog registers`: what came with imports, in full, and confirming it."""

import io

import pytest
from tests.cli.command import Command
from tests.cli.terminal import CTRL_C, Terminal
from tests.forging import exported

from turnlog import TurnLog


@pytest.fixture
def imported(turnlog: Command) -> dict[str, str]:
    """Give the ids of registers that came with an import, by name."""
    with TurnLog.open("memory://") as log:
        log.pointers.set("milli", "anthropic", "m-1", params={"max_tokens": 100})
        log.providers.set("mine", adapter="openai_chat", base_url="https://models.example/v1", key_variable="MY_KEY")
        log.servers.set("fs", ["sh", "-c", "echo  two  blanks\nand a line" + " x" * 200], env=["HOME"])
        content = exported(log)
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("mine")
        log.import_turnlog(io.BytesIO(content))
        return {register.name: register.id for register in log.registers.imported()}


def test_each_is_listed_in_full(turnlog: Command, imported: dict[str, str]) -> None:
    """All fields, whole, one a line: nothing is cut, folded or hidden."""
    command = '["sh","-c","echo  two  blanks\\nand a line' + " x" * 200 + '"]'
    assert turnlog.ok("registers").text.splitlines() == [
        f"pointer milli  {imported['milli']}",
        "  topic: gpt.pointer",
        "  action: set",
        "  provider: anthropic",
        "  model: m-1",
        '  params: {"max_tokens":100}',
        f"provider mine  {imported['mine']}",
        "  topic: gpt.provider",
        "  action: enable",
        "  adapter: openai_chat",
        "  base_url: https://models.example/v1",
        "  key_variable: MY_KEY",
        f"MCP server fs  {imported['fs']}",
        "  topic: mcp.server",
        "  action: register",
        f"  command: {command}",
        '  env: ["HOME"]',
    ]


def test_nothing_is_cut_on_a_narrow_terminal(turnlog: Command, imported: dict[str, str]) -> None:
    """Whoever confirms a command sees its end."""
    outcome = turnlog.on_terminal("stdout", "registers", COLUMNS="20", NO_COLOR="1")
    assert (" x" * 200 + '"]').encode() in outcome.stdout


def test_json_has_all_of_each(turnlog: Command, imported: dict[str, str]) -> None:
    """One register a line."""
    found = turnlog.ok("registers", "--json").json_lines
    assert [(register["topic"], register["name"], register["id"]) for register in found] == [
        ("gpt.pointer", "milli", imported["milli"]),
        ("gpt.provider", "mine", imported["mine"]),
        ("mcp.server", "fs", imported["fs"]),
    ]
    assert found[1]["meta"]["base_url"] == "https://models.example/v1"


def test_text_that_commands_a_terminal_is_spelled_out(turnlog: Command) -> None:
    """What is shown is what is there, not what it would draw."""
    with TurnLog.open("memory://") as log:
        log.servers.set("fs", ["serve", "\x1b[2K\x1b[1Asafe", "\u202egnp.exe"], cwd=" /tmp\r")
        content = exported(log)
    with TurnLog.open(turnlog.url) as log:
        log.import_turnlog(io.BytesIO(content))
    text = turnlog.ok("registers").text
    assert '  command: ["serve","\\u001b[2K\\u001b[1Asafe","\\u202egnp.exe"]\n' in text
    assert '  cwd: " /tmp\\r"\n' in text


def test_nothing_that_is_confirmed_is_unseen(turnlog: Command) -> None:
    """What joins letters, a soft hyphen, a blank of Braille: as where a call of a tool is approved."""
    with TurnLog.open("memory://") as log:
        log.servers.set("fs", ["ru\u00adn", "a\u200db\ufe0f", "\u2800"], cwd="/tm\u200dp")
        content = exported(log)
    with TurnLog.open(turnlog.url) as log:
        log.import_turnlog(io.BytesIO(content))
    for arguments in (["registers"], ["registers", "trust", "--all", "--yes"]):
        text = turnlog.ok(*arguments).text
        assert '  command: ["ru\\xadn","a\\u200db\\ufe0f","\\u2800"]\n' in text
        assert '  cwd: "/tm\\u200dp"\n' in text
    assert turnlog.ok("mcp").text == "fs  'ru\\xadn' 'a\\u200db\\ufe0f' '\\u2800'  in /tm\\u200dp\n"
    said = turnlog.ok("mcp", "register", "x", "ru\u00adn").text
    assert said == "registered x  'ru\\xadn'\n"


def test_none_is_said(turnlog: Command) -> None:
    """Beside the output, which is empty."""
    with TurnLog.open(turnlog.url) as log:
        log.pointers.set("milli", "anthropic", "m-1")
    for arguments in (("registers",), ("registers", "trust", "--all", "--yes")):
        outcome = turnlog(*arguments)
        assert (outcome.status, outcome.stdout) == (0, b"")
        assert outcome.stderr.startswith("turnlog: no registers wait to be confirmed")
    assert turnlog.ok("registers", "--json").stdout == b""


def test_ids_are_confirmed_without_being_asked(turnlog: Command, imported: dict[str, str]) -> None:
    """Where there is nobody to ask: who gives an id has seen it."""
    text = turnlog.ok("registers", "trust", imported["milli"].upper()).text
    assert text.splitlines()[0] == f"pointer milli  {imported['milli']}"
    assert text.splitlines()[-1] == "1 register confirmed"
    assert "milli" in turnlog.ok("pointer").text
    assert [register["name"] for register in turnlog.ok("registers", "--json").json_lines] == ["mine", "fs"]


def test_all_need_yes_where_nobody_can_be_asked(turnlog: Command, imported: dict[str, str]) -> None:
    """A script cannot confirm by accident what it never names."""
    assert turnlog.refused("registers", "trust", "--all") == (
        "registers trust: nobody is here to be asked: give the IDs, or --yes"
    )
    confirmed = turnlog.ok("registers", "trust", "--all", "--yes", "--json").json_lines
    assert {register["id"] for register in confirmed} == set(imported.values())
    assert "fs" in turnlog.ok("mcp").text


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ((), "registers trust: give the IDs of those to confirm, or --all"),
        (("--all", "0" * 25), "registers trust: give the IDs of those to confirm, or --all"),
        (("0" * 25,), f"no register {'0' * 25!r} waits to be confirmed: `turnlog registers` lists them"),
        (
            ("milli",),
            "registers trust: 'milli' is no id: give the one that `turnlog registers` lists behind the name, or --all",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(
    turnlog: Command, imported: dict[str, str], arguments: tuple[str, ...], refusal: str
) -> None:
    """And nothing is confirmed."""
    assert turnlog.refused("registers", "trust", *arguments) == refusal
    assert len(turnlog.ok("registers", "--json").json_lines) == 3


@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("yes", 0), ("n", 2), ("\x04", 2), ("maybe\ny", 0)])
def test_somebody_at_a_terminal_is_asked(turnlog: Command, imported: dict[str, str], answer: str, status: int) -> None:
    """After each was shown in full. Only yes is yes."""
    with Terminal(turnlog, "registers", "trust", "--all") as terminal:
        shown = terminal.expect("confirm all 3? [y/n] ")
        assert all(event_id in shown for event_id in imported.values())
        terminal.send(answer if answer == "\x04" else f"{answer}\n")
        rest, ended = terminal.end()
    assert ended == status
    assert ("3 registers confirmed" if status == 0 else "turnlog: nothing was confirmed") in rest
    assert len(turnlog.ok("registers", "--json").json_lines) == (0 if status == 0 else 3)


def test_ctrl_c_at_the_question_confirms_nothing(turnlog: Command, imported: dict[str, str]) -> None:
    """One line, and status 130."""
    with Terminal(turnlog, "registers", "trust", imported["fs"]) as terminal:
        terminal.expect("confirm it? [y/n] ")
        terminal.send(CTRL_C)
        rest, status = terminal.end()
    assert (status, "turnlog: interrupted" in rest, "Traceback" in rest) == (130, True, False)
    assert len(turnlog.ok("registers", "--json").json_lines) == 3
