"""Neural lifting: a module near the identity between trunk and head, distilled away."""
