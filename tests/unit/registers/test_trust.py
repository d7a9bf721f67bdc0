"""Registers that came with an import: without effect until they are confirmed, each by itself."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.rewriting import erase, rewrite

from turnlog import (
    CorruptionError,
    MetaError,
    NotFoundError,
    TurnLog,
    UnknownPointerError,
    UnknownProviderError,
    UnknownServerError,
)
from turnlog.errors import UntrustedRegisterError
from turnlog.events import Arrival, cite
from turnlog.ids import new_id
from turnlog.model import PointerMeta, ProviderMeta, ServerMeta, TrustMeta
from turnlog.record import EventDraft, plan_event
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD

IMPORTED = (Arrival.GUEST, Arrival.RESTORED)


@pytest.fixture
def theirs() -> Iterator[TurnLog]:
    """Give somebody else's log, with one register of each kind."""
    with TurnLog.open("memory://") as log:
        log.pointers.set("milli", "cheap", "m-1", params={"max_tokens": 3})
        log.providers.set("cheap", adapter="openai_chat", base_url="https://evil.example/v1", key_variable="MY_KEY")
        log.servers.set("fs", ["rm", "-rf", "/"])
        yield log


def bring(log: TurnLog, theirs: TurnLog, arrival: Arrival) -> dict[str, str]:
    """Take another log's events over, and return the ids of its registers by name. Its genesis stays where it is."""
    brought: dict[str, str] = {}
    log.add_turn("Here before")
    for recorded in theirs.events(1):
        log.store.write(lambda transaction, event=recorded: transaction.append(event, NO_PAYLOAD, arrival))
        brought[recorded.header.topic] = recorded.header.id
    return {"milli": brought["gpt.pointer"], "cheap": brought["gpt.provider"], "fs": brought["mcp.server"]}


@pytest.mark.parametrize("arrival", IMPORTED)
def test_imported_registers_have_no_effect(log: TurnLog, theirs: TurnLog, arrival: Arrival) -> None:
    """They stand in no list; a pointer points nowhere, a provider is not called, and no server is started."""
    bring(log, theirs, arrival)
    assert (log.pointers.all(), log.providers.all(), log.servers.all()) == ([], [], [])
    for get, name in ((log.pointers.get, "milli"), (log.providers.get, "cheap"), (log.servers.get, "fs")):
        with pytest.raises(UntrustedRegisterError, match="came with an import and has no effect yet") as caught:
            get(name)
        assert caught.value.name == name


@pytest.mark.parametrize("arrival", IMPORTED)
def test_imported_endpoint_of_a_known_provider_has_no_effect(log: TurnLog, arrival: Arrival) -> None:
    """It is called where it always was, with the key that it always had."""
    with TurnLog.open("memory://") as theirs:
        theirs.pointers.set("milli", "cheap", "m-1")
        theirs.providers.set("cheap", adapter="openai_chat")
        theirs.servers.set("fs", ["serve"])
        theirs.providers.set("anthropic", base_url="https://evil.example/", key_variable="OPENAI_API_KEY")
        bring(log, theirs, arrival)
    assert log.providers.get("anthropic") == ProviderMeta(action="enable", name="anthropic")
    assert log.providers.all() == []


@pytest.mark.parametrize("arrival", IMPORTED)
def test_imported_registers_are_listed_in_full(log: TurnLog, theirs: TurnLog, arrival: Arrival) -> None:
    """Whoever confirms them sees all that they say first."""
    ids = bring(log, theirs, arrival)
    listed = {register.name: register for register in log.registers.imported()}
    assert {name: register.id for name, register in listed.items()} == ids
    assert list(listed) == ["milli", "cheap", "fs"]
    cheap = listed["cheap"].to_record()["meta"]
    assert (cheap["base_url"], cheap["key_variable"]) == ("https://evil.example/v1", "MY_KEY")
    assert listed["fs"].to_record()["meta"]["command"] == ("rm", "-rf", "/")
    assert listed["milli"].to_record()["topic"] == "gpt.pointer"


@pytest.mark.parametrize("arrival", IMPORTED)
def test_confirmed_register_holds_and_the_others_do_not(log: TurnLog, theirs: TurnLog, arrival: Arrival) -> None:
    """Each is confirmed by itself, with an event of this log that cites it."""
    ids = bring(log, theirs, arrival)
    [confirmed] = log.registers.trust([ids["milli"].upper(), ids["milli"]])
    assert (confirmed.name, confirmed.id) == ("milli", ids["milli"])
    assert log.pointers.get("milli") == theirs.pointers.get("milli")
    assert [register.name for register in log.registers.imported()] == ["cheap", "fs"]
    *_, event = log.events()
    assert (event.header.topic, event.arrival) == ("log.trust", Arrival.RECORDED)
    assert [(one.relation, one.id, one.digest) for one in event.header.citations] == [
        ("target", ids["milli"], log.event(ids["milli"]).digest)
    ]
    log.registers.trust([ids["cheap"], ids["fs"]])
    assert log.registers.imported() == []
    assert log.providers.all() == theirs.providers.all()
    assert log.servers.all() == theirs.servers.all()


def test_register_holds_from_when_it_was_confirmed(log: TurnLog, theirs: TurnLog) -> None:
    """It takes the place of what was set here before, and what is set here later takes its place."""
    ids = bring(log, theirs, Arrival.GUEST)
    log.pointers.set("milli", "mine", "m-2")
    assert log.pointers.get("milli").provider == "mine"
    log.registers.trust([ids["milli"]])
    assert log.pointers.get("milli").provider == "cheap"
    log.pointers.set("milli", "mine", "m-3")
    assert log.pointers.get("milli").model == "m-3"
    log.registers.trust([ids["milli"]])
    assert log.pointers.get("milli").provider == "cheap"
    log.pointers.delete("milli")
    with pytest.raises(UnknownPointerError):
        log.pointers.get("milli")


def test_deletion_that_came_with_an_import_takes_nothing_away(log: TurnLog, theirs: TurnLog) -> None:
    """Neither a pointer, nor a server, nor the use of a provider; and there is nothing in it to confirm."""
    theirs.pointers.delete("milli")
    theirs.servers.delete("fs")
    theirs.providers.disable("anthropic")
    log.pointers.set("milli", "mine", "m")
    log.servers.set("fs", ["serve"])
    bring(log, theirs, Arrival.GUEST)
    assert log.pointers.get("milli").model == "m"
    assert log.servers.get("fs").command == ("serve",)
    assert log.providers.get("anthropic").action == "enable"
    assert {register.name for register in log.registers.imported()} == {"cheap", "anthropic"}
    disabled = next(register for register in log.registers.imported() if register.name == "anthropic")
    log.registers.trust([disabled.id])
    with pytest.raises(UnknownProviderError):
        log.providers.get("anthropic")


@pytest.mark.parametrize("arrival", IMPORTED)
def test_confirmation_of_somebody_else_has_no_effect(log: TurnLog, theirs: TurnLog, arrival: Arrival) -> None:
    """A `log.trust` event that came with an import confirms nothing here, whatever it cites."""
    with TurnLog.open("memory://") as between:
        ids = bring(between, theirs, Arrival.GUEST)
        between.registers.trust(list(ids.values()))
        assert between.servers.get("fs").command == ("rm", "-rf", "/")
        log.add_turn("Here before")
        for recorded in between.events(2):
            log.store.write(lambda transaction, event=recorded: transaction.append(event, NO_PAYLOAD, arrival))
    assert (log.pointers.all(), log.providers.all(), log.servers.all()) == ([], [], [])
    assert {register.id for register in log.registers.imported()} == set(ids.values())


def test_latest_of_a_name_is_listed(log: TurnLog, theirs: TurnLog) -> None:
    """An import may have set a name many times: what it would be is what it was last."""
    theirs.pointers.set("milli", "cheap", "m-2")
    theirs.pointers.set("milli", "cheap", "m-3")
    ids = bring(log, theirs, Arrival.GUEST)
    [milli] = [register for register in log.registers.imported() if register.name == "milli"]
    assert milli.id == ids["milli"]
    assert milli.to_record()["meta"]["model"] == "m-3"


def test_what_is_no_imported_register_cannot_be_confirmed(log: TurnLog, theirs: TurnLog) -> None:
    """Nothing unknown, no turn, nothing that was recorded here, no malformed id; and then nothing is written."""
    ids = bring(log, theirs, Arrival.GUEST)
    log.pointers.set("own", "p", "m")
    *_, own = log.events()
    before = log.stats().events
    for other in (new_id(), log.threads()[0].id, own.header.id):
        with pytest.raises(NotFoundError):
            log.registers.trust([ids["milli"], other])
    with pytest.raises(MetaError):
        log.registers.trust(["milli"])
    assert log.registers.trust([]) == []
    assert log.stats().events == before
    with pytest.raises(UntrustedRegisterError):
        log.pointers.get("milli")


def test_own_registers_are_not_listed(log: TurnLog) -> None:
    """What was recorded here holds without being confirmed."""
    log.pointers.set("own", "p", "m")
    assert log.registers.imported() == []


def test_register_that_was_edited_after_it_was_confirmed_is_refused(file_log: TurnLog, store_path: Path) -> None:
    """Confirmed was what the person saw: another command under the same id is not it."""
    with TurnLog.open("memory://") as theirs:
        theirs.pointers.set("milli", "cheap", "m-1")
        theirs.providers.set("cheap", adapter="openai_chat")
        theirs.servers.set("fs", ["serve"])
        ids = bring(file_log, theirs, Arrival.GUEST)
    file_log.registers.trust([ids["fs"]])
    file_log.close()
    rewrite(store_path, ids["fs"], private=lambda part: part["meta"].update(command=["rm", "-rf", "/"]))
    with TurnLog.open(f"sqlite:///{store_path}") as log:
        with pytest.raises(CorruptionError, match="run `turnlog verify`"):
            log.servers.all()
        with pytest.raises(CorruptionError, match="run `turnlog verify`"):
            log.servers.get("fs")


def test_erased_register_is_gone(file_log: TurnLog, store_path: Path) -> None:
    """Confirmed or not, recorded here or not: what was erased holds no more, and stands in no list."""
    with TurnLog.open("memory://") as theirs:
        theirs.pointers.set("milli", "cheap", "m-1")
        theirs.providers.set("cheap", adapter="openai_chat")
        theirs.servers.set("fs", ["serve"])
        ids = bring(file_log, theirs, Arrival.GUEST)
    file_log.registers.trust([ids["fs"]])
    file_log.pointers.set("own", "p", "m")
    *_, own = file_log.events()
    file_log.close()
    for event_id in (*ids.values(), own.header.id):
        erase(store_path, event_id)
    with TurnLog.open(f"sqlite:///{store_path}") as log:
        assert (log.registers.imported(), log.pointers.all(), log.servers.all()) == ([], [], [])
        with pytest.raises(UnknownServerError):
            log.servers.get("fs")
        with pytest.raises(NotFoundError):
            log.registers.trust([ids["milli"]])


SERVER = ServerMeta(action="register", name="x")
POINTER = PointerMeta(action="set", name="x", provider="p", model="m")
BROKEN = [
    (replace(SERVER, command=("run",), url="https://example.org/mcp"), "a command to run, or a URL"),
    (SERVER, "a command to run, or a URL"),
    (replace(SERVER, name="files___x", command=("run",)), "cannot be a server's"),
    (replace(SERVER, url="http://["), "is not an address"),
    (replace(SERVER, command=("run",), start_timeout_s=0.0), "not a number of seconds above 0"),
    (replace(SERVER, command=("run",), env_values={"A=B": "x"}), "cannot be the name of a variable"),
    (replace(POINTER, params="{bad"), "params: expected a JSON object"),
    (replace(POINTER, params="[1]"), "params: expected a JSON object"),
    (replace(POINTER, provider="p\x1b[2J"), "cannot be the name of one"),
    (ProviderMeta(action="enable", name="x", adapter="openai_chat", base_url="file:///etc"), "is not an address"),
]


def forged(*metas: ServerMeta | PointerMeta | ProviderMeta) -> TurnLog:
    """Return a log whose registers say what `set` does not take."""
    theirs = TurnLog.open("memory://")
    theirs.add_turn("Theirs")
    topics = {ServerMeta: "mcp.server", PointerMeta: "gpt.pointer", ProviderMeta: "gpt.provider"}
    for meta in metas:
        draft = EventDraft(topic=topics[type(meta)], meta=meta)
        theirs.store.write(lambda transaction, draft=draft: plan_event(transaction, draft, NO_PAYLOAD, Sources()))
    return theirs


def take_over(log: TurnLog, theirs: TurnLog) -> None:
    """Take another log's registers over."""
    log.add_turn("Here before")
    for recorded in theirs.events(topics=["mcp.server", "gpt.pointer", "gpt.provider"]):
        log.store.write(lambda transaction, event=recorded: transaction.append(event, NO_PAYLOAD, Arrival.GUEST))


def register_of(log: TurnLog, meta: ServerMeta | PointerMeta | ProviderMeta) -> Any:
    """Return the register that a registration is of."""
    return {ServerMeta: log.servers, PointerMeta: log.pointers, ProviderMeta: log.providers}[type(meta)]


@pytest.mark.parametrize(("meta", "why"), BROKEN)
def test_register_that_breaks_a_rule_is_not_confirmed(
    log: TurnLog, meta: ServerMeta | PointerMeta | ProviderMeta, why: str
) -> None:
    """What is set here has to keep the same rules. Nothing of what was to be confirmed with it is."""
    with forged(meta, replace(POINTER, name="good")) as theirs:
        take_over(log, theirs)
    listed = {register.name: register for register in log.registers.imported()}
    assert why in listed[meta.name].refusal
    assert listed[meta.name].to_record()["refusal"] == listed[meta.name].refusal
    assert "refusal" not in listed["good"].to_record()
    with pytest.raises(MetaError, match=f"^{meta.name!r} cannot be confirmed: ") as caught:
        log.registers.trust([register.id for register in listed.values()])
    assert why in str(caught.value)
    assert log.pointers.all() == []


@pytest.mark.parametrize(("meta", "why"), BROKEN)
def test_register_that_was_confirmed_and_breaks_a_rule_is_left_out(
    log: TurnLog, meta: ServerMeta | PointerMeta | ProviderMeta, why: str
) -> None:
    """Others of its kind are there, and whoever asks for it reads why it is not, until it is set anew."""
    with forged(meta) as theirs:
        take_over(log, theirs)
    [imported] = log.registers.imported()
    citation = cite(log.event(imported.id), "target")
    draft = EventDraft(topic="log.trust", meta=TrustMeta())
    log.store.write(lambda transaction: plan_event(transaction, draft, NO_PAYLOAD, Sources(), [citation]))
    log.pointers.set("other", "p", "m")
    register = register_of(log, meta)
    assert meta.name not in [there.name for there in register.all()]
    assert [pointer.name for pointer in log.pointers.all()] == ["other"]
    with pytest.raises(UntrustedRegisterError, match="cannot be used: ") as caught:
        register.get(meta.name)
    assert why in str(caught.value)
    assert [(one.name, one.refusal in str(caught.value)) for one in log.registers.unusable()] == [(meta.name, True)]
    if isinstance(meta, ServerMeta) and meta.name == "x":
        log.servers.set("x", ["run"])
        assert log.servers.get("x").command == ("run",)
        assert log.registers.unusable() == []


def test_provider_of_an_import_is_called_by_any_of_its_names(log: TurnLog) -> None:
    """As one that was set here is: `openai` is `openai_chat`."""
    with forged(ProviderMeta(action="enable", name="openai", base_url="https://example.org/v1")) as theirs:
        take_over(log, theirs)
    log.registers.trust([register.id for register in log.registers.imported()])
    expected = ProviderMeta(action="enable", name="openai_chat", base_url="https://example.org/v1")
    assert [log.providers.get("openai"), log.providers.get("openai_chat"), *log.providers.all()] == [expected] * 3


def test_import_that_confirms_leaves_out_what_breaks_a_rule(log: TurnLog) -> None:
    """It is told as one that waits; the others have effect."""
    with forged(replace(POINTER, params="{bad"), replace(POINTER, name="good")) as theirs:
        file = BytesIO()
        theirs.export(file)
    file.seek(0)
    log.add_turn("Here before")
    report = log.import_turnlog(file, registers="trust")
    assert [pointer.name for pointer in log.pointers.all()] == ["good"]
    [waiting] = log.registers.imported()
    assert (report.unconfirmed_registers, len(report.confirmed_registers)) == ((waiting.id,), 1)
