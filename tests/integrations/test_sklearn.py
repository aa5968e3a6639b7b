"""``tl.fit`` as estimators: scikit-learn's own checks, pipelines, searches."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import check_estimator

import torchlift as tl
from torchlift.integrations.sklearn import Classifier, FitClassifier, FitRegressor, Regressor


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FitClassifier, FitRegressor])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_has_nothing_to_say(kind):
    actual = check_estimator(kind(epochs=20), on_fail=None)
    failed = {row["check_name"]: row["exception"] for row in actual if row["status"] == "failed"}
    assert not failed


def test_a_recipe_in_a_pipeline_and_a_search():
    x, y = load_digits(return_X_y=True)
    recipe = tl.recipes.ContinuousSparsification(sparsity=0.5)
    pipeline = make_pipeline(MinMaxScaler(), FitClassifier(recipe=recipe, epochs=10, random_state=0))
    search = GridSearchCV(pipeline, {"fitclassifier__batch_size": [64, 256]}, cv=2)
    search.fit(x[:600], np.asarray([f"digit {label}" for label in y[:600]]))
    best = search.best_estimator_[-1]
    assert search.best_score_ > 0.8
    assert set(best.classes_) == {f"digit {label}" for label in range(10)}
    weights = [p for p in best.model_.parameters() if p.ndim > 1]
    zeros = sum(int((p == 0).sum()) for p in weights) / sum(p.numel() for p in weights)
    assert zeros == pytest.approx(0.5, abs=0.02)


def test_the_same_seed_gives_the_same_network():
    x, y = load_digits(return_X_y=True)
    one = FitClassifier(epochs=2, random_state=3)
    assert np.array_equal(one.fit(x, y).predict_proba(x), clone(one).fit(x, y).predict_proba(x))


def test_every_estimator_is_made_of_the_one_adapter():
    x, _ = load_digits(return_X_y=True)
    for kind in (FitClassifier, tl.lifted.LiftedClassifier):
        assert issubclass(kind, Classifier)
        with pytest.raises(ValueError, match=f"{kind.__name__} needs samples of two classes"):
            kind().fit(x[:5], [1] * 5)
    targets = np.stack([x[:, 20], x[:, 21]], 1)
    assert FitRegressor(epochs=1, random_state=0).fit(x, targets).predict(x).shape == targets.shape
    assert issubclass(tl.lifted.LiftedRegressor, Regressor)
