//! The commands of several parts: each against what it is to do, all of them against a model, and two engines at a time.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers of a test, known to be small"
)]
#![allow(
    clippy::result_large_err,
    reason = "the error is what is tested, as it comes"
)]

#[path = "../support/mod.rs"]
mod support;

mod bench;
mod cancelled;
mod churn;
mod each;
mod exclusive;
mod fair;
mod marks;
mod mixed;
mod model;
mod overlaps;
mod stepped;
mod straight;
mod threads;
