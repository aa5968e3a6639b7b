"""Reproductions of the sources' results, one folder per source; ``torchlift reproduce`` finds them here.

A file of such a folder that defines ``run(out, data, seeds, scale) -> dict`` is an entry, named as the file
with hyphens (see :mod:`torchlift.cli.reproduction`). Files without it are what entries share.
"""
