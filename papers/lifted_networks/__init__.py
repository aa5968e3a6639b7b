"""Lifted Neural Networks (Askari, Negiar, Sambharya, El Ghaoui; UCB/EECS-2021-218)."""
