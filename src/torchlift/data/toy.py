"""Generated text whose entropy is known."""

import functools
import itertools
import math

import torch

from torchlift.data.text import Text, number_tokens

ADJECTIVES = ("old", "red", "small", "quiet")
NOUNS = ("cat", "dog", "robin", "owl", "tractor", "clock")
VERBS = ("hear", "see", "follow", "greet")


@functools.cache
def sentences() -> tuple[str, ...]:
    """All sentences; the verb agrees with a noun some characters back: "the old cats see a red dog."."""
    subjects = [
        (f"{'the' if many else 'a'} {adjective} {noun}{'s' if many else ''}", "" if many else "s")
        for many, adjective, noun in itertools.product((False, True), ADJECTIVES, NOUNS)
    ]
    return tuple(
        f"{subject} {verb}{ending} {thing}.\n"
        for (subject, ending), verb, (thing, _) in itertools.product(subjects, VERBS, subjects)
    )


def toy_entropy() -> float:
    """Bits per character below which no model can go: log₂(sentences) / mean length."""
    return math.log2(len(sentences())) / (sum(map(len, sentences())) / len(sentences()))


def toy_text(n: int = 100_000, seed: int = 0) -> Text:
    """``n`` characters of sentences drawn uniformly and independently; 80–10–10 in order."""
    every = sentences()
    shortest = min(map(len, every))
    draws = torch.randint(len(every), (n // shortest + 1,), generator=torch.Generator().manual_seed(seed))
    characters = list("".join(every[index] for index in draws.tolist())[:n])
    cuts = (int(0.8 * n), int(0.9 * n))
    return number_tokens(characters[: cuts[0]], characters[cuts[0] : cuts[1]], characters[cuts[1] :])
