"""The scikit-learn estimators: its own checks, pipelines and searches."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_moons
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from torchlift import lifted


@pytest.mark.parametrize(
    "make", [lifted.LiftedClassifier, pytest.param(lifted.LiftedRegressor, marks=pytest.mark.fuzz)]
)
@pytest.mark.filterwarnings("default")
def test_scikit_learns_own_checks(make: type) -> None:
    results = check_estimator(make(hidden=(20,), epochs=15, batch_size=30, random_state=0), on_skip=None)
    assert len(results) > 40
    assert not [r["check_name"] for r in results if r["status"] == "failed"]


def test_grid_search_in_a_pipeline() -> None:
    x, y = make_moons(120, noise=0.1, random_state=0)
    pipeline = make_pipeline(
        StandardScaler(), lifted.LiftedClassifier(epochs=20, batch_size=30, random_state=0)
    )
    search = GridSearchCV(pipeline, {"liftedclassifier__hidden": [(3,), (30,)]}, cv=2).fit(x, y)
    assert search.best_params_ == {"liftedclassifier__hidden": (30,)}
    assert search.best_score_ > 0.85


def test_classifies_digits_and_predicts_with_both_rules() -> None:
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x, y, test_size=400, random_state=0)
    model = lifted.LiftedClassifier(hidden=(50,), epochs=15, random_state=0).fit(x, y)
    assert model.score(x_test, y_test) > 0.95
    assert np.allclose(model.predict_proba(x_test).sum(1), 1)
    forward = model.predict(x_test[:30])
    agreement = (model.set_params(rule="lifted").predict(x_test[:30]) == forward).mean()
    assert agreement > 0.8


def test_partial_fit_goes_on_where_it_stopped() -> None:
    x, y = make_moons(200, noise=0.1, random_state=0)
    model = lifted.LiftedClassifier(hidden=(30,), batch_size=20, random_state=0)
    with pytest.raises(ValueError, match="first call needs classes"):
        model.partial_fit(x, y)
    scores = [model.partial_fit(x, y, classes=[0, 1]).score(x, y) for _ in range(15)]
    assert scores[-1] > max(0.9, scores[0])
    with pytest.raises(ValueError, match="none of the classes"):
        model.partial_fit(x, y + 1)


def test_regression_with_one_and_two_outputs() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (300, 2))
    y = np.abs(x[:, 0]) + 0.5 * x[:, 1]
    model = lifted.LiftedRegressor(hidden=(40,), batch_size=50, random_state=0)
    assert model.fit(x, y).score(x, y) > 0.95
    both = np.stack([y, -y], 1)
    assert model.fit(x, both).predict(x).shape == (300, 2)


def test_same_seed_same_model() -> None:
    x, y = make_moons(100, noise=0.1, random_state=0)
    first, second = (
        lifted.LiftedClassifier(epochs=3, random_state=7).fit(x, y).decision_function(x) for _ in range(2)
    )
    assert np.array_equal(first, second)
