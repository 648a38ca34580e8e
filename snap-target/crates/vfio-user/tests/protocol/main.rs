//! The protocol's machine, message by message, at its bytes.

mod client;
mod commands;
mod hostile;
mod interrupts;
