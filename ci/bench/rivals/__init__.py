"""What ci/bench/comparison is made of."""
