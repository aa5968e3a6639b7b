"""A language model regularized by dropped weights."""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding


class LockedDropout(nn.Module):
    """One mask for all positions of a sequence, batch × time × features."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x with the same features dropped at every time."""
        if not self.training or not self.p:
            return x
        return x * dropout(torch.ones_like(x[:, :1]), self.p)


class DroppedLSTM(nn.Module):
    """An LSTM layer whose recurrent weights are dropped, once for a whole sequence (Wan et al., 2013)."""

    def __init__(self, inputs: int, outputs: int, p: float) -> None:
        super().__init__()
        self.lstm, self.p = nn.LSTM(inputs, outputs, batch_first=True), p

    def forward(self, x: Tensor) -> Tensor:
        """States at every time."""
        if not self.training or not self.p:
            return self.lstm(x)[0]
        weight: Tensor = self.lstm.get_parameter("weight_hh_l0")
        dropped = {"weight_hh_l0": dropout(weight, self.p)}
        states, _ = torch.func.functional_call(self.lstm, dropped, (x,))
        return states


class AwdLSTM(nn.Module):
    """tokens → embedding → LSTM layers with dropped weights → scores of the next token at every position.

    Merity, Keskar and Socher, 2018. ``AwdLSTM(50, 1000)`` is the character model of the thesis' Table 6.2
    (its narrow one has 300 units); the last layer has the width of the embedding, whose
    weight the head shares.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int = 1000,
        layers: int = 3,
        embedded: int = 128,
        weights: float = 0.5,
        states: float = 0.25,
        inputs: float = 0.1,
        words: float = 0.0,
        last: float = 0.1,
    ) -> None:
        super().__init__()
        self.words = words
        self.embedding = nn.Embedding(vocabulary, embedded)
        sizes = [embedded, *[width] * (layers - 1), embedded]
        self.layers = nn.ModuleList(DroppedLSTM(sizes[n], sizes[n + 1], weights) for n in range(layers))
        between = [inputs, *[states] * (layers - 1), last]
        self.drops = nn.ModuleList(LockedDropout(p) for p in between)
        self.head = nn.Linear(embedded, vocabulary)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores, batch × time × vocabulary, of integer tokens, batch × time."""
        table = self.embedding.weight
        if self.training and self.words:  # whole words are dropped
            table = table * dropout(torch.ones_like(table[:, :1]), self.words)
        x = self.drops[0](embedding(tokens, table))
        for layer, drop in zip(self.layers, list(self.drops)[1:], strict=True):
            x = drop(layer(x))
        return self.head(x)
