"""What cannot be read is said once: in one sentence, at its place, and nothing that only follows from it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from osprey_mpi.config import Config, config_from_mapping, load_config
from osprey_mpi.config.loader import SIZE_LIMIT_BYTES
from osprey_mpi.errors import ConfigError

SMALL = """\
name: small
objective: {command: [echo, "1"]}
parameters:
  x: {type: real, low: -5, high: 5}
  k: {type: categorical, choices: [a, b]}
budget: {evaluations: 100}
"""
HALF = r"but \ud800 is half of a surrogate pair, which is no character"
NINES = "9" * 5000
SHOWN = f"'{NINES[:56]}..."
TOO_LONG = "a number of 5000 digits: at most 4300 are read"
MERGED = "4:parameters.x: merges (<<) something that is no mapping, or that contains this one"
CHOICE = "must be text, a number, true or false"
TAG = "has the tag tag:yaml.org,2002:python/object:os.system, which is not supported"


def problems(load: Callable[..., Config], text: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text, *overrides)
    return [str(problem).rpartition("run.yaml:")[2] for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("  x:", r'  "x\ud800":', rf"4:parameters.x\ud800: is 'x\ud800', {HALF}"),
        ("small", r'"a\ud800"', rf"1:name: is 'a\ud800', {HALF}"),
        ("[a, b]", r'[a, "\ud800"]', rf"5:parameters.k.choices[1]: is '\ud800', {HALF}"),
        ('"1"', r'"\ud800"', rf"2:objective.command[1]: is '\ud800', {HALF}"),
        ('command: [echo, "1"]', r'python: "m\ud800:f"', rf"2:objective.python: is 'm\ud800:f', {HALF}"),
        ("budget:", r'constraints: ["x\ud800 < 1"]' + "\nbudget:", rf"6:constraints[0]: is 'x\ud800 < 1', {HALF}"),
        ("budget:", r'start: [{"\ud800": 1}]' + "\nbudget:", rf"6:start[0].\ud800: is '\ud800', {HALF}"),
        ("high: 5}", r'high: 5, when: {"\ud800": 1}}', rf"4:parameters.x.when.\ud800: is '\ud800', {HALF}"),
        ("budget:", r'"\ud800": 1' + "\nbudget:", rf"6:\ud800: is '\ud800', {HALF}"),
        ('command: [echo, "1"]', "builtin: sphere, options: {a: {b: [1, .nan]}}",
         "2:objective.options.a.b[1]: is nan, must be a finite number"),
        ("budget:", r'constraints: ["x\0 < 1"]' + "\nbudget:",
         r"6:constraints[0]: 'x\0 < 1' is no expression: it holds the character NUL"),
        ("[a, b]", "[null, 1]", f"5:parameters.k.choices[0]: is null, {CHOICE}"),
        ("[a, b]", "[1, [2]]", f"5:parameters.k.choices[1]: is [2], {CHOICE}"),
        ("[a, b]", "[1, .nan]", "5:parameters.k.choices[1]: is nan, must be a finite number"),
        ("[a, b]", f"[{NINES}, 1]", f"5:parameters.k.choices[0]: is {SHOWN}, {TOO_LONG}"),
        ("[a, b]", "[!!python/object:os.system x, 1]", f"5:parameters.k.choices[0]: {TAG}"),
        ('[echo, "1"]', "[5]", "2:objective.command[0]: is 5, must be text; put it in quotes if text is meant"),
        ('[echo, "1"]', "&c [*c]", "2:objective.command[0]: contains itself through an alias"),
        ("evaluations: 100", f"evaluations: {NINES}", f"6:budget.evaluations: is {SHOWN}, {TOO_LONG}"),
        ("low: -5", f"low: {NINES}", f"4:parameters.x.low: is {SHOWN}, {TOO_LONG}"),
        ("{evaluations: 100}", "&b {evaluations: *b}", "6:budget.evaluations: contains itself through an alias"),
        ("small", "!!python/object:os.system a", f"1:name: {TAG}"),
        ("name:", "!!python/object:os.system\nname:", f"1: {TAG}"),
        ("evaluations:", "null:", "6:budget: has the key null, but keys must be text; put it in quotes"),
        ("{type: real, low: -5, high: 5}", "{<<: 5, type: real}", MERGED),
    ],
)  # fmt: skip
def test_the_true_sentence_alone_is_said(load: Callable[..., Config], old: str, new: str, expected: str) -> None:
    assert SMALL.count(old) == 1
    assert problems(load, SMALL.replace(old, new)) == [expected]


def test_what_is_wrong_elsewhere_is_said_as_well(load: Callable[..., Config]) -> None:
    text = SMALL.replace("low: -5", "low: !!int a").replace("[a, b]", "[a]").replace("name: small\n", "")
    assert problems(load, text) == [
        "1:name: is missing; it has no default",
        "3:parameters.x.low: is 'a', which is no int",
        "4:parameters.k.choices: is ['a'], must have at least 2 items",
    ]


@pytest.mark.parametrize("name", ["budget", "budget.evaluations"])
def test_an_unreadable_override_hides_what_follows_from_it(load: Callable[..., Config], name: str) -> None:
    text = SMALL.replace("budget: {evaluations: 100}\n", "")
    assert problems(load, text, f"{name}=!foo 1") == [f"--set {name}: has the tag !foo, which is not supported"]


def test_a_surrogate_pair_is_the_character_that_json_means(load: Callable[..., Config]) -> None:
    parameter = load(SMALL.replace("[a, b]", r'["\ud83d\ude00", b]')).parameters["k"]
    assert getattr(parameter, "choices") == ("\N{GRINNING FACE}", "b")  # noqa: B009  # of one kind of parameter only


def test_a_mapping_is_looked_at_in_the_same_way() -> None:
    with pytest.raises(ConfigError) as caught:
        config_from_mapping({"name": "a\ud800"})
    assert str(caught.value.problems[0]) == rf"name: is 'a\ud800', {HALF}"


def test_a_mapping_that_holds_itself_is_nested_too_deeply() -> None:
    options: dict[str, object] = {}
    options["again"] = options
    with pytest.raises(ConfigError) as caught:
        config_from_mapping({"objective": {"options": options}})
    assert str(caught.value) == "objective: is nested too deeply: at most 100 levels are read"


@pytest.mark.parametrize(
    ("choices", "same"),
    [("[a, b, a]", "[2]: is 'a'"), ("[1, 2, 1.0]", "[2]: is 1.0, which equals 1"), ("[2020-01-01, 2020-01-01]",
     "[1]: is '2020-01-01'")],
)  # fmt: skip
def test_equal_choices_are_named_once(load: Callable[..., Config], choices: str, same: str) -> None:
    found = problems(load, SMALL.replace("[a, b]", choices))
    assert found == [f"5:parameters.k.choices{same}: already choice 1; choices must differ"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"1"', r'"a\0b"', "2:objective.command[1]"),
        ("budget:", r'output: {dir: "a\0b"}' + "\nbudget:", "6:output.dir"),
        ('"1"]', r'"1"], result: {file: "a\0b"}', "2:objective.result.file"),
    ],
)
def test_a_file_name_holds_no_nul(load: Callable[..., Config], old: str, new: str, expected: str) -> None:
    rule = "must not contain the character NUL, which no file name and no argument can hold"
    assert problems(load, SMALL.replace(old, new)) == [rf"{expected}: is 'a\0b', {rule}"]


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (("a", "./a"), "[1].target: is 'a', but 'a' is the target of another file"),
        (("a", "a/b"), "[1].target: is 'a/b', but 'a' is the target of another file"),
        (("a/b", "a"), "[1].target: is 'a', but 'a/b' is the target of another file"),
        ((".", "a"), "[0].target: is '.', must be a name inside the scratch folder, without '..'"),
        (("a" * 256, "a"), f"[0].target: is '{'a' * 56}..., but a file's name has at most 255 bytes"),
    ],
)
def test_template_files_have_places_of_their_own(
    load: Callable[..., Config], targets: tuple[str, str], expected: str
) -> None:
    template = ", ".join(f"{{source: s, target: {target}}}" for target in targets)
    text = SMALL.replace('"1"]', f'"1"], template: [{template}]')
    assert problems(load, text) == [f"2:objective.template{expected}"]


def test_a_home_folder_is_not_made_below_the_current_one(load: Callable[..., Config]) -> None:
    message = "6:output.dir: is '~/runs', but only a shell replaces ~; write the whole path"
    assert problems(load, SMALL.replace("budget:", "output: {dir: ~/runs}\nbudget:")) == [message]


def test_more_parameters_than_a_file_of_results_takes_are_refused(load: Callable[..., Config]) -> None:
    parameters = "".join(f"  x{i}: {{type: fixed, value: 1}}\n" for i in range(3999))
    load(SMALL.replace("  k: {type: categorical, choices: [a, b]}\n", parameters))
    message = "3:parameters: are 4001, but at most 4000 fit a file of results; make arrays of them with `size:`"
    assert problems(load, SMALL.replace("budget:", f"{parameters}budget:")) == [message]


def test_a_config_is_a_file_or_a_pipe_that_is_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        assert str(caught.value) == f"{path}: is no regular file"
    read_end, write_end = os.pipe()
    os.write(write_end, SMALL.encode())
    os.close(write_end)
    try:
        assert load_config(f"/dev/fd/{read_end}").name == "small"
    finally:
        os.close(read_end)


def test_a_config_is_not_read_without_end(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(SMALL + "#" * SIZE_LIMIT_BYTES)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "run.yaml")
    assert str(caught.value) == f"{tmp_path}/run.yaml: is too long for a config: at most 16777216 bytes are read"
