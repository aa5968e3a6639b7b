"""Lifts under a Lightning Trainer, as its users would call it."""

import functools
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pytorch_lightning as pl

import torchlift as tl
from torchlift.integrations.lightning import Lifting

pytestmark = pytest.mark.filterwarnings("ignore")
SGD = functools.partial(torch.optim.SGD, lr=0.1)


class Module(pl.LightningModule):
    """An ordinary module: a model, a loss, an optimizer."""

    def __init__(self, options: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
        self.options = options

    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self):
        return self.model.optimizer(SGD) if self.options else SGD(self.parameters())


def blobs():
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(64, 6, generator=draw)
    return x, x[:, :3].argmax(1)


def train(module, lift, folder, resume=None, **more):
    options = {"max_epochs": 4} | more
    trainer = pl.Trainer(
        callbacks=[Lifting(lift)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        default_root_dir=folder,
        **options,
    )
    trainer.fit(module, DataLoader(TensorDataset(*blobs()), batch_size=16), ckpt_path=resume)
    return module.model


def test_it_does_what_the_own_loop_does(tmp_path):
    lift = tl.lifts.SoftMask(strength=1e-3)
    actual = train(Module(), lift, tmp_path, enable_checkpointing=False)
    x, y = blobs()
    lifted = lift.lift(tl.Task(Module().model, "cross_entropy"))
    optimizer = SGD(tl.groups(lifted, {"*": {}}))
    for step in range(16):
        tl.anneal(lifted, step / 15)
        rows = slice(16 * (step % 4), 16 * (step % 4) + 16)
        optimizer.zero_grad()
        lifted((x[rows], y[rows])).backward()
        optimizer.step()
    want = lift.project(lifted).model
    assert type(actual) is nn.Sequential
    assert 0 < (want[0].weight == 0).sum() < want[0].weight.numel()
    for a, b in zip(actual.parameters(), want.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_it_resumes_from_lightnings_checkpoint(tmp_path):
    lift = tl.lifts.SoftMask(strength=1e-3)
    keep = pl.callbacks.ModelCheckpoint(tmp_path / "kept", every_n_epochs=2, save_top_k=-1)

    def run(resume=None):
        module = Module()
        trainer = pl.Trainer(
            callbacks=[Lifting(lift), keep],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accelerator="cpu",
            max_epochs=4,
        )
        trainer.fit(module, DataLoader(TensorDataset(*blobs()), batch_size=16), ckpt_path=resume)
        return module.model

    whole = run()
    resumed = run(str(next((tmp_path / "kept").glob("epoch=1*"))))
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_layers_with_other_layers_inside_and_chains(tmp_path):
    lift = tl.chain(tl.lifts.Normalize("0"), tl.lifts.Expand(where="*weight"))
    model = train(Module(), lift, tmp_path, enable_checkpointing=False)
    assert [type(layer) for layer in model] == [nn.Linear, nn.ReLU, nn.Linear]


def test_pruned_stays_pruned(tmp_path):
    module = Module()
    with torch.no_grad():
        module.model[0].weight[::2] = 0
    model = train(module, tl.lifts.Expand(where="2.weight"), tmp_path, enable_checkpointing=False)
    assert (model[0].weight[::2] == 0).all()
    assert (model[0].weight[1::2] != 0).all()


@pytest.mark.parametrize(
    ("module", "lifting", "words"),
    [
        (lambda: Module(options=False), lambda: Lifting(tl.lifts.SoftMask()), "configure_optimizers"),
        (Module, lambda: Lifting(tl.lifts.SoftMask(), attribute="net"), "there are model"),
        (Module, lambda: Lifting(tl.lifts.Auxiliary(inputs=blobs()[0])), r"tl\.fit"),
        (Module, lambda: Lifting("soft-mask"), "takes a lift"),
    ],
)
def test_what_cannot_be_done_raises(module, lifting, words, tmp_path):
    with pytest.raises(tl.TorchliftError, match=words):
        pl.Trainer(callbacks=[lifting()], logger=False, max_epochs=1, accelerator="cpu").fit(
            module(), DataLoader(TensorDataset(*blobs()), batch_size=16)
        )
