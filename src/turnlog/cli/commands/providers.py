"""`turnlog provider` and `turnlog pointer`: who may be called, where, and under which names."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from turnlog import providers as adapters
from turnlog.agent.resolve import adapter_of, connection_of
from turnlog.cli.completing import POINTER, PROVIDER
from turnlog.cli.failures import UsageError
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Piece, Screen, note, telling, write_json, write_json_lines
from turnlog.cli.parameters import parse_parameters
from turnlog.cli.registers import tell_unusable
from turnlog.cli.text import count, one_line
from turnlog.errors import TurnlogError
from turnlog.log import TurnLog
from turnlog.model import ProviderMeta
from turnlog.model.names import ADAPTERS
from turnlog.providers.keys import find_key
from turnlog.registers import Pointer

provider_app = App(
    name="provider", group_commands="Commands", help="List providers and their models; allow and refuse calls to them."
)
pointer_app = App(name="pointer", group_commands="Commands", help="List pointers; set and delete them.")


@provider_app.default
def list_providers(*, common: Common = COMMON) -> None:
    """List providers: whether calls are allowed, where the key is, which endpoint. No key is printed."""
    with common.open_or_empty() as log:
        said = {meta.name: meta for meta in log.providers.all()}
        tell_unusable(log, "provider")
    rows = [_row(said.get(name) or ProviderMeta(action="enable", name=name)) for name in _names(said)]
    if common.json:
        write_json_lines(rows)
        return
    Screen.of_stdout().table(
        [
            [
                (one_line(str(row["name"])), "bold green" if row["allowed"] else "dim"),
                (_state(row), "" if row["usable"] else "red"),
                (one_line(str(row["key_variable"])), "cyan"),
                (one_line(str(row["base_url"] or "")), "dim"),
            ]
            for row in rows
        ]
    )


provider_app.command(list_providers, name="list")


def _names(said: dict[str, ProviderMeta]) -> list[str]:
    return sorted({*adapters.names(), *said})


def _row(meta: ProviderMeta) -> dict[str, object]:
    row: dict[str, object] = {
        "name": meta.name,
        "adapter": meta.adapter or ADAPTERS.get(meta.name, meta.name),
        "allowed": meta.action == "enable",
        "base_url": meta.base_url or None,
    }
    try:
        adapter = adapter_of(meta)
    except TurnlogError as error:
        return row | {"key_variable": "", "key": "none", "usable": False, "problem": str(error)}
    _, source = find_key(adapter.provider, adapter.key_variable)
    usable = meta.action == "enable" and (source != "none" or bool(meta.base_url))
    return row | {"key_variable": adapter.key_variable, "key": source, "usable": usable}


def _state(row: dict[str, object]) -> str:
    if "problem" in row:
        return one_line(str(row["problem"]))
    if not row["allowed"]:
        return "disabled"
    return {"environment": "key in the environment", "keyring": "key in the keyring"}.get(str(row["key"]), "no key")


@provider_app.command
def models(name: Annotated[str, PROVIDER], /, *, common: Common = COMMON) -> None:
    """List the models of a provider, as it names them. This asks the provider.

    Parameters
    ----------
    name
        The provider.
    """
    with common.open_or_empty() as log:
        meta = log.providers.get(name)
    found = adapter_of(meta).models(connection_of(meta))
    if common.json:
        write_json_lines(found)
        return
    screen = Screen.of_stdout()
    for model in found:
        screen.line(one_line(model))
    if not found:
        note(f"{name} has no models for this key")


@provider_app.command
def enable(
    name: Annotated[str, PROVIDER],
    /,
    *,
    adapter: Annotated[
        str | None,
        Parameter(help="The adapter that speaks its wire, for an endpoint under a name of its own: openai_chat, …."),
    ] = None,
    base_url: Annotated[str | None, Parameter(help="Another endpoint than the provider's own.")] = None,
    key_variable: Annotated[
        str | None, Parameter(help="The environment variable that holds the key, where it is not the usual one.")
    ] = None,
    check: Annotated[bool, Parameter(help="Check key and endpoint by asking for the models first.")] = True,
    common: Common = COMMON,
) -> None:
    """Allow calls to a provider, once its key has been checked with a real call for its models.

    The key comes from the environment or the keyring, and is neither stored nor printed.

    Parameters
    ----------
    name
        The provider: an adapter's name, or any other with --adapter.
    """
    meta = ProviderMeta(
        action="enable",
        name=name,
        **{
            field: value
            for field, value in (("adapter", adapter), ("base_url", base_url), ("key_variable", key_variable))
            if value is not None
        },
    )
    speaks = adapter_of(meta)
    connection = connection_of(meta) if check else None
    found = None if connection is None else speaks.models(connection)
    name = common.record(
        lambda log: log.providers.set(name, adapter=adapter, base_url=base_url, key_variable=key_variable)
    ).name
    with telling(f"provider {name!r} is enabled, and that is recorded, but could not be printed"):
        if common.json:
            write_json({"name": name, "allowed": True, "base_url": base_url, "models": found})
            return
        checked = "not checked"
        if connection is not None and found is not None:
            checked = f"{'it answers' if connection.api_key is None else 'the key works'}: {count(len(found), 'model')}"
        Screen.of_stdout().line(("enabled ", "dim"), (one_line(name), "bold green"), (f"  {checked}", "dim"))


@provider_app.command
def disable(name: Annotated[str, PROVIDER], /, *, common: Common = COMMON) -> None:
    """Refuse calls to a provider from now on.

    Parameters
    ----------
    name
        The provider.
    """
    name = ADAPTERS.get(name, name)

    def act(log: TurnLog) -> None:
        known = _names({meta.name: meta for meta in log.providers.all()})
        if name not in known:
            raise UsageError(f"no provider {name!r} (one of {', '.join(known)})")
        log.providers.disable(name)

    common.record(act)
    with telling(f"provider {name!r} is disabled, and that is recorded, but could not be printed"):
        if common.json:
            write_json({"name": name, "allowed": False})
        else:
            Screen.of_stdout().line(("disabled ", "dim"), (one_line(name), "bold green"))


@pointer_app.default
def list_pointers(*, common: Common = COMMON) -> None:
    """List pointers; set and delete them."""
    with common.open_or_empty() as log:
        found = log.pointers.all()
        tell_unusable(log, "pointer")
    if common.json:
        write_json_lines(found)
        return
    if not found:
        note("no pointers yet: `turnlog pointer set NAME PROVIDER MODEL` makes one")
        return
    rows: list[list[Piece]] = [
        [
            (one_line(pointer.name), "bold green"),
            one_line(pointer.provider),
            one_line(pointer.model),
            (one_line(" ".join(f"{name}={value}" for name, value in pointer.params.items())), "dim"),
        ]
        for pointer in found
    ]
    Screen.of_stdout().table(rows)


@pointer_app.command(name="list")
def list_(*, common: Common = COMMON) -> None:
    """List pointers by name."""
    list_pointers(common=common)


@pointer_app.command(name="set")
def set_(
    name: Annotated[str, POINTER],
    provider: str,
    model: str,
    /,
    *,
    param: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(), consume_multiple=False, help="A parameter of every call, NAME=VALUE, such as max_tokens=1000."
        ),
    ] = (),
    common: Common = COMMON,
) -> None:
    """Set a pointer: a name for a provider and a model.

    Parameters
    ----------
    name
        The pointer: nano, milli, kilo, mega, giga, or any other name. The one named default is what is asked where
        nothing says which.
    provider
        The provider.
    model
        The model, as the provider names it: see `turnlog provider models PROVIDER`.
    """
    params = parse_parameters(param)

    def act(log: TurnLog) -> Pointer:
        adapter_of(log.providers.get(provider))
        return log.pointers.set(name, provider, model, params=params)

    pointer = common.record(act)
    with telling(f"pointer {name!r} is set, and that is recorded, but could not be printed"):
        if common.json:
            write_json(pointer)
        else:
            said = f"  {one_line(provider)} {one_line(model)}"
            Screen.of_stdout().line((one_line(name), "bold green"), said)


@pointer_app.command
def delete(name: Annotated[str, POINTER], /, *, common: Common = COMMON) -> None:
    """Delete a pointer.

    Parameters
    ----------
    name
        The pointer.
    """
    common.record(lambda log: log.pointers.delete(name))
    with telling(f"pointer {name!r} is deleted, and that is recorded, but could not be printed"):
        if common.json:
            write_json({"name": name})
        else:
            Screen.of_stdout().line(("deleted pointer ", "dim"), (one_line(name), "bold green"))
