"""How providers say that a request is too large."""

import pytest

from turnlog.model import CallError
from turnlog.providers import get
from turnlog.providers.registry import BUILT_IN
from turnlog.providers.too_large import WORDS, says_too_large


@pytest.mark.parametrize(
    "said",
    [
        "anthropic answered 400: prompt is too long: 213462 tokens > 200000 maximum",
        "anthropic answered 400: input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
        "openai answered 400: This model's maximum context length is 8192 tokens. You requested 9000.",
        "openai answered 400: the request exceeds the available context size, try increasing it",
        "openai answered 400: This model's maximum prompt length is 131072 but the request has 537812.",
        "openai answered 400: Please reduce the length of the messages or completion.",
        "openai_responses said: Your input exceeds the context window of this model. Please adjust your input.",
        "gemini answered 400: The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        "cohere answered 400: too many tokens: size limit exceeded by 19296 tokens. Try using shorter or fewer inputs.",
        "bedrock answered 400: Input is too long for requested model.",
    ],
)
def test_words_for_too_large_are_known(said: str) -> None:
    """With the status, and in a stream, where there is none."""
    assert says_too_large(CallError(message=said, status=400))
    assert says_too_large(CallError(message=said))


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("anthropic answered 400: max_tokens: 5 > 4, which is the maximum allowed number of output tokens", 400),
        ("openai answered 429: Request too large for gpt-4o on tokens per min (TPM): Limit 30000", 429),
        ("gemini answered 429: Resource has been exhausted", 429),
        ("anthropic answered 529: Overloaded", 529),
        ("cohere answered 400: invalid request: messages must not be empty", 400),
    ],
)
def test_other_errors_are_not_taken_for_it(said: str, status: int) -> None:
    """What another parameter or some patience would put right is none."""
    assert not says_too_large(CallError(message=said, status=status))


def test_the_status_says_it_without_words() -> None:
    """A gateway says no more."""
    assert says_too_large(CallError(message="anthropic answered 413: nothing more", status=413))


def test_each_wire_has_its_words() -> None:
    """A new one is not forgotten."""
    assert {get(name).api for name in sorted(BUILT_IN)} == WORDS.keys()
