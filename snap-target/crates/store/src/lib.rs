//! The Store contract and its implementations.
