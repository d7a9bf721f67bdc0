"""turnlog keeps LLM conversations as an append-only log of immutable turns.

It is for people who must be able to answer one question: what exactly did the model see?

The model
---------

A **turn** is one speaker's contribution: a user's message, a model's reply, a tool's result, a document. It is
recorded once and never changed. Its content is a list of blocks (text, document, tool_use, tool_result, thinking,
native), kept as a **payload** that is addressed by the SHA-256 of its exact bytes.

A turn names its **parents**: the turns it `continues`. None starts a thread, one goes on with it, one that was
continued before makes a fork, several make a merge. Nothing is copied: a fork of a conversation of ten thousand turns
is one turn. Each parent is **cited** with its digest, and so are the call, the request and the reply that a model's
turn came of. So the digest of the last turn commits to the whole ancestry and its evidence, as a git commit does.

All that is recorded is an **event**: a **header** that stays for ever, a **private part** with the names and the
metadata that can be erased one day without breaking a hash, and the payload. Events of a topic of your own stand beside
turnlog's: `log.add_event("acme.review", cites=[("reviewed", turn.id)])`.

A **bookmark** is a name for a turn. It moves along: a turn that continues the head of a bookmark becomes its head.
Wherever a turn is meant, its id or a bookmark will do.

The **context window** of a turn is what a model sees that is asked to go on from there: the messages of its ancestry,
oldest first, and the options that were set on the way. It is a pure function of the log. Today, tomorrow and on
another machine it is the same, byte for byte. (Content keeps the order and the spelling that it came with, but for
whitespace outside strings, which is taken out when it is recorded.)

A **call** asks a model: an adapter makes the request of a provider out of the window, its exact bytes are recorded and
then sent, and the reply becomes a turn. What the provider's API cannot carry is reported. A **run** is calls of a model
and of the tools that it asks for, until it is done: `log.run("And a longer one?", continues="main", pointer="milli")`,
where a **pointer** is a name for a provider and a model. Pointers, providers and MCP servers are **registers** of the
log. Those that came with somebody's export have no effect until you have seen and confirmed them:
`log.registers.imported()`, `log.registers.trust(ids)`.

A **checkpoint** is the signed head of the log. Who has one that stands elsewhere can show that nothing was changed or
cut off since (`log.verify(checkpoints=…)`), and prove to others what is in the log (`log.audit.prove`). What a person
said can be **erased** for good without breaking a proof: `log.erase(subject=…, reason=…)`. A log or a subject can be
**sealed**: encrypted under keys outside the store, so that erasing reaches backups too (`log.seal(subject)`).

Quick start
-----------

```python
from turnlog import ReplyFacts, TurnLog

with TurnLog.open("memory://") as log:  # or sqlite:///path/to/log.db
    question = log.add_turn("Name a river.", bookmark="main", provider_ptr="milli")
    log.add_turn("The Loire.", role="assistant", continues="main", reply=ReplyFacts(model="some-model"))
    log.add_turn("And a longer one?", continues="main")
    log.add_turn("Name a mountain instead.", continues=question.id, bookmark="mountains")

    assert [m.role for m in log.context("main").messages] == ["user", "assistant", "user"]
    assert [log.text(turn) for turn in log.ancestry("mountains")] == ["Name a river.", "Name a mountain instead."]
    assert log.verify().clean
```

What is promised
----------------

- When `add_turn` returns, the turn is on disk: it survives the end of the process and of the power.
- Many threads may share one `TurnLog`, many processes one file. Writes are serial; `expected_head` tells a writer
  that somebody was faster.
- What cannot be recorded is refused as a whole, with a `TurnlogError` that says what to do.
- The request of every recorded call is there to the byte, and can be made again from the turns and compared.
- What people act on is checked when it is read: a window, an export or a request with an edited byte is refused.
- A store that any version wrote is opened by every later one, from version 2 on, the first that was released.
  `docs/reference/log-format.md` says how to read and check it without turnlog.

Where to look
-------------

`TurnLog` is the way in. `turnlog.errors` draws the tree of exceptions, `turnlog.model` holds blocks, messages and
windows, `turnlog.providers` the adapters and their contract, `turnlog.agent` the run loop, `turnlog.store` what a store
engine must keep, `turnlog.events` the bytes of an event, `turnlog.sources` where ids, time and randomness come from.
The same things at the command line: `turnlog --help`.
"""

# First: it lets signals end `python -m turnlog` with one line while all else is imported.
import turnlog_command as _turnlog_command  # noqa: F401  # pyright: ignore[reportUnusedImport]

# isort: split
import lazy_loader

# What is exported stands in `__init__.pyi`. It is imported when it is asked for: most of what turnlog has is needed by
# few programs, and by fewer commands.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # pyright: ignore[reportUnknownVariableType]
