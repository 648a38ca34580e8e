//! What a host can make the daemon write.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::target::{Folder, Target};

/// Connections that break the protocol with their first bytes.
const CONNECTIONS: usize = 60;
/// Lines of one call site at once.
const BURST: usize = 20;

#[test]
fn a_host_that_misbehaves_for_ever_fills_no_log() {
    let folder = Folder::new("log");
    let log = folder.path("log");
    let target = Target::start_logged(&["mem:1MiB"], &log);
    for _ in 0..CONNECTIONS {
        let mut host = TcpStream::connect(&target.address).unwrap();
        host.write_all(&[0xFF; 128]).unwrap();
        // Until the target has closed it, and so has written what it has to say.
        let _ended = host.read_to_end(&mut Vec::new());
    }
    assert_eq!(target.terminate(), Some(0));
    let text = std::fs::read_to_string(&log).unwrap();
    let lines = text
        .lines()
        .filter(|line| line.contains("a connection ends"));
    let written = lines.count();
    let left_out: usize = text
        .lines()
        .filter_map(|line| {
            line.split_once(" more lines like those")?
                .0
                .rsplit(' ')
                .next()
        })
        .map(|count| count.parse::<usize>().unwrap())
        .sum();
    // One more each second that it took.
    assert!((BURST..CONNECTIONS).contains(&written), "{text}");
    assert_eq!(written + left_out, CONNECTIONS, "{text}");
}
