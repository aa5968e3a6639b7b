"""Post-training: a trained network and a handful of unlabelled inputs become a small network, in one call."""
