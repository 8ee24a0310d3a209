"""Strict JSON reading: each fault is one problem that names its requirement and its place."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nibblespec.spec.json_faults import MAX_DEPTH, faults
from nibblespec.spec.json_strict import (
    MAX_BYTES,
    MAX_PROBLEMS,
    MAX_VALUES,
    Document,
    parse,
    pointer,
)
from nibblespec.spec.requirements import requirements


def places(document: Document) -> list[tuple[str, str, int, int]]:
    """Reduce problems to requirement, pointer, line and column."""
    return [
        (problem.requirement, problem.pointer, problem.line, problem.column)
        for problem in document.problems
    ]


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"{}", {}),
        (b" [ ] \r\n\t", []),
        (b"null", None),
        (b"[-0, 0, -0.0, 1E5, 1e-7, 2E+2]", [0, 0, -0.0, 100000.0, 1e-7, 200.0]),
        (b"[9007199254740991, -9007199254740991]", [2**53 - 1, 1 - 2**53]),
        (b"1.7976931348623157e308", 1.7976931348623157e308),
        (b"1e-400", 0.0),
        (b'"\\u0041\\/\\b\\ud83d\\ude00"', "A/\b\U0001f600"),
        ('"é\u2028\U0001f600"'.encode(), "é\u2028\U0001f600"),
        (b'{"":{"":1},"a":{"":1}}', {"": {"": 1}, "a": {"": 1}}),
        (b'{"a": "{[{[\\"\\\\", "b": []}', {"a": '{[{["\\', "b": []}),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)),
        (b'"' + b"[" * 1000 + b'"', "[" * 1000),
    ],
)
def test_reads_what_is_json(data: bytes, value: object) -> None:
    assert parse(data) == Document(value, ())


def test_integer_stays_integer_and_fraction_stays_float() -> None:
    value = parse(b"[4, 4.0]").value
    assert isinstance(value, list)
    assert [type(number) for number in value] == [int, float]


@pytest.mark.parametrize(
    ("data", "where", "column", "message"),
    [
        (b"", "", 1, "the document is empty"),
        (b" \t ", "", 4, "the document is empty"),
        (b'{"a": [1, 2', "/a/1", 12, "the document is cut short"),
        (b'{"a"', "/a", 5, "the document is cut short"),
        (b'{"a": "xy', "/a", 7, "a string is not closed before the document ends"),
        (b"[1] 2", "", 5, "data follows the document"),
        (b"{} {}", "", 4, "data follows the document"),
        (b"[1]\x00", "", 4, "data follows the document"),
        (b"[1,]", "/1", 4, "this is no JSON"),
        (b"[,1]", "/0", 2, "this is no JSON"),
        (b'{"a":1,}', "", 8, "this is no JSON"),
        (b'{"a" 1}', "/a", 6, "this is no JSON"),
        (b'{"a": }', "/a", 7, "this is no JSON"),
        (b'{"a":1 "b":2}', "/a", 8, "this is no JSON"),
        (b"{1: 2}", "", 2, "this is no JSON"),
        (b"[1}", "/0", 3, "this is no JSON"),
        (b"[01]", "/0", 2, "this is no JSON"),
        (b"[+1]", "/0", 2, "this is no JSON"),
        (b"[1.]", "/0", 2, "this is no JSON"),
        (b"[.5]", "/0", 2, "this is no JSON"),
        (b"[1e]", "/0", 2, "this is no JSON"),
        (b"[0x1F]", "/0", 2, "this is no JSON"),
        ("[\u0661]".encode(), "/0", 2, "this is no JSON"),
        (b"[True]", "/0", 2, "this is no JSON"),
        (b"[nan]", "/0", 2, "this is no JSON"),
        (b"['a']", "/0", 2, "this is no JSON"),
        (b"// note\n{}", "", 1, "this is no JSON"),
        ("[\u00a01]".encode(), "/0", 2, "this is no JSON"),
        (b'["a\tb"]', "/0", 4, "a string holds a control character"),
        (b'["\\x41"]', "/0", 3, "a string holds an escape that JSON does not know"),
        (b'["\\u00g0"]', "/0", 4, "a string holds an escape that JSON does not know"),
    ],
)
def test_breach_of_the_grammar_is_one_problem_with_its_place(
    data: bytes, where: str, column: int, message: str
) -> None:
    """JSON-SYNTAX."""
    document = parse(data)
    assert places(document) == [("JSON-SYNTAX", where, 1, column)]
    assert document.problems[0].message == message
    assert document.value is None


def test_syntax_problem_says_what_was_expected_and_found() -> None:
    (problem,) = parse(b'{"layers": {"a": 1 "b": 2}}').problems
    assert (problem.expected, problem.found) == ("',' or '}'", '"b"')


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_lines_and_columns_count_characters_from_one(line_end: bytes) -> None:
    data = line_end.join([b"{", '"é😀": 1,'.encode(), '"é😀": 2'.encode(), b"}"])
    assert places(parse(data)) == [("JSON-DUPLICATE-KEY", "/é😀", 3, 1)]


def test_every_duplicate_key_is_named_with_its_path() -> None:
    """JSON-DUPLICATE-KEY."""
    data = b'{"x": [{"a/b": 1, "c": {"~": 1, "~": 2}, "a/b": 3}], "x": 4, "x": 5}'
    assert places(parse(data)) == [
        ("JSON-DUPLICATE-KEY", "/x/0/c/~0", 1, 33),
        ("JSON-DUPLICATE-KEY", "/x/0/a~1b", 1, 42),
        ("JSON-DUPLICATE-KEY", "/x", 1, 54),
        ("JSON-DUPLICATE-KEY", "/x", 1, 62),
    ]


def test_keys_are_compared_after_escapes_are_resolved() -> None:
    """JSON-DUPLICATE-KEY."""
    assert places(parse(b'{"a": 1, "\\u0061": 2}')) == [("JSON-DUPLICATE-KEY", "/a", 1, 10)]


def test_keys_that_only_normalization_makes_equal_are_two() -> None:
    """JSON-DUPLICATE-KEY."""
    assert parse('{"é": 1, "e\u0301": 2}'.encode()).problems == ()


def test_last_of_equal_keys_stays_in_the_value() -> None:
    assert parse(b'{"a": 1, "a": 2}').value == {"a": 2}


def test_same_key_in_different_objects_is_no_duplicate() -> None:
    """JSON-DUPLICATE-KEY."""
    assert parse(b'[{"a": 1}, {"a": {"a": 2}}]').problems == ()


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_constant_is_a_problem_and_null_in_the_value(constant: str) -> None:
    """JSON-NONFINITE."""
    document = parse(f'{{"results": [1, {constant}]}}'.encode())
    assert places(document) == [("JSON-NONFINITE", "/results/1", 1, 17)]
    assert document.problems[0].found == constant
    assert document.value == {"results": [1, None]}


@pytest.mark.parametrize(
    "number", ["1e400", "-1e400", "1.7976931348623159e308", "9" * 310, "-" + "1" * 20_000]
)
def test_number_that_overflows_is_a_problem_and_null_in_the_value(number: str) -> None:
    """JSON-NUMBER-RANGE."""
    document = parse(f"[{number}]".encode())
    assert places(document) == [("JSON-NUMBER-RANGE", "/0", 1, 2)]
    assert document.value == [None]


def test_integer_of_a_million_digits_is_one_problem() -> None:
    """JSON-NUMBER-RANGE."""
    (problem,) = parse(b'{"a": ' + b"7" * 1_000_000 + b"}").problems
    assert problem.requirement == "JSON-NUMBER-RANGE"
    assert len(problem.found) < 80


@pytest.mark.parametrize("integer", [2**53, -(2**53), 10**308])
def test_integer_beyond_float64_is_a_warning_and_stays(integer: int) -> None:
    """JSON-INTEGER-EXACT."""
    document = parse(str(integer).encode())
    assert places(document) == [("JSON-INTEGER-EXACT", "", 1, 1)]
    assert document.value == integer
    assert requirements()["JSON-INTEGER-EXACT"].severity == "warning"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'["\\ud800"]', ["\ufffd"]),
        (b'["\\udc00 \\ud83d\\ude00"]', ["\ufffd \U0001f600"]),
        (b'["\\ude00\\ud83d"]', ["\ufffd\ufffd"]),
        (b'["\\uD800\\u0041"]', ["\ufffdA"]),
    ],
)
def test_half_a_surrogate_pair_is_a_problem_and_replaced(data: bytes, value: object) -> None:
    """JSON-SURROGATES."""
    document = parse(data)
    assert places(document) == [("JSON-SURROGATES", "/0", 1, 2)]
    assert document.value == value


def test_half_a_surrogate_pair_in_a_key_leaves_a_pointer_that_can_be_printed() -> None:
    """JSON-SURROGATES."""
    document = parse(b'{"\\udfff": [{"\\ud800": 1}]}')
    assert [problem.pointer for problem in document.problems] == ["/\ufffd", "/\ufffd/0/\ufffd"]
    assert document.value == {"\ufffd": [{"\ufffd": 1}]}


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
def test_other_encoding_is_named(encoding: str) -> None:
    """JSON-ENCODING."""
    document = parse('{"a": 1}'.encode(encoding))
    (problem,) = document.problems
    assert problem.requirement == "JSON-ENCODING"
    assert problem.found.startswith(encoding[:6].upper())
    assert document.value is None


def test_byte_order_mark_is_a_problem_and_no_hindrance() -> None:
    """JSON-ENCODING."""
    document = parse(b'\xef\xbb\xbf{"a": 1}')
    assert places(document) == [("JSON-ENCODING", "", 1, 1)]
    assert document.value == {"a": 1}


@pytest.mark.parametrize(
    "wrong", [b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"]
)
def test_bytes_that_are_no_utf8_are_a_problem_with_its_place(wrong: bytes) -> None:
    """JSON-ENCODING."""
    document = parse('{\n"é": "'.encode() + wrong + b'"}')
    assert places(document) == [("JSON-ENCODING", "", 2, 7)]
    assert document.value is None


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_nesting_of_a_hundred_thousand_levels_is_one_problem(opening: str) -> None:
    """JSON-DEPTH."""
    (problem,) = parse(opening.encode() * 100_000).problems
    assert problem.requirement == "JSON-DEPTH"
    assert problem.pointer.count("/") == MAX_DEPTH


@pytest.mark.parametrize(
    ("end", "requirement"), [(b"[" * 100_000, "JSON-DEPTH"), (b"tru]", "JSON-SYNTAX")]
)
def test_refusal_is_reported_behind_thousands_of_other_problems(
    end: bytes, requirement: str
) -> None:
    document = parse(b"[" + b"NaN," * 5000 + end)
    assert document.problems[-1].requirement == requirement
    assert document.value is None


def test_half_pairs_are_replaced_behind_thousands_of_other_problems() -> None:
    """JSON-SURROGATES."""
    document = parse(b"[" + b"NaN," * 5000 + b'"\\ud800"]')
    assert document.value == [None] * 5000 + ["\ufffd"]


def test_depth_is_bounded_where_brackets_hide_in_strings() -> None:
    """JSON-DEPTH."""
    escaped = '["\\"]]]]\\\\",' * (MAX_DEPTH + 1)
    assert places(parse(escaped.encode()))[0][0] == "JSON-DEPTH"


@pytest.mark.parametrize("text", ["[[],[[]]]", '{"a":[{}]}'])
def test_documents_of_many_shallow_values_are_not_deep(text: str) -> None:
    """JSON-DEPTH."""
    assert parse(("[" + ",".join([text] * 5000) + "]").encode()).problems == ()


def test_document_with_too_many_values_is_one_problem() -> None:
    """JSON-VALUES."""
    document = parse(b"[" + b"1," * MAX_VALUES + b"1]")
    assert [problem.requirement for problem in document.problems] == ["JSON-VALUES"]
    assert document.value is None


def test_document_with_as_many_values_as_allowed_is_read() -> None:
    """JSON-VALUES."""
    items = MAX_VALUES // 2
    document = parse(b"[" + b"[]," * (items - 1) + b"[]" + b" ]")
    assert document == Document([[]] * items, ())


def test_document_that_is_too_large_is_one_problem() -> None:
    """JSON-SIZE."""
    document = parse(bytes(MAX_BYTES + 1))
    assert places(document) == [("JSON-SIZE", "", 0, 0)]


def test_faults_of_several_kinds_are_all_reported_in_order() -> None:
    data = b'\xef\xbb\xbf{"a": NaN, "a": "\\ud800", "b": 1e999, "c": 9007199254740993, "d": tru}'
    assert [problem.requirement for problem in parse(data).problems] == [
        "JSON-ENCODING",
        "JSON-NONFINITE",
        "JSON-DUPLICATE-KEY",
        "JSON-SURROGATES",
        "JSON-NUMBER-RANGE",
        "JSON-INTEGER-EXACT",
        "JSON-SYNTAX",
    ]


def test_problems_of_one_kind_are_listed_up_to_a_bound_and_others_still_found() -> None:
    data = b'{"a": [' + b"NaN, " * 500 + b'1], "a": 2}'
    found = [problem.requirement for problem in parse(data).problems]
    assert found == ["JSON-NONFINITE"] * (MAX_PROBLEMS + 1) + ["JSON-DUPLICATE-KEY"]


@pytest.mark.parametrize(
    ("last", "requirement"),
    [
        (b'"a": 1, "a": 2', "JSON-DUPLICATE-KEY"),
        (b'"a": NaN', "JSON-NONFINITE"),
        (b'"a": 1e999', "JSON-NUMBER-RANGE"),
        (b'"a": "\\ud800"', "JSON-SURROGATES"),
        (b'"a": tru', "JSON-SYNTAX"),
    ],
)
def test_thousands_of_warnings_do_not_hide_an_error_behind_them(
    last: bytes, requirement: str
) -> None:
    data = b'{"seeds": [' + b"9007199254740993, " * 5000 + b"1], " + last + b"}"
    found = [problem.requirement for problem in parse(data).problems]
    assert found == ["JSON-INTEGER-EXACT"] * (MAX_PROBLEMS + 1) + [requirement]


def test_pointer_of_an_absurd_key_is_cut() -> None:
    (problem,) = parse(b'{"' + b"k" * 100_000 + b'": NaN}').problems
    assert len(problem.pointer) < 1000


def test_pointer_escapes_tilde_and_slash() -> None:
    assert pointer("a~b/c", 0, "") == "/a~0b~1c/0/"


def test_every_problem_names_a_requirement_of_the_text() -> None:
    named = {
        problem.requirement
        for data in (b"\xff", b"{", b"[" * 99, b'{"a":NaN,"a":[1e999,9999999999999999,"\\ud800"]}')
        for problem in parse(data).problems
    }
    assert named <= set(requirements())
    assert len(named) == 8


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@settings(deadline=None)
@given(JSON_VALUES, st.booleans(), st.sampled_from([None, 0, 1]))
def test_value_survives_writing_and_reading(value: object, ascii_only: bool, indent: int) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    document = parse(text.encode("utf-8"))
    assert document == Document(value, ())
    assert repr(document.value) == repr(value)  # -0.0 and 0.0, 1 and 1.0
    assert list(faults(text)) == []


PIECES = st.sampled_from(
    ["{", "}", "[", "]", ":", ",", '"a"', '"a":1,', '"b":"x" ,', "0", "01", "-", ".", "e", "E+1",
     "true", "null", "NaN", "-Infinity", " ", "\n", '"', "\\", "\\u0", "\\ud834", "\\udd1e", "é",
     "1e999", "9007199254740993", "\x01", "\u2003"]
)  # fmt: skip


@st.composite
def nearly_json(draw: st.DrawFn) -> str:
    """Draw JSON with a few pieces put in, taken out or doubled; sometimes pieces alone."""
    if draw(st.integers(0, 3)) == 0:
        return "".join(draw(st.lists(PIECES, max_size=12)))
    text = json.dumps(draw(JSON_VALUES), ensure_ascii=draw(st.booleans()))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 8)))
        middle = draw(st.sampled_from(["", text[start:end] * 2]) | PIECES)
        text = text[:start] + middle + text[end:]
    return text


@settings(deadline=None)
@given(nearly_json())
def test_agrees_with_the_standard_library_about_what_is_json(text: str) -> None:
    """The standard library takes NaN, half pairs and equal keys; about the rest it is strict."""
    equal = 0

    def count_equal(pairs: list[tuple[str, object]]) -> None:
        nonlocal equal
        equal += len(pairs) - len(dict(pairs))

    try:
        json.loads(text, object_pairs_hook=count_equal)
        valid = True
    except json.JSONDecodeError:
        valid = False
    found = [problem.requirement for problem in parse(text.encode()).problems]
    assert ("JSON-SYNTAX" not in found) == valid
    assert not valid or found.count("JSON-DUPLICATE-KEY") == equal
    assert [fault.complaint.requirement for fault in faults(text)] == found


@settings(deadline=None)
@given(st.binary(max_size=64))
def test_any_bytes_end_in_a_value_or_a_problem(data: bytes) -> None:
    document = parse(data)
    assert document.value is not None or document.problems or data.strip() == b"null"
