"""Why runs stop, how they are resumed, and what keeps one from beginning."""

import threading
from typing import Any, Literal

import pytest
from tests.agent.running import contents, results, run, values
from tests.agent.scripted import HERE, MODEL, Scripted, call, say

from turnlog import (
    Ask,
    ContentError,
    MetaError,
    MissingKeyError,
    ProviderError,
    RunError,
    SecretError,
    TurnLog,
    UnknownPointerError,
    UnknownProviderError,
    UnknownServerError,
    UnknownTurnError,
    UnsupportedContentError,
)
from turnlog.agent.events import RunEvent, UsageMissing
from turnlog.agent.toolbox import ToolOutcome


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD = ("add", {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("end", "stopped"), [("stop", "done"), ("tool_use", "done"), ("length", "length"), ("refusal", "refusal")]
)
def test_a_reply_without_calls_ends_the_run(log: TurnLog, end: str, stopped: str) -> None:
    """For the reason that the model gave."""
    result = run(log, Scripted(say("Hm.", end=end)))
    assert (result.stopped, result.text, result.unanswered) == (stopped, "Hm.", ())


def test_calls_of_a_reply_that_was_cut_off_do_not_run(log: TurnLog) -> None:
    """More of them may be missing: the run stops, and whoever resumes it says that they are to run.

    But for the last one, whose arguments may be missing too: the model is told to make it again.
    """
    adapter = Scripted(call(ADD, ("wipe", {}), end="length"), say("Done."))
    wiped: list[str] = []

    def wipe(path: str = "/") -> None:
        wiped.append(path)

    result = run(log, adapter, bookmark="main", tools=[add, wipe])
    assert (result.stopped, [call_.name for call_ in result.unanswered]) == ("length", ["add", "wipe"])
    assert [recorded.is_cut for recorded in log.tool_calls.of("main")] == [False, True]
    assert log.tool_calls.of("main")[1].to_record()["is_cut"] is True
    assert run(log, adapter, None, continues="main", tools=[add, wipe]).stopped == "done"
    cut = "the reply was cut off at its length limit, and arguments may be missing: the tool was not called"
    assert (results(log, "main"), wiped) == ([("c1", "3", False), ("c2", cut, True)], [])
    assert log.tool_calls.of(result.head.id)[1].attempts[-1].ending == "not_called"


def test_calls_of_a_refusal_do_not_run_and_are_not_waiting(log: TurnLog) -> None:
    """It is over."""
    result = run(log, Scripted(call(ADD, end="refusal")), bookmark="main", tools=[add])
    assert (result.stopped, result.unanswered) == ("refusal", ())
    with pytest.raises(RunError, match="is a finished reply: give content to go on from it"):
        run(log, Scripted(), None, continues="main", tools=[add])


@pytest.mark.parametrize(
    ("limit", "stopped"), [({"iterations_max": 2}, "iterations"), ({"total_tokens_max": 20}, "tokens")]
)
def test_limits_stop_before_tools_run_and_the_run_can_be_resumed(
    log: TurnLog, limit: dict[str, int], stopped: str
) -> None:
    """What they would return could not be shown to the model any more."""
    adapter = Scripted(call(ADD), call(ADD), call(ADD), say("Done."))
    result = run(log, adapter, bookmark="main", tools=[add], **limit)
    assert (result.stopped, len(result.calls), len(result.turns)) == (stopped, 2, 4)
    assert [call_.name for call_ in result.unanswered] == ["add"]
    resumed = run(log, adapter, None, continues="main", tools=[add])
    assert (resumed.stopped, len(resumed.calls), resumed.turns[0].meta.role) == ("done", 2, "user")


def test_a_reply_that_goes_beyond_the_limit_is_done_all_the_same(log: TurnLog) -> None:
    """The limit is for what comes after it."""
    assert run(log, Scripted(say("Long.", tokens=1000)), total_tokens_max=10, iterations_max=1).stopped == "done"


@pytest.mark.parametrize("limit", [{"total_tokens_max": 15}, {}])
def test_a_limit_of_tokens_that_counts_nothing_is_told_once(log: TurnLog, limit: dict[str, Any]) -> None:
    """The run goes on: replies that say no usage are not counted, and only who has set a limit hears of it."""

    def look() -> str:
        return "seen"

    calls = [call(("look", {}), tokens=tokens) for tokens in (10, 0, 0)]
    told: list[RunEvent] = []
    result = run(log, Scripted(*calls, say("Done.", tokens=0)), tools=[look], on_event=told.append, **limit)
    assert result.stopped == "done"
    missing = [event.to_record() for event in told if isinstance(event, UsageMissing)]
    assert missing == ([{"call": result.calls[1]}] if limit else [])


def test_a_failing_tool_stops_the_run_where_the_policy_says_so(log: TurnLog) -> None:
    """After the results of all calls of the reply are recorded; a run from there asks the model."""

    def boom() -> None:
        raise ValueError("no")

    adapter = Scripted(call(ADD, ("boom", {})), say("Done."))
    result = run(log, adapter, bookmark="main", tools=[add, boom], on_tool_error="abort")
    assert (result.stopped, result.why) == ("tool_error", "a tool failed")
    assert results(log, "main") == [("c1", "3", False), ("c2", "ValueError: no", True)]
    assert run(log, adapter, None, continues="main", tools=[add, boom]).text == "Done."


def test_a_denied_call_is_no_tool_error(log: TurnLog) -> None:
    """The run goes on, whatever `on_tool_error` says."""
    adapter = Scripted(call(ADD), say("Done."))
    assert run(log, adapter, tools=[add], approve="never", on_tool_error="abort").stopped == "done"


@pytest.mark.parametrize("wait", ["in a thread", "in the loop"])
def test_a_hanging_tool_is_given_up(log: TurnLog, wait: str) -> None:
    """Plain and async functions alike; the run goes on, and nothing waits for a thread that hangs."""
    over = threading.Event()

    def hang() -> None:
        over.wait()

    async def ahang() -> None:
        import asyncio  # noqa: PLC0415 - only here

        await asyncio.Event().wait()

    name, tool = ("hang", hang) if wait == "in a thread" else ("ahang", ahang)
    result = run(log, Scripted(call((name, {}), ADD), say("Done.")), tools=[add, tool], tool_timeout_s=0.05)
    over.set()
    assert results(log, result.head.id) == [
        ("c1", "the tool had no result after 0.05 s, and was given up", True),
        ("c2", "3", False),
    ]


# Failed calls


def test_a_failed_call_is_recorded_and_can_be_made_again(log: TurnLog) -> None:
    """With what had arrived; the turn is left out of the window, so that the next request is the same."""
    failure = ProviderError("scripted answered 529: busy", provider="scripted", retryable=True, retry_after_s=3)
    adapter = Scripted([{"text": "Half"}, failure], say("Whole."))
    result = run(log, adapter, "Go.", bookmark="main")
    assert (result.stopped, result.why) == ("error", "scripted answered 529: busy (retryable after 3 s)")
    assert result.error is not None
    assert (result.error.retryable, result.error.retry_after_s, result.text) == (True, 3, "Half")
    assert result.head.meta.error == "scripted answered 529: busy (retryable after 3 s)"
    assert log.calls.events(result.head.id) == [b'{"text":"Half"}']
    again = run(log, adapter, None, continues="main")
    assert (again.stopped, adapter.bodies[0]) == ("done", adapter.bodies[1])
    assert [role for role, _ in contents(log, "main")] == ["user", "assistant"]
    assert [turn.meta.failed for turn in log.ancestry("main")] == [False, True, False]


def test_a_thread_that_is_too_large_for_its_model_says_so(log: TurnLog) -> None:
    """A summary takes effect with the next turn, and then the thread goes on."""
    for number in range(3):
        run(log, Scripted(say(f"Yes, {number}.")), f"Is it {number}?", bookmark="main", respond=number > 0)
    said = "scripted answered 400: prompt is too long: 3 tokens > 2 maximum"
    failed = run(log, Scripted([ProviderError(said, provider="scripted", status=400)]), "Is it 3?", continues="main")
    assert (failed.stopped, failed.too_large, failed.to_record()["too_large"]) == ("error", True, True)
    assert failed.why == (
        f"{said}: the thread is too large for this model: compact it, go on from an earlier turn, or ask a model that "
        "takes more"
    )
    assert failed.head.meta.error == said
    assert log.compact("main", text="It is 2.", keep_last=2, min_turns=1).turns == 4
    adapter = Scripted(say("No."))
    again = run(log, adapter, "Well?", continues="main")
    assert (again.too_large, again.text) == (False, "No.")
    assert len(adapter.bodies[0]["messages"]) == 5


def test_a_reply_for_which_the_model_had_no_more_room_says_so(log: TurnLog) -> None:
    """It is cut off, as at a limit of length."""
    result = run(log, Scripted(say("Half", end="model_context_window_exceeded")))
    assert (result.stopped, result.too_large, result.text) == ("length", True, "Half")
    assert result.why.startswith("the reply is cut off at its length limit: the thread is too large for this model: ")
    cut = run(log, Scripted(say("Half", end="length")))
    assert (cut.stopped, cut.too_large) == ("length", False)


def test_a_stream_that_ends_early_is_a_failed_call(log: TurnLog) -> None:
    """Its calls do not run: they may be incomplete."""
    adapter = Scripted([{"text": "Half"}, {"call": {"id": "c1", "name": "add", "input": {"a": 1, "b": 2}}}])
    result = run(log, adapter, tools=[add])
    assert (result.stopped, result.why) == ("error", "the stream ended early (retryable)")
    assert result.unanswered == ()


def test_what_a_provider_cannot_carry_is_raised_on_wish_after_the_turn_is_recorded(log: TurnLog) -> None:
    """Nothing is sent; where nothing is said the run goes on from the recorded turn."""
    adapter = Scripted(say("Done."))
    audio = {"type": "document", "source": {"type": "base64", "media_type": "audio/wav", "data": "AAAA"}}
    with pytest.raises(UnsupportedContentError, match="audio/wav"):
        run(log, adapter, [audio], bookmark="main", on_loss="error")
    assert adapter.bodies == []
    again = run(log, adapter, None, continues="main")
    assert again.text == "Done."
    [lost] = log.calls.get(again.calls[0]).loss_report.entries
    assert (lost.kind, lost.block, lost.why) == ("dropped", "document", "a line of text in place of audio/wav")


# Where a run begins


def test_a_recorded_question_can_be_asked(log: TurnLog) -> None:
    """A run without content goes on from the turn, and moves its bookmark."""
    log.add_turn("Hello?", bookmark="main")
    result = run(log, Scripted(say("Hello.")), None, continues="main")
    assert [turn.meta.role for turn in result.turns] == ["assistant"]
    assert log.turn("main") == result.head


def test_a_message_instead_of_an_answer_leaves_the_calls_unanswered(log: TurnLog) -> None:
    """They do not run, and the request has made-up results, which the loss report names."""
    adapter = Scripted(call(ADD), say("Never mind."))
    run(log, adapter, bookmark="main", tools=[add], approve="ask")
    result = run(log, adapter, "Forget it.", continues="main", tools=[add])
    assert [turn.meta.role for turn in result.turns] == ["user", "assistant"]
    assert adapter.bodies[1]["messages"][2]["content"][0]["is_error"] is True
    assert [entry.kind for entry in log.calls.get(result.calls[0]).loss_report.entries] == ["synthesised"]


def test_respond_continues_the_last_turn_of_the_log(log: TurnLog) -> None:
    """With content and without."""
    question = log.add_turn("Hello?", bookmark="main")
    answer = run(log, Scripted(say("Hello.")), None, respond=True)
    assert answer.turns[0].continues == (question.id,)
    more = run(log, Scripted(say("Bye.")), "Bye?", respond=True)
    assert more.turns[0].continues == (answer.head.id,)


def test_a_run_from_an_older_turn_forks_and_leaves_the_bookmark(log: TurnLog) -> None:
    """As recording does."""
    root = log.add_turn("Hello?", bookmark="main")
    first = run(log, Scripted(say("One.")), None, continues="main")
    second = run(log, Scripted(say("Two.")), None, continues=root.id)
    assert (log.turn("main").id, second.head.continues) == (first.head.id, (root.id,))


@pytest.mark.parametrize(("bookmark", "moved"), [("other", {"main": 0, "other": 2}), (False, {"main": 0})])
def test_a_named_bookmark_moves_with_the_whole_run(
    log: TurnLog, bookmark: str | Literal[False], moved: dict[str, int]
) -> None:
    """And none does where none is to."""
    turns = [log.add_turn("Hello.", bookmark="main")]
    turns += run(log, Scripted(say("One.")), "Go.", continues="main", bookmark=bookmark).turns
    assert {mark.name: [turn.id for turn in turns].index(mark.turn) for mark in log.bookmarks.all()} == moved


def test_a_named_bookmark_moves_when_a_run_is_resumed(log: TurnLog) -> None:
    """It is moved by the first turn that the run records."""
    question = log.add_turn("Hello?")
    result = run(log, Scripted(say("Hello.")), None, continues=question.id, bookmark="main")
    assert log.turn("main") == result.head


def test_several_turns_can_be_continued(log: TurnLog) -> None:
    """Options are merged in the order of the ancestry, each turn once."""
    log.pointers.set("kilo", "scripted", MODEL)
    log.pointers.set("mega", "nobody", "m")
    log.add_turn("A root.", bookmark="root", provider_ptr="mega", search=True)
    log.add_turn("One.", continues="root", bookmark="one", provider_ptr="kilo")
    log.add_turn("Two.", continues="root", bookmark="two")
    adapter = Scripted(say("Both."))
    result = log.run("Go.", continues=["one", "two"], ask=Ask(adapter=adapter, connection=HERE))
    assert (result.stopped, adapter.bodies[0]["model"], adapter.bodies[0]["search"]) == ("done", MODEL, True)


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"content": None}, RunError, "there is nothing to run: give content, or the one turn to go on from"),
        ({"content": None, "continues": ["main", "root"]}, RunError, "there is nothing to run"),
        ({"content": None, "continues": "main", "search": True}, RunError, "search: options are set by a turn"),
        ({"continues": "main", "respond": True}, RunError, "continues and respond contradict each other"),
        ({"continues": "nix"}, UnknownTurnError, "no turn or bookmark 'nix'"),
        ({"pointer": "kilo"}, RunError, "a pointer says which provider and which model"),
        (
            {"model": None},
            RunError,
            "nothing says which model to ask: give a pointer (`turnlog pointer` lists them), or provider and model",
        ),
        ({"adapter": None}, RunError, "the provider is missing: give provider and model together"),
        ({"provider": "scripted", "model": None}, RunError, "the model is missing"),
        ({"provider": "scripted", "model": ""}, RunError, "the model has no name"),
        ({"params": {"messages": []}}, ContentError, "params.messages: the request sets it itself: leave it out"),
        ({"model": None, "pointer": "nix"}, UnknownPointerError, "no pointer 'nix'"),
        ({"provider": "off"}, UnknownProviderError, "provider 'off' is disabled"),
        ({"provider": "nix", "adapter": None}, UnknownProviderError, "no provider 'nix'"),
        ({"servers": ["nix"]}, UnknownServerError, "no MCP server 'nix'"),
        ({"connection": None}, MissingKeyError, "no API key for 'scripted': set SCRIPTED_API_KEY"),
        ({"approve": "perhaps"}, RunError, "approve: 'perhaps' is unknown"),
        ({"iterations_max": 0}, RunError, "iterations_max: 0 is less than 1"),
        ({"total_tokens_max": 0}, RunError, "total_tokens_max: 0 is less than 1"),
        ({"tool_timeout_s": 0}, RunError, "tool_timeout_s: 0 is not more than 0"),
        ({"params": {"x": float("inf")}}, MetaError, "JSON has no NaN and no infinity"),
        ({"params": {"api_key": "sk-1234567890abcdef1234567890abcdef"}}, SecretError, "params"),
        ({"content": [{"type": "nix"}]}, ContentError, "'nix' is not a content block"),
        ({"tools": [lambda: None]}, RunError, "a tool cannot be called '<lambda>'"),
    ],
)
def test_a_run_that_cannot_begin_records_nothing(
    log: TurnLog,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, object],
    kind: type[Exception],
    message: str,
) -> None:
    """So that it can be given again as it is."""
    monkeypatch.delenv("SCRIPTED_API_KEY", raising=False)
    log.add_turn("Hello?", bookmark="root")
    log.add_turn("Hello.", role="assistant", continues="root", bookmark="main")
    log.pointers.set("kilo", "scripted", MODEL)
    log.providers.disable("off")
    before = log.stats().turns
    with pytest.raises(kind) as raised:
        run(log, **{"adapter": Scripted(), "content": "Go.", **settings})
    assert message in str(raised.value)
    assert log.stats().turns == before


def test_a_finished_reply_cannot_be_resumed(log: TurnLog) -> None:
    """There is nothing to do about it."""
    head = run(log, Scripted(say("Done."))).head
    with pytest.raises(RunError, match=f"turn '{head.id}' is a finished reply: give content to go on from it"):
        run(log, Scripted(), None, continues=head.id)


def test_an_empty_log_has_nothing_to_respond_to(log: TurnLog) -> None:
    """As recording says."""
    with pytest.raises(UnknownTurnError, match="there is no turn yet to respond to"):
        run(log, Scripted(), "Go.", respond=True)


def test_the_pointer_of_the_thread_holds_until_another_is_given(log: TurnLog) -> None:
    """Its parameters go with each call; those of the run win."""
    log.pointers.set("kilo", "scripted", "model-k", params={"max_tokens": 5, "top_p": 1})
    log.pointers.set("mega", "scripted", "model-m")
    adapter = Scripted(*[say("Yes.")] * 4)
    given = {"adapter": adapter, "connection": HERE}
    log.run("One.", bookmark="main", pointer="kilo", **values(**given))
    log.run("Two.", continues="main", **values(**given, params={"max_tokens": 9}))
    log.run("Three.", continues="main", pointer="mega", **values(**given))
    log.run("Four.", continues="main", provider="scripted", model="model-x", **values(**given))
    assert [(body["model"], body["params"]) for body in adapter.bodies] == [
        ("model-k", {"max_tokens": 5, "top_p": 1}),
        ("model-k", {"max_tokens": 9, "top_p": 1}),
        ("model-m", {}),
        ("model-x", {}),
    ]
    assert log.context("main").options == {"provider_ptr": "mega"}


def test_the_pointer_named_default_is_asked_where_nothing_says_which(log: TurnLog) -> None:
    """It is not written into the turn, and a pointer of the thread or of the caller goes before it."""
    log.pointers.set("default", "scripted", "model-d", params={"top_p": 1})
    log.pointers.set("kilo", "scripted", "model-k")
    adapter = Scripted(*[say("Yes.")] * 4)
    given = {"adapter": adapter, "connection": HERE}
    log.run("One.", bookmark="main", **values(**given))
    assert log.context("main").options == {}
    log.run("Two.", continues="main", pointer="kilo", **values(**given))
    log.run("Three.", continues="main", **values(**given))
    log.pointers.delete("default")
    with pytest.raises(RunError, match="nothing says which model to ask"):
        log.run("Four.", **values(**given))
    assert [body["model"] for body in adapter.bodies] == ["model-d", "model-k", "model-k"]


def test_a_key_comes_from_the_environment(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or none is needed, where the provider has an address of its own."""
    monkeypatch.setenv("SCRIPTED_API_KEY", "key")
    assert run(log, Scripted(say("Done.")), connection=None).stopped == "done"
    monkeypatch.delenv("SCRIPTED_API_KEY")
    log.providers.set("scripted", base_url="http://localhost:1")
    assert run(log, Scripted(say("Done.")), connection=None).stopped == "done"


def test_an_outcome_of_a_tool_is_taken_as_it_is(log: TurnLog) -> None:
    """A function may say that it failed without raising."""

    def refuse() -> ToolOutcome:
        return ToolOutcome.error("not today")

    result = run(log, Scripted(call(("refuse", {})), say("Done.")), tools=[refuse])
    assert results(log, result.head.id) == [("c1", "not today", True)]
