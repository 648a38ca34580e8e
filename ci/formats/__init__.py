"""The formats' own readers, and views opened with them."""
