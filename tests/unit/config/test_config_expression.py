"""Constraints: values by hand, inactive names, and nothing but arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from osprey_mpi.config.expression import SMALLEST, parse

A, B = np.array([0.25, 0.5, 2.0]), np.array([0.5, 0.5, 1.0])
X = np.array([[0.0, 1.0], [2.0, 3.0], [-1.0, -4.0]])
VALUES = {"a": A, "b": B, "x": X}


@pytest.mark.parametrize(
    ("text", "violation"),
    [
        ("a + b <= 1", [0, 0, 2]),
        ("1 >= a + b", [0, 0, 2]),
        ("a >= b", [0.25, 0, 0]),
        ("a < b", [0, SMALLEST, 1]),
        ("a == b", [0.25, 0, 1]),
        ("0.3 <= a <= 1", [0.3 - 0.25, 0, 1]),
        ("-a * 2 ** 2 <= -4", [3, 2, 0]),
        ("a / b % 2 <= 0", [0.5, 1, 0]),
        ("max(a, b, 1) <= 1", [0, 0, 1]),
        ("min(1, 2, a) <= 0", [0.25, 0.5, 1]),
        ("sqrt(a) + abs(-b) - exp(0) <= log(1)", [0, 2**-0.5 - 0.5, 2**0.5]),
        ("sum(x) <= 1", [0, 4, 0]),
        ("max(x) - min(x) <= 1", [0, 0, 2]),
        ("x[1] <= a", [0.75, 2.5, 0]),
        ("x <= 1", [0, 1 + 2, 0]),
        ("x <= a + 1", [0, 0.5 + 1.5, 0]),
        ("abs(x) * a <= 1", [0, 0.5, 1 + 7]),
        ("x == 0", [1, 5, 5]),
        ("sqrt(x[0]) <= 5", [0, 0, np.inf]),
        ("a / (b - 0.5) <= 1", [np.inf, np.inf, 3]),
    ],
)
def test_violation_is_the_amount_by_hand(text: str, violation: list[float]) -> None:
    result = parse(text).violation(VALUES)
    assert result.shape == (3,)
    np.testing.assert_allclose(result, violation, rtol=1e-15, atol=1e-15)
    assert ((result > 0) == (np.array(violation) > 0)).all()


def test_equality_forgives_rounding() -> None:
    assert parse("a + b == 0.3").violation({"a": np.array([0.1]), "b": np.array([0.2])}).tolist() == [0.0]


def test_a_constraint_on_an_inactive_parameter_does_not_apply() -> None:
    values = {"a": np.array([np.nan, 2.0]), "x": np.array([[9.0, 9.0], [np.nan, np.nan]])}
    assert parse("a + 1 <= 0").violation(values).tolist() == [0.0, 3.0]
    assert parse("sum(x) <= 0").violation(values).tolist() == [18.0, 0.0]
    assert parse("sum(x) + a <= 0").violation(values).tolist() == [0.0, 0.0]


def test_names_come_once_in_order() -> None:
    assert parse("b + a[0] * b <= sum(c)").names == ("b", "a", "c")


def test_keywords_of_python_name_parameters_like_any_word() -> None:
    expression = parse("lambda * 2 - class[1] <= sum(from) / with_")
    assert expression.names == ("lambda", "class", "from", "with_")
    assert parse("lambda - 1 <= 0").violation({"lambda": np.array([0.5, 3.0])}).tolist() == [0.0, 2.0]
    with pytest.raises(ValueError, match=r"^contains 'lambda \^ 2': only"):
        parse("lambda ^ 2 <= 1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a + b", "compares nothing"),
        ("a = 1", "an equality is written =="),
        ("a ^ 2 <= 1", "contains 'a ^ 2'"),
        ("a <= 1 and b <= 1", "one list item per constraint"),
        ("a != 1", "none of <= >= < > =="),
        ("a in b", "none of <= >= < > =="),
        ("1 <= 2", "names no parameter"),
        ("0 <= 1 <= a", "compares two numbers"),
        ("a <= True", "contains True, which is no number"),
        ("a <= 'text'", "contains ''text''"),
        ("a <= 1j", "contains '1j'"),
        ("a.real <= 1", "contains 'a.real'"),
        ("eval('1') <= a", "calls 'eval', which is not known"),
        ("a.__class__() <= 1", "calls 'a.__class__', which is not known"),
        ("(lambda: 1)() <= a", "is no expression"),
        ("a + in <= 1", "'in' is a word of the expression's language and can name no parameter in it"),
        ("[a for a in b] <= 1", "is no expression"),
        ("x[a] <= 1", "an element is written x[0]"),
        ("x[-1] <= 1", "an element is written x[0]"),
        ("x[0:2] <= 1", "an element is written x[0]"),
        ("x[True] <= 1", "an element is written x[0]"),
        ("sqrt(a, b) <= 1", "calls sqrt with 2 arguments; it takes one"),
        ("min() <= a", "calls min with 0 arguments"),
        ("min(*a) <= 1", "only plain arguments"),
        ("a <= 10 ** 10 ** 10", "no finite result"),
        ("a <= 1 / 0", "no finite result"),
        ("a <= 1e999", "beyond 1.8e308"),
        ("a <= " + "9" * 400, "beyond 1.8e308"),
        ("a <= " + "(" * 400 + "1" + ")" * 400, "is no expression"),
        ("a <= 1" + " + 1" * 500, "at most 1000 are read"),
        ("a <= 1\0", "is no expression: it holds the character NUL"),
        ("a <= " + "-" * 900 + "b", "is nested too deeply: at most 200 levels are read"),
        ("a <= 1" + " + b" * 200, "is nested too deeply: at most 200 levels are read"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse(text)
    assert message in str(caught.value)


def test_what_is_nested_as_deeply_as_is_read_can_be_computed() -> None:
    for text in ("a <= 1" + " + b" * 195, "a <= " + "-" * 197 + "b"):
        expression = parse(text)
        expression.check({"a": None, "b": None})
        assert expression.violation({"a": A, "b": B}).shape == A.shape


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x + y <= 1", "combines arrays of 2 and 3 elements"),
        ("x <= y", "combines arrays of 2 and 3 elements"),
        ("x[2] <= 1", "its elements are 0 to 1"),
        ("a[0] <= 1", "a is no array"),
        ("sum(a) <= 1", "calls sum with one value"),
        ("max(x[0]) <= 1", "or several arguments"),
    ],
)
def test_shapes_are_checked_before_anything_is_computed(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse(text).check({"a": None, "x": 2, "y": 3})
    assert message in str(caught.value)
