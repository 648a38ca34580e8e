//! Which host a namespace is read as, where its subsystem is not for all of them.

use super::served::{NQN, Target};
use super::support::Folder;

const TRAINER: &str = "nqn.2026-11.org.example:trainer1";
const STRANGER: &str = "nqn.2026-11.org.example:stranger";

#[test]
fn a_host_of_the_list_gets_in_and_another_is_told_how() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("data")).unwrap();
    folder.write("data/letter", b"dear reader");
    folder.done(["pack", "data", "-o", "disk.xio"]);
    folder.done(["unpack", "disk.xio", "-o", "disk.img"]);
    let target = Target::start(NQN, &[&folder.path("disk.xio")]);
    target.allow_only(TRAINER);
    let url = target.url("?nsid=1");
    let commands: [&[&str]; 4] = [
        &["cp", &url, "copy"],
        &["diff", "data", &url],
        &["verify", &url, "--against", "disk.img"],
        &["bench", &url, "--rw", "read", "--numjobs", "2"],
    ];
    for command in commands {
        let refused = format!(
            "{}: the host {STRANGER} may not connect to {NQN}: 1h/84h Connect Invalid Host, do not retry; let it in with 'snapctl host allow {NQN} {STRANGER}', or name another with --hostnqn",
            target.address
        );
        let as_host = |host| [command, &["--hostnqn", host]].concat();
        folder.fails(3, &refused, &as_host(STRANGER));
        folder.done(as_host(TRAINER));
    }
    assert_eq!(folder.read("copy/letter"), b"dear reader");
    let ran = folder.xio(["bench", &url, "--hostnqn", "trainer1"]);
    assert_eq!(ran.status, 2);
    let why = "invalid value 'trainer1' for '--hostnqn <NQN>': an NQN begins with \"nqn.\"";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
}
