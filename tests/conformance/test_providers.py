"""Every adapter keeps the contract of providers: all of turnlog's, and one as another package would write it.

The sample replies are golden cases. `tests/wires` has the network part: the real SDK clients against a local server.
"""

from pathlib import Path

from tests.wires.postcard import Postcard

from turnlog.model import Response, Usage
from turnlog.providers import Provider
from turnlog.providers.anthropic import Anthropic
from turnlog.providers.bedrock import Bedrock
from turnlog.providers.cerebras import Cerebras
from turnlog.providers.cohere import Cohere
from turnlog.providers.conversation import NO_RESULT
from turnlog.providers.gemini import Gemini
from turnlog.providers.openai_chat import OpenAIChat
from turnlog.providers.openai_responses import OpenAIResponses
from turnlog.testing import ProviderSuite, SampleReply
from turnlog.testing.provider_harness import (
    call,
    conversation,
    ids_beside,
    lost,
    message,
    parsed,
    place,
    result,
    says,
)
from turnlog.testing.provider_requests import prepare

WIRES = Path(__file__).parents[1] / "golden" / "wires" / "replies"
THINKING = "The user wants both notes compared. I will read them at once."
TEXT = "I will read both files."
CALLS = (("files___read", '{"path": "notes/a.md"}'), ("files___read", '{"path": "notes/b.md", "head": 10}'))
TOGETHER = Usage(input_tokens=412, output_tokens=143, cache_read_input_tokens=2048)
APART = Usage(input_tokens=412, output_tokens=82, reasoning_tokens=61, cache_read_input_tokens=2048)
"""What the sample took, on wires that count what was thought apart from what was said, and on others."""


def _events(wire: str, case: str) -> tuple[bytes, ...]:
    return tuple((WIRES / wire / case / "events.jsonl").read_bytes().splitlines())


def _sample(
    wire: str,
    model: str,
    usage: Usage,
    *,
    thinking: str | None = THINKING,
    natives: int = 0,
    complete: int | None = None,
) -> SampleReply:
    """Return the reply `parallel-calls` of a wire; `thinking` is None where the wire has none."""
    return SampleReply(
        model=model,
        streamed=_events(wire, "parallel-calls"),
        whole=(WIRES / wire / "parallel-calls" / "whole.json").read_bytes(),
        usage=usage,
        failing=_events(wire, "error-event"),
        text=TEXT,
        thinking=thinking,
        calls=CALLS,
        natives=natives,
        complete=complete,
    )


class TestAnthropic(ProviderSuite):
    """Messages, with a redacted thought, and a web search that the provider ran itself."""

    def adapter(self) -> Provider:
        return Anthropic()

    def sample(self) -> SampleReply:
        return _sample("anthropic", "claude-sonnet-4-5-20250929", TOGETHER, natives=2)


class TestOpenAIChat(ProviderSuite):
    """Chat Completions, of an endpoint whose model thinks. The usage comes after the end."""

    def adapter(self) -> Provider:
        return OpenAIChat()

    def sample(self) -> SampleReply:
        return _sample("openai_chat", "gpt-oss-120b", APART, complete=12)


class TestOpenAIResponses(ProviderSuite):
    """Responses, with a reasoning item and a web search that the provider ran itself."""

    def adapter(self) -> Provider:
        return OpenAIResponses()

    def sample(self) -> SampleReply:
        return _sample("openai_responses", "gpt-5-2025-08-07", APART, natives=1)


class TestGemini(ProviderSuite):
    """generateContent, with code that the provider ran itself."""

    model_in_body = stream_in_body = False  # the URL says both

    def adapter(self) -> Provider:
        return Gemini()

    def sample(self) -> SampleReply:
        return _sample("gemini", "gemini-2.5-pro", APART, natives=2)


class TestCohere(ProviderSuite):
    """v2 chat, whose replies do not name their model."""

    def adapter(self) -> Provider:
        return Cohere()

    def sample(self) -> SampleReply:
        return _sample("cohere", "command-a-reasoning-08-2025", Usage(input_tokens=61, output_tokens=143))


class TestCerebras(ProviderSuite):
    """The dialect of Chat Completions whose calls come in one piece."""

    def adapter(self) -> Provider:
        return Cerebras()

    def sample(self) -> SampleReply:
        return _sample("cerebras", "gpt-oss-120b", Usage(input_tokens=2460, output_tokens=82, reasoning_tokens=61))


class TestBedrock(ProviderSuite):
    """Converse, with a redacted thought, and code that the provider ran itself. The usage comes after the end."""

    model_in_body = stream_in_body = False  # the URL says both

    def adapter(self) -> Provider:
        return Bedrock()

    def sample(self) -> SampleReply:
        model = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
        return _sample("bedrock", model, TOGETHER, natives=2, complete=26)

    # Roles have to alternate, so that turns of one role share a message, and the last message can grow.

    def test_longer_conversation_keeps_the_prefix(self, provider: Provider, response: Response) -> None:
        """The body of a longer conversation starts with that of the shorter one, but for the end of its last message.

        Cut at the bracket that ends the content of that message, it does so byte for byte.
        """
        messages = conversation(provider, response)
        shorter = prepare(self.adapter(), messages[:1])
        for count in range(2, len(messages) + 1):
            longer = prepare(self.adapter(), messages[:count])
            if messages[count - 1].turn in ("t3", "t7"):
                continue  # a call at the end is answered by a made-up result, which the real one replaces
            kept = (shorter.head + b"".join(shorter.messages)).removesuffix(b"]}")
            assert longer.body.startswith(kept), f"after {count} turns"
            assert list(longer.messages)[: len(shorter.messages) - 1] == list(shorter.messages)[:-1]
            shorter = longer

    def test_late_result_comes_before_what_was_said_meanwhile(self, provider: Provider) -> None:
        """A result that was recorded late is moved behind its call, in one message with what was said meanwhile."""
        turns = (
            message("assistant", call("a", "mark-a"), turn="1"),
            message("user", "mark-meanwhile", turn="2"),
            message("assistant", "mark-well", turn="3"),
            message("user", result("a", "mark-ra"), turn="4"),
        )
        request = prepare(provider, list(turns))
        places = [request.body.index(mark) for mark in (b"mark-a", b"mark-ra", b"mark-meanwhile", b"mark-well")]
        assert places == sorted(places)
        assert [place(request, mark) for mark in ("mark-a", "mark-ra", "mark-meanwhile", "mark-well")] == [0, 1, 1, 2]
        assert ids_beside(request, "mark-ra") == ids_beside(request, "mark-a")
        assert lost(request.loss_report, "moved") == [("4", "tool_result", 0)]
        assert not says(parsed(request.body), NO_RESULT)


class TestPostcard(ProviderSuite):
    """A wire made up for tests."""

    def adapter(self) -> Provider:
        return Postcard()

    def sample(self) -> SampleReply:
        seal = '"seal":"c2VhbA=="'
        first, second = (text.replace('"', '\\"') for _, text in CALLS)
        parts = [
            '{"type":"thinking",%s,"text":"' + THINKING[:20] + '"}',
            '{"type":"text","text":"' + TEXT[:5] + '"}',
            '{"type":"stamp","value":1.50}',
            '{"type":"call","id":"a1","name":"files___read","text":""}',
            '{"type":"call","id":"a2","name":"files___read","text":"' + second + '"}',
        ]
        parts[0] = parts[0] % seal
        more = {0: THINKING[20:], 1: TEXT[5:], 3: first}
        streamed = ['{"type":"begin","id":"r1","model":"post-1"}']
        for index, part in enumerate(parts):
            streamed.append(f'{{"type":"block","index":{index},"block":{part}}}')
            if index in more:
                streamed.append(f'{{"type":"more","index":{index},"text":"{more[index]}"}}')
        end = '"stop":"tool_use","usage":{"in":9,"out":4}'
        streamed.append(f'{{"type":"end",{end}}}')
        whole = [
            f'{{"type":"thinking",{seal},"text":"{THINKING}"}}',
            f'{{"type":"text","text":"{TEXT}"}}',
            parts[2],
            parts[3].replace('"text":""', f'"text":"{first}"'),
            parts[4],
        ]
        reply = f'{{"type":"reply","id":"r1","model":"post-1","content":[{",".join(whole)}],{end}}}'
        return SampleReply(
            model="post-1",
            streamed=tuple(event.encode() for event in streamed),
            whole=reply.encode(),
            text=TEXT,
            thinking=THINKING,
            calls=CALLS,
            natives=1,
            usage=Usage(input_tokens=9, output_tokens=4),
            raw_stop_reason="tool_use",
            failing=(streamed[0].encode(), b'{"type":"error","message":"out of ink"}'),
            cut=(
                streamed[0].encode(),
                b'{"type":"block","index":0,"block":{"type":"text","text":"I will"}}',
                b'{"type":"end","stop":"length"}',
            ),
        )
