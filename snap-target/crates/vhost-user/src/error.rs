//! What is wrong with a message, or with the socket.

use rustix::io::Errno;

/// Why a message is refused. The connection cannot go on behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not version 1, or a reply.
    #[error("request {code} has flags {flags:#x}: not a request of version 1")]
    Flags {
        /// Its number.
        code: u32,
        /// Its flags.
        flags: u32,
    },
    /// A message that is not known, or that nothing was offered for.
    #[error("request {code} is not one that this device has offered")]
    Unknown {
        /// Its number.
        code: u32,
    },
    /// A body of another length.
    #[error("request {code} has a body of {bytes} bytes")]
    Length {
        /// Its number.
        code: u32,
        /// Bytes.
        bytes: u32,
    },
    /// Another number of file descriptors.
    #[error("request {code} came with {files} file descriptors, and has {expected}")]
    Files {
        /// Its number.
        code: u32,
        /// How many came.
        files: usize,
        /// How many there are to be.
        expected: usize,
    },
    /// A field whose value it cannot have.
    #[error("request {code}: {what}")]
    Value {
        /// Its number.
        code: u32,
        /// Which, and what it may be.
        what: &'static str,
    },
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// The front-end broke the protocol.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// It went away within a message.
    #[error("the front-end closed the socket within a message")]
    Cut,
    /// It does not end a message, or takes no answer.
    #[error("the front-end has not ended its message, or not taken an answer, within {0} s")]
    Slow(u64),
    /// The socket.
    #[error("the socket: {0}")]
    Socket(#[from] Errno),
}
