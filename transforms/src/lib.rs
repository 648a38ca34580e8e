//! Transforms: bytes to bytes, checked, segmented; registry, chains, codecs.
