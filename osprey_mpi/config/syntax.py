"""Read the text of a constraint into a small tree of numbers, names and calls; nothing else gets through.

Python's own parser does the reading, but its tree is never run: each node is either turned into one of ours or refused.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# Longer texts are programs, not constraints.
MAX_LENGTH = 1000
# Keeps what walks the tree far from Python's recursion limit; each + of a sum is a level.
MAX_DEPTH = 200

OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Pow: "power",
    ast.Mod: "remainder",
}
# One argument each, element by element.
ELEMENTWISE = {"abs": "abs", "sqrt": "sqrt", "exp": "exp", "log": "log"}
# One argument: over the elements of an array parameter. Several: the smallest or largest of them.
EXTREMES = {"min": "minimum", "max": "maximum"}
FUNCTIONS = (*ELEMENTWISE, *EXTREMES, "sum")
COMPARISONS: Mapping[type[ast.AST], str] = {ast.LtE: "<=", ast.Lt: "<", ast.GtE: ">=", ast.Gt: ">", ast.Eq: "=="}
# Words of Python that mean something in an expression of numbers, if only in one that is refused with a reason.
WORDS = frozenset({"and", "or", "not", "in", "is", "if", "else", "None", "True", "False"})
# All others may name parameters, `lambda` above all.
_KEYWORD = re.compile(rf"\b({'|'.join(set(keyword.kwlist) - WORDS)})\b")


@dataclass(frozen=True, slots=True)
class Name:
    """Stand for a parameter, or for one element of an array parameter."""

    name: str
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """Apply a function of the array module; `over_elements` reduces an array parameter to one value per row."""

    function: str
    arguments: tuple[Node, ...]
    over_elements: bool = False


Node = float | Name | Call


@dataclass(frozen=True, slots=True)
class Comparison:
    """Hold one relation: `smaller <= larger`, `<` if strict, or `==` if equal."""

    smaller: Node
    larger: Node
    is_strict: bool = False
    is_equal: bool = False


def read(text: str) -> tuple[Comparison, ...]:
    """Parse a constraint; `0 <= a <= b` gives two comparisons.

    Raises ValueError with one sentence for anything that is not a comparison of arithmetic over names.
    """
    if not text.strip():
        raise ValueError("is empty, must be a comparison such as a + b <= 1")
    if "\0" in text:
        raise ValueError("is no expression: it holds the character NUL")
    if len(text) > MAX_LENGTH:
        raise ValueError(f"has {len(text)} characters, at most {MAX_LENGTH} are read")
    try:
        tree = ast.parse(_KEYWORD.sub(_as_name, text.strip()), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"is no expression: {error.msg} at character {error.offset}{_hint(text)}") from None
    except (ValueError, RecursionError, MemoryError):
        raise ValueError("is no expression: it is nested too deeply or holds a character that cannot be read") from None
    _refuse_depth(tree)
    if isinstance(tree, ast.BoolOp):
        raise ValueError("uses 'and' or 'or'; write one list item per constraint, all of them must hold")
    if not isinstance(tree, ast.Compare):
        raise ValueError("compares nothing, must contain one of <= >= < > ==")
    sides = [_node(side) for side in (tree.left, *tree.comparators)]
    return tuple(_comparison(op, sides[i], sides[i + 1]) for i, op in enumerate(tree.ops))


def _refuse_depth(tree: ast.AST) -> None:
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise ValueError(f"is nested too deeply: at most {MAX_DEPTH} levels are read, and each + or - is one")


def _as_name(word: re.Match[str]) -> str:
    """Write a keyword's first letter in bold: Python reads that as the same name, but not as the keyword (PEP 3131)."""
    return chr(ord("\N{MATHEMATICAL BOLD SMALL A}") + ord(word[0][0]) - ord("a")) + word[0][1:]


def _comparison(operator: ast.cmpop, left: Node, right: Node) -> Comparison:
    sign = COMPARISONS.get(type(operator))
    if sign is None:
        raise ValueError("uses a comparison that is none of <= >= < > ==")
    if sign.startswith(">"):
        left, right = right, left
    return Comparison(left, right, is_strict=sign in ("<", ">"), is_equal=sign == "==")


def _node(tree: ast.expr) -> Node:
    match tree:
        case ast.Constant(value=bool()):
            raise ValueError(f"contains {tree.value!r}, which is no number")
        case ast.Constant(value=int() | float() as value):
            return _number(value)
        case ast.Name(id=name):
            return Name(name)
        case ast.Subscript():
            return _element(tree)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _folded("negative", (_node(operand),))
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _node(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return _folded(OPERATORS[type(op)], (_node(left), _node(right)))
        case ast.Call():
            return _call(tree)
        case _:
            raise ValueError(
                f"contains '{ast.unparse(tree)}': only numbers, parameters, x[0], + - * / ** %, "
                f"and {', '.join(FUNCTIONS)} are known"
            )


def _number(value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if number == float("inf"):
        raise ValueError("contains a number beyond 1.8e308")
    return number


def _element(tree: ast.Subscript) -> Name:
    match tree:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int() as index)) if type(index) is int:
            return Name(name, index)
    raise ValueError(f"contains '{ast.unparse(tree)}': an element is written x[0], x[1], ... with a number from 0")


def _call(tree: ast.Call) -> Node:
    name = tree.func.id if isinstance(tree.func, ast.Name) else ast.unparse(tree.func)
    if name not in FUNCTIONS:
        raise ValueError(f"calls '{name}', which is not known; functions are {', '.join(FUNCTIONS)}")
    if tree.keywords or any(isinstance(argument, ast.Starred) for argument in tree.args):
        raise ValueError(f"calls {name} with * or keywords; only plain arguments are known")
    arguments = tuple(_node(argument) for argument in tree.args)
    if not arguments or (len(arguments) > 1 and name not in EXTREMES):
        needed = "at least one" if name in EXTREMES else "one"
        raise ValueError(f"calls {name} with {len(arguments)} arguments; it takes {needed}")
    if name in ELEMENTWISE:
        return _folded(ELEMENTWISE[name], arguments)
    if len(arguments) == 1:
        return Call(name, arguments, over_elements=True)
    result = arguments[0]
    for argument in arguments[1:]:
        result = _folded(EXTREMES[name], (result, argument))
    return result


def _folded(function: str, arguments: tuple[Node, ...]) -> Node:
    """Make a call, or its value if all arguments are numbers: array modules get at least one array that way."""
    numbers = [argument for argument in arguments if isinstance(argument, float)]
    if len(numbers) < len(arguments):
        return Call(function, arguments)
    compute: Callable[..., Any] = getattr(np, function)
    with np.errstate(all="ignore"):
        value = float(compute(*numbers))
    if not np.isfinite(value):
        raise ValueError("contains a calculation with numbers alone that has no finite result")
    return value


def _hint(text: str) -> str:
    if "^" in text:
        return "; a power is written **"
    if "=" in text and not any(sign in text for sign in ("==", "<=", ">=")):
        return "; an equality is written =="
    words = [word for word in re.findall(r"\w+", text) if word in WORDS]
    return f"; '{words[0]}' is a word of the expression's language and can name no parameter in it" if words else ""
