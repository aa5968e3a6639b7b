"""A transformer that translates, in few bits (thesis Table 5.7; Multi30k stands in for IWSLT'14)."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from papers.common.arms import Row
from papers.savarese_thesis.precision_runs import Bench, Setting, as_record, means, sized
from torchlift.data import Splits, multi30k
from torchlift.models import Translator
from torchlift.models.translator import END, PAD, START, UNKNOWN
from torchlift.recipes import Smol

IGNORED = -100
"""The label that losses and scores leave out."""
COLUMNS = ("method", "bits", "file bytes", "BLEU", "token accuracy", "perplexity", "thesis")
BITS = (3.9, 5.8)
THESIS = {"float": "34.9", "SMOL, 3.9": "34.7", "SMOL, 5.8": "34.9"}


def words(line: str) -> list[str]:
    """Lower case; words, and marks one by one."""
    return re.findall(r"\w+|[^\w\s]", line.lower())


class Vocabulary:
    """The words that occur most often; all others are one."""

    def __init__(self, lines: Sequence[list[str]], size: int) -> None:
        common = Counter(word for line in lines for word in line).most_common(size - 4)
        self.words = ["", "<start>", "<end>", "<unknown>", *(word for word, _ in common)]
        self.number = {word: number for number, word in enumerate(self.words)}

    def rows(self, lines: Sequence[list[str]], length: int) -> Tensor:
        """Sentences from start to end, cut and padded to one length."""
        rows = torch.full((len(lines), length), PAD)
        for row, line in zip(rows, lines, strict=True):
            numbers = [START, *(self.number.get(word, UNKNOWN) for word in line[: length - 2]), END]
            row[: len(numbers)] = torch.tensor(numbers)
        return rows

    def text(self, row: Tensor) -> str:
        """The words of a sentence up to its end."""
        numbers = row.tolist()
        return " ".join(
            self.words[n] for n in numbers[: numbers.index(END) if END in numbers else None] if n > END
        )


def setting(full: bool, data: str | None) -> tuple[Setting, Vocabulary, list[str]]:
    """A setting, the English words, and the test sentences as they are."""
    sources, targets, length, width, depth, epochs = (10_000, 8_000, 50, 256, 6, 50.0) if full else SMALL
    corpora = [
        [pair for pair in split if max(map(len, pair)) <= length - 2]
        for split in (
            [(words(german), words(english)) for german, english in split] for split in multi30k(data)
        )
    ]
    german, english = (
        Vocabulary([pair[side] for pair in corpora[0]], size) for side, size in ((0, sources), (1, targets))
    )

    def pairs(sentences: list[tuple[list[str], list[str]]]) -> tuple[Tensor, Tensor]:
        source, target = (
            german.rows([g for g, _ in sentences], length),
            english.rows([e for _, e in sentences], length),
        )
        y = target[:, 1:]
        return torch.cat([source, target[:, :-1]], 1), torch.where(y == PAD, IGNORED, y)

    train, valid, test = map(pairs, corpora)
    make = partial(Translator, len(german.words), len(english.words), length, width, depth)
    fit = {
        "optimizer": partial(torch.optim.Adam, lr=5e-4 if full else 2e-3), "schedule": "cosine",
        "batch_size": 64, "clip": 1.0, "progress": False,
    }  # fmt: skip
    pairs_said = f"{len(corpora[0]):,} pairs of Multi30k with at most {length - 2} words"
    title = f"{depth} + {depth} blocks of width {width}, {pairs_said}"
    training = Setting(title, make, Splits(train, valid, test, "text"), epochs, fit)
    return training, english, [" ".join(e) for _, e in corpora[2]]


SMALL = (3000, 2000, 16, 64, 2, 3.0)


def rated(bench: Bench, english: Vocabulary, said: list[str], name: str, recipe: Any, seed: int) -> Row:
    """A run with its perplexity, and the BLEU of its greedy translations of the test sentences."""
    from torchmetrics.functional.text import bleu_score  # comes with the extra ``lightning``

    row = bench.measured(name, recipe, seed)
    result = bench.model(name, recipe, seed)  # finished: it is only read
    net = result.model.eval()
    assert isinstance(net, Translator)
    source = bench.setting.data.test[0][:, : net.length]
    translations = [english.text(line) for batch in source.split(256) for line in net.translated(batch)]
    return row | {
        "BLEU": round(100 * float(bleu_score(translations, [[line] for line in said])), 3),
        "token accuracy": row["accuracy"], "perplexity": round(math.exp(result.scores["test"].loss), 3),
        "examples": [list(pair) for pair in zip(said[:3], translations[:3], strict=True)],
    }  # fmt: skip


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """Float, and SMOL at the thesis' two sizes: three fifths of the steps with noise, the rest without."""
    full = not stand_in
    training, english, said = setting(full, data)
    training, said = sized(training, epochs, images, device), said[:images]
    bench = Bench.at(training, out, "smol-translation")
    ways = {"float": None} | {f"SMOL, {bits}": Smol(bits=bits, finetune=0.4) for bits in BITS}
    rows: list[Row] = bench.cells.all(
        {
            f"{name}, seed {seed}, rated": partial(rated, bench, english, said, name, recipe, seed)
            for seed in range(seeds or 3)
            for name, recipe in ways.items()
        }
    )
    table: list[Row] = [row | {"thesis": THESIS[row["method"]]} for row in means(rows, COLUMNS, "BLEU")]
    finding = "; ".join(
        f"{row['method']}: BLEU {row['BLEU']['mean']:.1f} ± {row['BLEU']['sd']:.1f} "
        f"(thesis {row['thesis']}), perplexity {row['perplexity']['mean']:.2f}, "
        f"{row['file bytes']['mean'] / 1000:.0f} kB"
        for row in table
    )
    return as_record(
        "Translation in few bits", "Table 5.7", training, False, rows, finding=f"{finding}.", rows=table,
        columns=list(COLUMNS), y_label="BLEU",
        notes=[
            "Multi30k (captions, short) stands in for IWSLT'14 (talks): BLEU figures cannot be compared with "
            "the thesis', differences between rows can. BLEU-4 of lower-case words, greedy translations.",
            *(f"{reference} → {translation}" for reference, translation in rows[0]["examples"]),
        ],
    )  # fmt: skip
