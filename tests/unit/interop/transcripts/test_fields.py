"""Parts of JSON texts, with what was taken out of them."""

import time

from turnlog.interop.transcripts.fields import part_of
from turnlog.interop.transcripts.transcript import Given


def test_part_has_the_findings_in_it() -> None:
    """Not those of a part whose place only begins so, and by their fields in the part."""
    places = ["b", "b.c", "b.c[0].d", "b[1]", "bc", "b c", "a.b", ""]
    given = Given(place=7, text=b"{}", findings=sorted((place, f"kind {place}") for place in places))
    part = part_of(given, "b", b"{}")
    assert part.place == 7
    assert part.findings == [("", "kind b"), ("[1]", "kind b[1]"), ("c", "kind b.c"), ("c[0].d", "kind b.c[0].d")]
    assert part_of(part, "c", b"{}").findings == [("", "kind b.c"), ("[0].d", "kind b.c[0].d")]


def test_findings_of_all_parts_are_told_in_time_in_proportion_to_them() -> None:
    """Those of the others are not gone through for each."""
    count = 20_000
    given = Given(place=1, text=b"[]", findings=sorted((f"parts[{number}].text", "x") for number in range(count)))
    begun = time.process_time()
    assert [part_of(given, f"parts[{number}]", b"{}").findings for number in range(count)] == [[("text", "x")]] * count
    assert time.process_time() - begun < 10
