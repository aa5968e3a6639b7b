"""Channels followed, coupled and cut: structured surgery of any model."""
