//! What a device's answers mean, in words.

use verbs::{Opcode, Status};

/// Why a connection is over whose work request failed like this.
pub(crate) fn of_status(status: Status) -> String {
    match status {
        Status::Flushed => "the queue pair is in error: the peer reset the connection, or a request of one end broke the other's rules".to_owned(),
        Status::RetryExceeded => "it does not acknowledge any more".to_owned(),
        Status::RnrRetryExceeded => "it has no receive for a command any more".to_owned(),
        Status::LocalLength => "it sent a message that is longer than a response".to_owned(),
        Status::RemoteInvalidRequest => "it refused a message as longer than its receive, or not allowed".to_owned(),
        Status::RemoteAccess => "it refused access to its memory, which nothing here asks for".to_owned(),
        Status::RemoteOperation => "it could not take a message, through a fault of its own".to_owned(),
        Status::LocalProtection => "a message of its invalidates a key that it was not given".to_owned(),
        Status::WindowBind => "the device did not bind a memory window".to_owned(),
        other => format!("a work request failed: {other:?}"),
    }
}

/// A completion that was not asked for.
pub(crate) fn of_opcode(opcode: Opcode) -> String {
    format!("the device completed a request of another kind than was posted: {opcode:?}")
}
