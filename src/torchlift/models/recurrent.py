"""A character model with memory."""

from torch import Tensor, nn


class CharLSTM(nn.Module):
    """tokens → embedding → stacked LSTM → scores of the next token at every position.

    The thesis (section 6.3) uses three layers of 300 or 1000 units on Penn Treebank characters. With
    ``tie`` the head shares the embedding's weight, which then has the width of the LSTM.
    """

    def __init__(
        self, vocabulary: int, width: int = 128, layers: int = 2, dropout: float = 0.0, tie: bool = False
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, vocabulary)
        if tie:
            nn.init.normal_(self.embedding.weight, std=width**-0.5)
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores, batch × time × vocabulary, of integer tokens, batch × time."""
        states, _ = self.lstm(self.dropout(self.embedding(tokens)))
        return self.head(self.dropout(states))
