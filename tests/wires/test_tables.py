"""Every adapter has a row in each table of all: of one that is new, this says where one is missing."""

import re
from collections.abc import Iterable

import pytest
from tests.conformance import test_providers, test_recorded_replies
from tests.docs.test_providers_page import PAGE, table
from tests.golden import wire_cases
from tests.unit.providers import test_clients, test_output_schema, test_tool_choice
from tests.wires import test_matrix, typed_bodies
from tests.wires.postcard import Postcard

from turnlog.cli.commands.wire import ProviderName
from turnlog.providers import get
from turnlog.providers.registry import BUILT_IN
from turnlog.providers.too_large import WORDS
from turnlog.record.secret_forms import has_form
from turnlog.testing import ProviderSuite

HELP: str = ProviderName.__metadata__[0].help
SUITES = [
    kind
    for kind in vars(test_providers).values()
    if isinstance(kind, type) and issubclass(kind, ProviderSuite) and kind is not ProviderSuite
]

KEYS = {
    "anthropic": "sk-ant-api03-",
    "openai_chat": "sk-proj-",
    "openai_responses": "sk-proj-",
    "gemini": "AIza",
    "cerebras": "csk-",
    "bedrock": "ABSK",
}
"""What keys begin with."""

WITHOUT_FORM = ("cohere",)
"""Adapters whose keys have nothing that tells them from another text."""

TABLES: dict[str, Iterable[str]] = {
    "MODELS of tests/golden/wire_cases.py": wire_cases.MODELS,
    "the subclasses of ProviderSuite in tests/conformance/test_providers.py": {
        kind().adapter().name for kind in SUITES
    },
    "WIRES of tests/conformance/test_recorded_replies.py, or NOT_RECORDED": (
        *test_recorded_replies.WIRES,
        *test_recorded_replies.NOT_RECORDED,
    ),
    "PATHS of tests/unit/providers/test_clients.py": test_clients.PATHS,
    "PLACES of tests/unit/providers/test_output_schema.py, or OF_THEIR_OWN with a test": (
        *test_output_schema.PLACES,
        *test_output_schema.OF_THEIR_OWN,
    ),
    "CHOICES of tests/unit/providers/test_tool_choice.py": test_tool_choice.CHOICES,
    "RECORDS of tests/unit/providers/test_tool_choice.py, or WORDS_ALONE": (
        *(name for name, _ in test_tool_choice.RECORDS),
        *test_tool_choice.WORDS_ALONE,
    ),
    "KEYS of tests/wires/test_tables.py, or WITHOUT_FORM": (*KEYS, *WITHOUT_FORM),
    "WORDS of src/turnlog/providers/too_large.py, by its api": [
        name for name in sorted(BUILT_IN) if get(name).api in WORDS
    ],
    "REPLIES of tests/wires/test_matrix.py": test_matrix.REPLIES,
    "LACKS of tests/wires/test_matrix.py": test_matrix.LACKS,
    "CHECKS of tests/wires/typed_bodies.py": typed_bodies.CHECKS,
    "the help of ProviderName in src/turnlog/cli/commands/wire.py": re.findall("[a-z_]+", HELP.partition(":")[2]),
}


def _named(cells: Iterable[str]) -> set[str]:
    """Return the names in cells of a table, of which one can have several."""
    return {name for cell in cells for name in cell.split(", ") if name}


@pytest.mark.parametrize("place", TABLES)
def test_each_adapter_has_a_row(place: str) -> None:
    """And what is no adapter has none."""
    found, wanted = set(TABLES[place]), {*BUILT_IN}
    if missing := sorted(wanted - found):
        pytest.fail(f"add {', '.join(missing)} to {place}")
    if unknown := sorted(found - wanted - {Postcard.name}):
        pytest.fail(f"take {', '.join(unknown)} out of {place}: no adapter has the name")


@pytest.mark.parametrize("heading", ["The adapters", "Tools and search", "Parameters"])
def test_each_adapter_has_a_row_on_the_page(heading: str) -> None:
    """In the first table under a heading."""
    missing = sorted({*BUILT_IN} - _named(row[0] for row in table(heading)[1:]))
    assert not missing, f"add a row for {', '.join(missing)} under {heading!r} of docs/reference/providers.md"


@pytest.mark.parametrize("heading", ["What a wire carries", "Replies"])
def test_each_adapter_has_a_column_on_the_page(heading: str) -> None:
    """In the first table under a heading."""
    missing = sorted({*BUILT_IN} - _named(table(heading)[0]))
    assert not missing, f"add a column for {', '.join(missing)} under {heading!r} of docs/reference/providers.md"


def test_each_adapter_is_in_the_table_of_output_schemas() -> None:
    """It has no heading of its own."""
    rows = PAGE.partition("| adapter | where it is sent |")[2].partition("\n\n")[0]
    missing = sorted({*BUILT_IN} - set(re.findall("`([a-z_]+)`", rows)))
    assert not missing, f"say in docs/reference/providers.md where the output schema of {', '.join(missing)} is sent"


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_each_adapter_are_known_by_their_form(name: str) -> None:
    """Else they would stand in the log where one is pasted."""
    key = KEYS[name] + "7Hq2Zr9Wm4XtB5nD" * 8
    assert has_form(f"It is {key}."), f"add the form of {KEYS[name]}… to _FORMS of src/turnlog/record/secret_forms.py"
