"""Settings from TOML and flags: what is right, what is wrong, and in which words."""

import dataclasses
import inspect
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchlift as tl
from torchlift.cli.config import RunConfig, read_config
from torchlift.cli.flags import FitFlags, Training
from torchlift.cli.pairs import merged_tables, parse_pairs, parse_value
from torchlift.cli.searches import NamedRecipe, recipe_name
from torchlift.cli.session import one_recipe, several_recipes
from torchlift.experiments.tune import parse_space
from torchlift.experiments.tune.space import sort_values

SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=8),
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3))


@settings(deadline=None, max_examples=50)
@given(VALUES)
def test_values_are_toml(value):
    assert parse_value(json.dumps(value, ensure_ascii=False)) == value


def test_values_that_are_no_toml_are_strings():
    assert parse_value("linear1") == "linear1"
    assert parse_value("*weight") == "*weight"
    assert parse_value("a\nb = 1") == "a\nb = 1"


def test_pairs_nest_and_merge():
    table = parse_pairs("--set", ["a.x=1", "a.y=[2, 3]", "b=true", "a.x=4"])
    assert table == {"a": {"x": 4, "y": [2, 3]}, "b": True}
    assert merged_tables({"a": {"x": 1}, "b": 2}, {"a": {"y": 3}, "b": {"c": 1}}) == {
        "a": {"x": 1, "y": 3},
        "b": {"c": 1},
    }


def test_flags_that_are_handed_on_are_arguments_of_fit():
    arguments = inspect.signature(tl.fit).parameters
    assert {field.name for field in dataclasses.fields(FitFlags)} <= set(arguments)


def test_what_fit_and_the_settings_of_its_calls_share_has_one_default():
    arguments = inspect.signature(tl.fit).parameters
    fields = {field.name: field.default for field in dataclasses.fields(tl.train.Settings)}
    shared = (fields.keys() & arguments.keys()) - {"epochs", "groups"}  # of a call: None and no group
    assert {"clip", "keep", "optimizer", "schedule"} <= shared
    assert {name: arguments[name].default for name in shared} == {name: fields[name] for name in shared}


def test_every_flag_is_a_key_of_the_file():
    flags = {field.name for field in dataclasses.fields(Training)} - {"config", "json", "debug"}
    assert flags <= {field.name for field in dataclasses.fields(RunConfig)}


def test_flags_override_the_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('model = "mlp"\nseed = 3\nepochs = 5\nrecipe = "plain"\n[set]\nwhere = "a"\nwidth = 2\n')
    config = read_config(Training(config=str(path), seed=0, set=("where=b",)), seeds=2)
    assert (config.model, config.seed, config.epochs, config.seeds) == ("mlp", 0, 5, 2)
    assert config.recipe == ("plain",)
    assert config.set == {"where": "b", "width": 2}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("epochs = -3", ["run.toml", "epochs", "greater than 0", "-3"]),
        ("epocs = 3", ["run.toml", "epocs", "'epochs'"]),
        ("epochs = 'three'", ["run.toml", "epochs", "three"]),
        ("schedule = 'linear'", ["run.toml", "schedule", "cosine"]),
        ("[set\nx=1", ["run.toml", "not TOML", "line 1"]),
        ("seed = -1", ["run.toml", "seed"]),
        ("folds = 1", ["run.toml", "folds"]),
        ("set = 3", ["run.toml", "set"]),
    ],
)
def test_a_wrong_file_is_one_line(fails, tmp_path, content, words):
    (tmp_path / "run.toml").write_text(content)
    fails("fit --config run.toml", *words)


def test_a_file_that_is_not_text(fails, tmp_path):
    (tmp_path / "run.toml").write_bytes(b"\xff\xfe\x00")
    fails("fit --config run.toml", "run.toml", "not TOML")


def test_wrong_flags_are_named(fails):
    fails("fit --epochs -3", "--epochs", "greater than 0")
    fails("fit --batch-size 0", "--batch-size")
    fails("fit --epochs nan", "--epochs")
    fails("fit --set where", "--set takes key=value", "'where'")
    fails("fit --config none.toml", "none.toml", "No such file")


EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def config(name):
    return read_config(Training(config=str(EXAMPLES / name)))


def test_recipes_of_the_examples():
    assert one_recipe(config("fit.toml")).where == "activation2"
    assert list(several_recipes(config("compare.toml"))) == ["normalize", "sparse", "neural-lifting"]


def test_space_of_the_example():
    read = config("tune.toml")
    parts = sort_values(parse_space(read.space), NamedRecipe(recipe_name(read)))
    assert set(parts.recipe) == {"rank", "side"}
