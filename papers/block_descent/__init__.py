"""Block coordinate descent for deep networks (Lau, Zeng et al.), from its notebooks."""
