"""Lifts inside other people's training loops: Hugging Face's Trainer, Lightning, scikit-learn.

Each is a file of its own and imports its framework only when it is used:
``torchlift.integrations.huggingface``, ``torchlift.integrations.lightning``,
``torchlift.integrations.sklearn``.
"""
