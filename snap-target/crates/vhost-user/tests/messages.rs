//! Any bytes and any number of file descriptors: a message or an error, and no descriptor that nobody has.
//!
//! One test alone in its program: it counts the descriptors of the process.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "a test that cannot go on fails, and its numbers are small"
)]

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use proptest::prelude::*;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vhost_user::Connection;

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Codes that exist, with lengths that they have, more often than others.
fn message() -> impl Strategy<Value = (u32, u32, Vec<u8>, usize)> {
    let length = prop_oneof![
        Just(0_usize),
        Just(8),
        Just(20),
        Just(24),
        Just(40),
        (0_usize..9).prop_map(|regions| 8 + 32 * regions),
        0_usize..600
    ];
    let body = length.prop_flat_map(|length| {
        prop_oneof![
            prop::collection::vec(any::<u8>(), length),
            prop::collection::vec(0_u8..9, length),
            Just(vec![0; length]),
        ]
    });
    let flags = prop_oneof![4 => Just(1_u32), 2 => Just(9), 1 => any::<u32>()];
    let files = prop_oneof![4 => Just(0_usize), 4 => Just(1), 2 => 0_usize..12];
    (0_u32..45, flags, body, files)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_message(messages in prop::collection::vec(message(), 1..5), cut in any::<Option<u16>>()) {
        let before = open_files();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut last = messages.len();
        for (number, (code, flags, body, files)) in messages.iter().enumerate() {
            let header = [*code, *flags, u32::try_from(body.len()).unwrap()];
            let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.extend(body);
            if let Some(cut) = cut.filter(|_| number + 1 == messages.len()) {
                bytes.truncate(usize::from(cut) % bytes.len());
                last = number;
            }
            if bytes.is_empty() {
                break;
            }
            let file = std::fs::File::open("/dev/null").unwrap();
            let files: Vec<BorrowedFd<'_>> = (0..*files).map(|_| file.as_fd()).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !files.is_empty() {
                prop_assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
            }
            let sent = sendmsg(&ours, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL);
            prop_assert_eq!(sent, Ok(bytes.len()));
        }
        drop(ours);
        let mut connection = Connection::new(theirs);
        let mut came = 0;
        while let Ok(Some(message)) = connection.receive() {
            let (code, ..) = messages[came];
            prop_assert_eq!(message.code, code);
            came += 1;
        }
        prop_assert!(came <= last, "a message that was cut is none");
        drop(connection);
        prop_assert_eq!(open_files(), before);
    }
}
