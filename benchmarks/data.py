"""Seeded data: text turns of 1 KiB that compress like real ones.

Words are drawn by rank (Zipf-Mandelbrot), each text prefers a few words of its own (as texts about something do), and
names, paths and numbers stand between them. Zstandard level 3 takes such a text of 1,024 bytes to about 0.54 of its
size; pieces of 1,024 bytes of real coding sessions came to 0.53 and 0.55. `python -m benchmarks.data` measures it.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate, islice

import zstandard

TEXT_BYTES = 1024

_COMMON_TEXT = """
the of to and a in is it you that for on with as be this are can not or if we have an from will by but at your when I
which so do one all use there has what no they more only then would should into need each just its than also how like
was does get any other same new where first because before after these some them want make sure two still now even
about out up over our here already without between both every could since while through most why right very back
instead below above let see work way time their who him she he her been were had being did those such own under
"""

_CONTENT_TEXT = """
file error value function test code data change list line case name call text user message object result type string
return check write read point state key number order default order version model question answer example problem
option class module method request response server client store event record field table query index column page
branch commit merge history log stream position digest hash payload size limit length count offset bytes buffer cache
memory disk thread process lock queue worker task job timeout retry failure exception traceback warning message parser
token schema format encoding header footer document image attachment path folder directory link address port host
network socket session cookie login password account permission policy rule contract promise reader writer caller
parent child root leaf node edge graph tree path cycle window context prompt reply turn tool plugin package library
dependency release build pipeline deploy container image environment variable setting flag argument parameter keyword
iterator generator loop condition expression statement operator comment docstring review patch issue bug fix feature
refactor interface adapter wrapper helper factory registry handler callback listener signal hook fixture assertion
coverage benchmark profile latency throughput rate median sample noise measure figure baseline target budget cost
price weather travel city street river mountain garden kitchen recipe flour butter sugar dinner morning evening
weekend holiday ticket station airport hotel budget contract lawyer doctor patient medicine exercise sleep diet water
energy light sound music guitar piano lesson teacher student school university paper essay chapter paragraph sentence
grammar translation language culture country government election policy market growth inflation income interest loan
investment customer product company team manager meeting project deadline schedule plan goal strategy decision reason
evidence argument theory experiment physics chemistry biology protein cell gene species climate ocean planet star
remember understand explain describe suggest consider compare choose decide expect assume believe prefer avoid prevent
allow require include contain provide support handle create delete update insert append replace remove move copy
convert compute calculate estimate improve reduce increase extend simplify rename split join sort filter group match
search find look open close start stop run wait finish continue repeat skip keep hold pass fail break raise catch
important simple small large long short fast slow old different similar possible likely clear correct wrong missing
empty full complete partial local global public private internal external safe unsafe stable fragile explicit implicit
deterministic concurrent sequential atomic durable immutable optional mandatory obvious subtle reasonable expensive
quickly slowly directly usually often sometimes never always probably exactly roughly simply carefully currently
actually basically finally therefore however otherwise meanwhile additionally specifically effectively separately
Monday Tuesday Friday January April October Python Rust Linux Postgres London Berlin Tokyo Paris Europe America Asia
happy afraid careful honest curious patient strange quiet loud heavy bright dark cold warm dry fresh sweet bitter
family friend neighbour mother father brother sister daughter village bridge window door table chair floor ceiling
"""

COMMON = _COMMON_TEXT.split()
"""Words of every text, the most frequent first."""

CONTENT = [word for word in dict.fromkeys(_CONTENT_TEXT.split()) if word not in COMMON]
"""Words that texts are about."""

_VOCABULARY = COMMON + CONTENT
_RANKS = list(accumulate(1 / (rank + 4.0) for rank in range(len(_VOCABULARY))))
_ENDS = (".", ".", ".", ".", ".", "?", ":", ".\n\n", ".\n\n", "!")
_AFFIXES = ("", "", "", "s")
_OWN_WORDS = 26
_OWN_SHARE = 0.36


class Texts:
    """An endless, seeded run of texts. The same seed gives the same texts, on every machine."""

    def __init__(self, seed: int, *, text_bytes: int = TEXT_BYTES) -> None:
        """Start a run of texts of so many bytes each."""
        self._random = random.Random(seed)
        self.text_bytes = text_bytes

    def __iter__(self) -> Iterator[str]:
        """Return the run itself."""
        return self

    def __next__(self) -> str:
        """Return the next text: ASCII, so that its bytes are its characters."""
        draw = self._random
        own = [_inflected(draw, draw.choice(CONTENT)) for _ in range(_OWN_WORDS - 4)] + [_name(draw) for _ in range(4)]
        parts: list[str] = []
        size = 0
        while size < self.text_bytes:
            sentence = _sentence(draw, own)
            parts.append(sentence)
            size += len(sentence)
        return "".join(parts)[: self.text_bytes]

    def take(self, count: int) -> list[str]:
        """Return the next `count` texts."""
        return list(islice(self, count))


def _sentence(draw: random.Random, own: list[str]) -> str:
    words: list[str] = []
    for _ in range(draw.randint(5, 22)):
        chance = draw.random()
        if chance < _OWN_SHARE:
            words.append(draw.choice(own))
        elif chance < 0.98:
            words.append(_VOCABULARY[bisect(_RANKS, draw.random() * _RANKS[-1])])
        else:
            words.append(_name(draw))
        if chance > 0.92:
            words[-1] += ","
    words[0] = words[0][:1].upper() + words[0][1:]
    end = draw.choice(_ENDS)
    return " ".join(words) + end + ("" if end.endswith("\n") else " ")


def _inflected(draw: random.Random, word: str) -> str:
    return word + draw.choice(_AFFIXES)


def _name(draw: random.Random) -> str:
    first, second = draw.choice(CONTENT), draw.choice(CONTENT)
    match draw.randrange(5):
        case 0:
            return f"`{first}_{second}`"
        case 1:
            return f"`src/{first}/{second}.py`"
        case 2:
            return str(draw.randrange(100_000))
        case 3:
            return f"{draw.randrange(10)}.{draw.randrange(100)}"
        case _:
            return f"**{first} {second}**"


def compression_ratio(texts: list[str], *, level: int = 3) -> float:
    """Return compressed bytes / bytes of texts that are compressed one by one with Zstandard."""
    compressor = zstandard.ZstdCompressor(level=level)
    return sum(len(compressor.compress(text.encode())) for text in texts) / sum(len(text.encode()) for text in texts)


if __name__ == "__main__":
    sample = Texts(0).take(2000)
    print(sample[0], end="\n\n")
    print(f"Zstandard level 3, each text alone: {compression_ratio(sample):.3f} of its bytes")
