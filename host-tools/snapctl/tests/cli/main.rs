//! The program against a daemon that answers from samples and remembers what it was asked.

#![allow(clippy::unwrap_used)] // a test: a panic is the report

mod daemon;
mod doctor;
mod document;
mod ensure;
mod fake;
mod help;
mod live;
mod mistakes;
mod pages;
mod requests;
mod support;
mod terminal;
mod tls;
