"""CSV by its rules: what is a record, what a bad line costs, and what a column may be called a number for."""

from __future__ import annotations

import csv
import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.spark.jobs.csv_records import NOT_CSV, Dialect, Kind, Objects, Parser, columns_of, kind_of, narrowed


def records(
    text: bytes, dialect: Dialect | None = None, most: int = 10_000
) -> list[tuple[bytes, list[str | None], str | None]]:
    return [tuple(each) for each in Parser(dialect or Dialect(), most).records(text.split(b"\n"))]


def test_fields_of_every_kind() -> None:
    [found] = records(b'1,,"","a ""b"" c","x\r\ny,z", plain ,5\r')
    assert found[1] == ["1", None, "", 'a "b" c', "x\r\ny,z", " plain ", "5"]
    assert found[0] == b'1,,"","a ""b"" c","x\r\ny,z", plain ,5'


@pytest.mark.parametrize(
    "bad", [b'1,"stray', b'1,"closed"early', b'5" pipe,1', b"1,a\rb", b'1,"', b'""",'], ids=lambda bad: bad.decode()
)
@pytest.mark.parametrize("before", [b"", b'0,"fine"\n', b'0,"two\nlines"\n'], ids=["first", "after one", "after two"])
def test_a_bad_line_costs_no_other(bad: bytes, before: bytes) -> None:
    good = records(before) if before else []
    found = records(before + bad + b'\n2,"next"\n3,plain\n4,"two\nlines"')
    assert found[: len(good)] == [each for each in good if each[0]]
    assert found[len(good) :] == [
        (bad, [], NOT_CSV),
        (b'2,"next"', ["2", "next"], None),
        (b"3,plain", ["3", "plain"], None),
        (b'4,"two\nlines"', ["4", "two\nlines"], None),
    ]


def test_an_open_quote_is_not_followed_for_ever() -> None:
    lines = b'1,"open\n' + b"2,x\n" * 1000
    found = records(lines, most=100)
    assert [each[2] for each in found[:2]] == [NOT_CSV, None]
    assert len(found) == 1001


def test_other_dialects() -> None:
    semicolons = Dialect(sep=";", quote="'", escape="\\", null="NULL", comment="#", encoding="latin-1")
    assert records(b"# said\n'it\\'s';NULL;'NULL';\xe9;", semicolons) == [
        (b"'it\\'s';NULL;'NULL';\xe9;", ["it's", None, "NULL", "é", ""], None)
    ]
    assert records(b"1,\xe9") == [(b"1,\xe9", [], "it is not utf-8")]
    for wrong in (Dialect(sep="::"), Dialect(quote="é"), Dialect(encoding="utf-16"), Dialect(encoding="klingon")):
        with pytest.raises(ConfigError, match="csv: "):
            wrong.check()


@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9), min_size=2, max_size=4),
        max_size=9,
    )
)
def test_what_others_write_is_read(rows: list[list[str]]) -> None:
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    found = records(written.getvalue().encode(), most=1 << 20)
    assert [each[1] for each in found] == rows


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *((text, "number") for text in ("0", "-5", "1.10", "0.5", "999999999999999999", "123456789.123456")),
        *((text, "text") for text in ("00123", "-0", "1e5", "1.", ".5", "+1", " 1", "1 ", "0x1", "NaN", "\u0661", "")),
        *((text, "text") for text in ("9223372036854775808", "0.1234567890123456789", "True", "yes", "2026-01-02")),
        *((text, "boolean") for text in ("true", "false")),
    ],
)
def test_kinds(text: str, kind: Kind) -> None:
    assert kind_of(text) == kind


def test_a_column_is_what_all_its_fields_are() -> None:
    kinds: list[Kind | None] = [None] * 5
    narrowed(kinds, ["1", "true", None, "1", "00123"])
    narrowed(kinds, ["2.5", None, None, "true", "124"])
    assert kinds == ["number", "boolean", None, "text", "text"]
    objects = Objects(["a", 'b"', "c"], ["number", "boolean", "text"])
    assert objects.encode(["1.10", None, "x\n"]) == b'{"a":1.10,"b\\"":null,"c":"x\\n"}'
    assert objects.encode(["one", "true", "x"]) is None


@given(
    st.lists(st.one_of(st.none(), st.text(), st.integers().map(str), st.decimals().map(str)), min_size=3, max_size=3)
)
def test_objects_lose_nothing(fields: list[str | None]) -> None:
    kinds: list[Kind | None] = [None] * 3
    narrowed(kinds, fields)
    made = Objects(["a", "b", "c"], [kind or "text" for kind in kinds]).encode(fields)
    assert made is not None
    found = msgspec.json.decode(made, type=dict[str, msgspec.Raw])
    for name, kind, text in zip("abc", kinds, fields, strict=True):
        raw = bytes(found[name])
        assert (raw.decode() if kind in ("number", "boolean") else msgspec.json.decode(raw)) == text


def test_headers() -> None:
    assert columns_of(["a", None, ""]) == ["a", "_c1", "_c2"]
    with pytest.raises(ConfigError, match="'a' more than once"):
        columns_of(["a", "b", "a"])
