"""One file per reproduced result: ``run(out, data, seeds, scale) -> dict``."""
