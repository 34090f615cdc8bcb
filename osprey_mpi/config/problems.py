"""Turn pydantic's errors into sentences: what, its value, the rule, and the nearest key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from osprey_mpi.config.nearest import nearest
from osprey_mpi.config.parameters import PARAMETER_MODELS
from osprey_mpi.config.schema import Config
from osprey_mpi.config.section import Fault, KeyPath, show

Details = Mapping[str, Any]

_NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?")
_BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}
_TYPES = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "text",
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
}
# Raised beside the error that is its cause: a default that depends on another key could not be computed.
_ECHOES = frozenset({"default_factory_not_called"})
# A key of another section must be more similar: `checkpoint.enable` is no misplaced `objective.penalty`.
_ELSEWHERE_CUTOFF = 0.75
# What other tools call the kinds of parameters.
_KINDS = {
    **dict.fromkeys(("float", "double", "continuous", "uniform", "number"), "real"),
    "int": "integer",
    **dict.fromkeys(("choice", "category", "enum", "ordinal"), "categorical"),
    **dict.fromkeys(("const", "constant"), "fixed"),
}


def translate(error: ValidationError) -> Iterator[Fault]:
    """Yield every error of a validation with the path of its key and one sentence."""
    for details in error.errors(include_url=False):
        path = _key_path(details["loc"])
        if details["type"] == "faults":
            yield from (Fault((*path, *fault.path), fault.message) for fault in details["ctx"]["faults"])
        elif details["type"] == "union_tag_invalid":
            tag = details["input"]["type"]
            known = f"must be one of {', '.join(PARAMETER_MODELS)}"
            yield Fault((*path, "type"), f"is {show(tag)}, {known}{_meant_kind(tag)}")
        elif details["type"] == "union_tag_not_found":
            yield Fault((*path, "type"), f"is missing, must be one of {', '.join(PARAMETER_MODELS)}")
        elif details["type"] not in _ECHOES and not _counts_refused_items(details):
            yield Fault(path, _sentence(details))


def unknown_keys(error: ValidationError) -> list[KeyPath]:
    """List the keys that no section knows."""
    return [_key_path(d["loc"]) for d in error.errors(include_url=False) if d["type"] == "extra_forbidden"]


def _key_path(location: tuple[str | int, ...]) -> KeyPath:
    """Drop what pydantic puts between keys: the kind of a parameter, and the kinds of JSON values."""
    if location[:1] == ("parameters",) and len(location) > 2:
        location = (*location[:2], *location[3:])
    if location[:2] == ("objective", "options"):
        location = (*location[:3], *location[4::2])
    return location


def _counts_refused_items(details: Details) -> bool:
    """Tell if too few items were counted only because those that are refused were not."""
    return bool(details["type"] == "too_short" and len(details["input"]) >= details["ctx"]["min_length"])


def _sentence(details: Details) -> str:
    kind, value = details["type"], details.get("input")
    context: Details = details.get("ctx", {})
    if kind == "missing":
        return "is missing; it has no default"
    if kind == "extra_forbidden":
        return _unknown_key(details["loc"])
    if kind == "value_error":
        return f"is {show(value)}, {context['error']}"
    if value is None:
        return "has no value; give it one, or remove the key if it has a default"
    if kind in _TYPES:
        return f"is {show(value)}, must be {_TYPES[kind]}{_hint(kind, value)}"
    if kind in _BOUNDS:
        words, limit = _BOUNDS[kind]
        return f"is {show(value)}, must be {words} {show(context[limit])}"
    if kind in ("literal_error", "enum"):
        allowed = re.findall(r"'([^']*)'", str(context["expected"]))
        return f"is {show(value)}, must be one of {', '.join(allowed)}{_meant(value, allowed)}"
    if kind == "string_pattern_mismatch":
        return f"is {show(value)}, must match {context['pattern']}"
    if kind in ("too_short", "string_too_short"):
        return f"is {show(value)}, must have at least {context['min_length']} {_unit(value, context['min_length'])}"
    if kind in ("too_long", "string_too_long"):
        return f"is {show(value)}, must have at most {context['max_length']} {_unit(value, context['max_length'])}"
    return f"is {show(value)}: {details['msg']}"


def _unit(value: object, n: int) -> str:
    word = "character" if isinstance(value, str) else "item"
    return word if n == 1 else f"{word}s"


def _hint(kind: str, value: object) -> str:
    """Say what to write instead, where the value shows what was meant."""
    wants_number = kind in ("float_type", "int_type")
    if isinstance(value, bool):
        quotes = "; put it in quotes if text is meant" if kind == "string_type" else ""
        return ", and true and false are none" if wants_number else quotes
    if isinstance(value, str) and wants_number:
        return "; remove the quotes" if _NUMBER.fullmatch(value) else ""
    if isinstance(value, str) and kind == "bool_type" and value.lower() in ("yes", "no", "on", "off"):
        return ", the only words for it in YAML 1.2"
    if isinstance(value, float) and wants_number and value.is_integer() and abs(value) < 2**53:
        return f"; write {int(value)}"
    if isinstance(value, int | float) and kind == "string_type":
        return "; put it in quotes if text is meant"
    return ""


def _meant(word: object, known: Mapping[str, object] | list[str]) -> str:
    match = nearest(word, known) if isinstance(word, str) else None
    return f"; did you mean '{match}'?" if match else ""


def _meant_kind(tag: object) -> str:
    if isinstance(tag, str) and tag.lower() in ("bool", "boolean"):
        return "; write {type: categorical, choices: [false, true]}"
    if isinstance(tag, str) and tag.lower() in _KINDS:
        return f"; did you mean '{_KINDS[tag.lower()]}'?"
    return _meant(tag, PARAMETER_MODELS)


def _unknown_key(location: tuple[str | int, ...]) -> str:
    key, model = str(location[-1]), _model_at(location)
    known = _keys(model) if model is not None else []
    match = nearest(key, known)
    if match:
        return f"is an unknown key; did you mean '{match}'?"
    elsewhere = {path.rpartition(".")[2]: path for path in _all_keys(Config)}
    match = nearest(key, elsewhere, _ELSEWHERE_CUTOFF)
    if match:
        return f"is an unknown key here; did you mean {elsewhere[match]}?"
    return f"is an unknown key; known here are {', '.join(known)}"


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _all_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        yield key
        inner = _model_in(field.annotation)
        if inner is not None and name != "parameters":
            yield from _all_keys(inner, f"{key}.")


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Find the section that a key holds, be it optional or a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for model in map(_model_in, get_args(annotation)) if model is not None), None)


def _model_at(location: tuple[str | int, ...]) -> type[BaseModel] | None:
    """Find the section that pydantic's location of one of its keys is in."""
    if location[:1] == ("parameters",):
        return PARAMETER_MODELS.get(str(location[2])) if len(location) > 2 else None
    model: type[BaseModel] | None = Config
    for part in location[:-1]:
        if model is not None and isinstance(part, str):
            field = next((f for name, f in model.model_fields.items() if (f.alias or name) == part), None)
            model = _model_in(field.annotation) if field is not None else None
    return model
