"""What an adapter promises about tool calls and results: each result stands behind its call, under the same id."""

from __future__ import annotations

import re
from typing import Any

import pytest

from turnlog.model import LossEntry, Message
from turnlog.providers import PreparedRequest, Provider
from turnlog.providers.conversation import NO_RESULT
from turnlog.testing.provider_harness import (
    ProviderHarness,
    call,
    document,
    ids_beside,
    lost,
    message,
    parsed,
    place,
    result,
    says,
    takes,
    window,
)

REFUSED_IDS = ("functions.read:0", "ü", "a b", "x" * 300, "tool/1", "")
"""Ids that some provider writes and another refuses."""


def prepare(provider: Provider, *messages: Message) -> PreparedRequest:
    """Return the request of messages, losses allowed."""
    return provider.prepare_request(window(*messages), model="m", on_loss="report")


def check_pair(request: PreparedRequest, called: str, answered: str) -> None:
    """Check that a result stands behind its call, and that both have an id in common where the wire has ids."""
    assert place(request, called) < place(request, answered)
    calls, results = ids_beside(request, called), ids_beside(request, answered)
    assert bool(calls) == bool(results), (calls, results)
    assert not calls or calls & results, (calls, results)


def check_apart(request: PreparedRequest, *marks: str) -> None:
    """Check that no two calls or results have an id in common."""
    ids = [ids_beside(request, mark) for mark in marks]
    assert all(not (one & other) for index, one in enumerate(ids) for other in ids[:index]), ids


class ProviderPairing(ProviderHarness):
    """Tests of tool calls and their results."""

    def test_results_of_one_turn_go_with_their_calls(self, provider: Provider) -> None:
        """Parallel calls, answered in one turn in another order: each result is behind its call and has its id."""
        request = prepare(
            provider,
            message("user", "hi", turn="1"),
            message("assistant", "mark-look", call("a", "mark-a"), call("b", "mark-b"), turn="2"),
            message("user", result("b", "mark-rb"), result("a", "mark-ra"), turn="3"),
            message("assistant", "mark-done", turn="4"),
        )
        check_pair(request, "mark-a", "mark-ra")
        check_pair(request, "mark-b", "mark-rb")
        check_apart(request, "mark-a", "mark-b")
        check_apart(request, "mark-ra", "mark-rb")
        assert place(request, "mark-look") <= place(request, "mark-a") <= place(request, "mark-b")
        assert max(place(request, "mark-ra"), place(request, "mark-rb")) < place(request, "mark-done")
        if not ids_beside(request, "mark-a"):  # then only the order tells them apart
            assert request.body.index(b"mark-ra") < request.body.index(b"mark-rb")
        assert lost(request.loss_report) == []

    def test_text_beside_results_is_behind_them(self, provider: Provider) -> None:
        """What a turn says beside its results is kept, and stands behind them."""
        request = prepare(
            provider,
            message("assistant", call("a", "mark-a"), turn="1"),
            message("user", "mark-before", result("a", "mark-ra"), "mark-after", turn="2"),
        )
        check_pair(request, "mark-a", "mark-ra")
        body = request.body
        places = [body.index(mark) for mark in (b"mark-ra", b"mark-before", b"mark-after")]
        assert places == sorted(places)

    def test_results_spread_over_turns_are_brought_together(self, provider: Provider) -> None:
        """Results of parallel calls that come in several turns stand behind the calls, before anything else."""
        request = prepare(
            provider,
            message("assistant", call("a", "mark-a"), call("b", "mark-b"), turn="1"),
            message("user", result("a", "mark-ra"), turn="2"),
            message("user", result("b", "mark-rb"), "mark-beside", turn="3"),
        )
        check_pair(request, "mark-a", "mark-ra")
        check_pair(request, "mark-b", "mark-rb")
        assert place(request, "mark-rb") <= place(request, "mark-beside")
        assert lost(request.loss_report) == [("3", "tool_result", 0)]

    def test_late_result_comes_before_what_was_said_meanwhile(self, provider: Provider) -> None:
        """A result that was recorded late is moved behind its call, and reported as moved."""
        request = prepare(
            provider,
            message("assistant", call("a", "mark-a"), turn="1"),
            message("user", "mark-meanwhile", turn="2"),
            message("assistant", "mark-well", turn="3"),
            message("user", result("a", "mark-ra"), turn="4"),
        )
        check_pair(request, "mark-a", "mark-ra")
        assert place(request, "mark-ra") < place(request, "mark-meanwhile") < place(request, "mark-well")
        assert lost(request.loss_report, "moved") == [("4", "tool_result", 0)]
        assert not says(parsed(request.body), NO_RESULT)

    def test_late_result_gives_the_same_on_a_warm_adapter(self, provider: Provider) -> None:
        """An adapter that made up a result before the real one came prepares what a fresh one prepares."""
        messages = [
            message("assistant", call("a", "mark-a"), turn="1"),
            message("user", "mark-meanwhile", turn="2"),
            message("user", result("a", "mark-ra"), turn="3"),
        ]
        for count in (1, 2, 3):
            warm = prepare(provider, *messages[:count])
            fresh = prepare(self.adapter(), *messages[:count])
            assert (warm.body, warm.loss_report) == (fresh.body, fresh.loss_report)

    @pytest.mark.parametrize("followed", [True, False])
    def test_call_without_result_is_answered_with_an_error(self, provider: Provider, followed: bool) -> None:
        """A call that nobody answered has a result that says so, and the report says whose."""
        more = [message("user", "mark-go-on", turn="2")] if followed else []
        request = prepare(provider, message("assistant", call("a", "mark-a"), call("b", "mark-b"), turn="1"), *more)
        assert place(request, "mark-a") < place(request, NO_RESULT)
        assert request.body.decode().count(NO_RESULT) == 2
        assert not more or place(request, NO_RESULT) <= place(request, "mark-go-on")
        assert lost(request.loss_report) == [("1", "tool_result", None)] * 2
        assert {entry.kind for entry in request.loss_report.entries} == {"synthesised"}

    def test_result_without_call_is_dropped(self, provider: Provider) -> None:
        """A result that answers no call is not in the body; the report names it."""
        request = prepare(provider, message("user", "mark-hi", result("a", "mark-ra"), turn="1"))
        assert says(parsed(request.body), "mark-hi")
        assert not says(parsed(request.body), "mark-ra")
        [entry] = request.loss_report.entries
        assert (entry.kind, entry.turn, entry.block, entry.index) == ("dropped", "1", "tool_result", 1)

    def test_id_used_again_goes_with_its_own_result(self, provider: Provider) -> None:
        """Calls of one id in several turns, as providers write them that count anew, each have their own result."""
        messages: list[Message] = []
        for n in range(3):
            messages += [
                message("assistant", call("call_0", f"mark-{n}"), turn=f"c{n}"),
                message("user", result("call_0", f"mark-r{n}"), turn=f"r{n}"),
            ]
        request = prepare(provider, *messages)
        order = [place(request, mark) for n in range(3) for mark in (f"mark-{n}", f"mark-r{n}")]
        assert order == sorted(set(order))
        if provider.capabilities.tool_id_pattern is not None:
            for n in range(3):
                check_pair(request, f"mark-{n}", f"mark-r{n}")
            check_apart(request, "mark-0", "mark-1", "mark-2")

    @pytest.mark.parametrize("id", REFUSED_IDS, ids=lambda id: id[:20] or "empty")
    def test_id_of_another_provider_has_the_form_of_the_wire(self, provider: Provider, id: str) -> None:
        """An id that the wire refuses is mapped, to the same in call and result, and reported."""
        messages = (
            message("assistant", call(id, "mark-a"), call("plain", "mark-b"), turn="1"),
            message("user", result(id, "mark-ra"), result("plain", "mark-rb"), turn="2"),
        )
        request = prepare(provider, *messages)
        check_pair(request, "mark-a", "mark-ra")
        check_pair(request, "mark-b", "mark-rb")
        check_apart(request, "mark-a", "mark-b")
        capabilities = provider.capabilities
        if capabilities.tool_id_pattern is None:
            return
        used = ids_beside(request, "mark-a") & ids_beside(request, "mark-ra")
        for found in used:
            assert re.fullmatch(capabilities.tool_id_pattern, found)
            assert len(found) <= capabilities.tool_id_characters_max
        renamed = [entry for entry in request.loss_report.entries if entry.kind == "renamed"]
        assert len(renamed) == (id not in used) if used else True
        assert all((entry.turn, entry.block, entry.index) == ("1", "tool_id", 0) for entry in renamed)

    def test_ids_that_differ_only_in_what_is_refused_stay_apart(self, provider: Provider) -> None:
        """Ids that look alike once mapped are not taken for one another."""
        ids = ["a.b", "a:b", "a/b", "a_b"]
        request = prepare(
            provider,
            message("assistant", *(call(id, f"mark-{n}-") for n, id in enumerate(ids)), turn="1"),
            message("user", *(result(id, f"mark-r{n}-") for n, id in enumerate(ids)), turn="2"),
        )
        for n in range(len(ids)):
            check_pair(request, f"mark-{n}-", f"mark-r{n}-")
        check_apart(request, *(f"mark-{n}-" for n in range(len(ids))))

    def test_calls_without_ids_are_paired_by_name(self, provider: Provider) -> None:
        """Calls that came without ids get some where the wire asks for them; results go to the oldest of their name."""
        request = prepare(
            provider,
            message("assistant", call(None, "mark-a", name="f"), call(None, "mark-b", name="g"), turn="1"),
            message("user", result(None, "mark-rb", name="g"), result(None, "mark-ra", name="f"), turn="2"),
        )
        check_pair(request, "mark-a", "mark-ra")
        check_pair(request, "mark-b", "mark-rb")
        check_apart(request, "mark-a", "mark-b")
        assert not says(parsed(request.body), NO_RESULT)

    def test_error_flag_is_carried_or_reported(self, provider: Provider) -> None:
        """That a result is an error shows in the body, or in the report."""

        def outcome(is_error: bool) -> tuple[bytes, tuple[LossEntry, ...]]:
            request = prepare(
                provider,
                message("assistant", call("a", "mark-a"), turn="1"),
                message("user", result("a", "mark-ra", is_error=is_error), turn="2"),
            )
            assert says(parsed(request.body), "mark-ra")
            return request.body, request.loss_report.entries

        assert outcome(True) != outcome(False)
        if provider.capabilities.result_errors:
            assert outcome(True)[0] != outcome(False)[0]

    @pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}]], ids=["text", "list", "empty text"])
    def test_empty_result_answers_its_call(self, provider: Provider, content: Any) -> None:
        """A tool that said nothing has answered: nothing is made up for it."""
        request = prepare(
            provider,
            message("assistant", call("a", "mark-a"), turn="1"),
            message("user", result("a", content), turn="2"),
            message("assistant", "mark-done", turn="3"),
        )
        assert not says(parsed(request.body), NO_RESULT)
        assert len(request.messages) > 2
        assert place(request, "mark-a") < place(request, "mark-done") - 1

    def test_images_in_results_are_seen(self, provider: Provider) -> None:
        """Images in results are in the body where the wire takes images at all: in the result, or behind it."""
        if not takes(provider, "image/png"):
            pytest.skip("the wire takes no images")
        nested = [{"type": "text", "text": "mark-see"}, document("image/png", "mark-image-1")]
        request = prepare(
            provider,
            message("assistant", call("a", "mark-a"), call("b", "mark-b"), turn="1"),
            message(
                "user", result("a", nested), result("b", [document("image/png", "mark-image-2")]), "mark-t", turn="2"
            ),
        )
        check_pair(request, "mark-a", "mark-see")
        for mark in ("mark-image-1", "mark-image-2"):
            assert place(request, "mark-a") < place(request, mark)
        assert {entry.kind for entry in request.loss_report.entries} <= {"moved"}
