"""What lifts are made of: gates, merging, taps, distillation. No method of its own."""
