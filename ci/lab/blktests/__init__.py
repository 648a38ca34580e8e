"""blktests' nvme group in a guest, against snap-target: what `ci/peers/blktests` runs."""
