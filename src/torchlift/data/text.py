"""Text as token numbers."""

import dataclasses
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torchlift.data.sources import LoadError, locate, read_decompressed
from torchlift.data.splits import Pair


@dataclasses.dataclass(frozen=True, eq=False)
class Text:
    """Three streams of token numbers, and what each number stands for."""

    train: Tensor
    valid: Tensor
    test: Tensor
    vocabulary: tuple[str, ...]


class Translations(NamedTuple):
    """Aligned sentences, German first."""

    train: list[tuple[str, str]]
    valid: list[tuple[str, str]]
    test: list[tuple[str, str]]


def number_tokens(train: list[str], valid: list[str], test: list[str]) -> Text:
    """Number the tokens of the training stream in sorted order, and write all streams in them."""
    vocabulary = tuple(sorted(set(train)))
    number = {token: index for index, token in enumerate(vocabulary)}
    for split in (valid, test):
        if unknown := set(split) - number.keys():
            raise LoadError(
                f"tokens that training text lacks: {sorted(unknown)[:5]}; use another split of the text"
            )

    def stream(split: list[str]) -> Tensor:
        return torch.tensor([number[token] for token in split])

    return Text(stream(train), stream(valid), stream(test), vocabulary)


def ptb(folder: str | Path | None = None, level: Literal["char", "word"] = "char") -> Text:
    """Penn Treebank with Mikolov's preprocessing (``ptb/ptb.train.txt``, …), by character or word.

    Lines are stripped; by character each ends in a newline (50 symbols), by word in ``<eos>`` (10,000).
    """
    if level not in ("char", "word"):
        raise LoadError(f"ptb: no level {level!r}; use 'char' or 'word'")
    where = locate("ptb", folder, ("ptb",), "ptb.train.txt")

    def tokens(split: str) -> list[str]:
        lines = lines_of(where, f"ptb.{split}.txt")
        if level == "char":
            return list("".join(line + "\n" for line in lines))
        return [word for line in lines for word in (*line.split(), "<eos>")]

    return number_tokens(tokens("train"), tokens("valid"), tokens("test"))


def multi30k(folder: str | Path | None = None) -> Translations:
    """Multi30k, German and English captions line by line (``multi30k_de_en/train.de.gz``, …)."""
    where = locate("multi30k", folder, ("multi30k_de_en", "multi30k"), "train.de")

    def pairs(split: str) -> list[tuple[str, str]]:
        german, english = lines_of(where, f"{split}.de"), lines_of(where, f"{split}.en")
        if len(german) != len(english):
            raise LoadError(f"{where}: {split} has {len(german)} German and {len(english)} English lines")
        return list(zip(german, english, strict=True))

    return Translations(pairs("train"), pairs("val"), pairs("test_2016_flickr"))


def lines_of(where: Path, file: str) -> list[str]:
    """The lines of a text file, stripped."""
    try:
        return [
            line.strip() for line in read_decompressed(where, file).decode().removesuffix("\n").split("\n")
        ]
    except UnicodeDecodeError as error:
        raise LoadError(f"{where / file} is not UTF-8 text ({error.reason} at byte {error.start})") from error


def windows(tokens: Tensor, length: int) -> Pair:
    """Next-token pairs: x_i = tokens[iL : iL + L], y_i the same one step later; the rest is dropped."""
    count = (len(tokens) - 1) // length
    if count < 1:
        raise LoadError(f"windows: {len(tokens)} tokens do not fill a window of {length}; use a shorter one")
    return tokens[: count * length].view(count, length), tokens[1 : count * length + 1].view(count, length)
