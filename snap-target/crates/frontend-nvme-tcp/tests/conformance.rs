//! The suite of targets, on TCP.

#![allow(clippy::unwrap_used, reason = "a failure of a test is a panic")]

mod support;

frontend_nvme::frontend_checks!(support::on());
