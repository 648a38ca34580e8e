//! `xio mount` by a user who is not root, with `fusermount3`.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::disk::dataset;
use super::mounting::{is_root, skip};
use super::support::{Folder, xio};

/// What the user does: mounts and reads, and ends it by fusermount3, by Ctrl-C, and by SIGKILL.
const USER: &str = r#"
cd "$1" || exit 1
fail() {
    echo "$1; it said: $(cat errors)" >&2
    exit 1
}
[ "$(id -u)" != 0 ] || fail 'this is root'
mount() {
    rm -f said && mkfifo said
    # Shells have what runs in the background ignore SIGINT.
    env --default-signal=INT ./xio mount v.xio m >said 2>errors &
    read -r line <said
    case $line in "m: mounted, "*) ;; *) fail "not mounted" ;; esac
    diff -r --no-dereference dataset m >&2 || fail "other content"
}
end() {
    wait $!
    [ $? = "$1" ] && [ ! -s errors ] || fail "$2: not the end that was expected"
}
mkdir m
mount
touch m/new 2>touch && fail "written to"
fusermount3 -u m || fail "not unmounted"
end 0 fusermount3
mount
kill -s INT $!
end 0 INT
mount
kill -s KILL $!
end 137 KILL 2>killed
# What the kernel knows by heart it still says.
ls m >names 2>&1
stat -f m 2>asked && fail "m is there still"
grep -q 'endpoint is not connected' asked || fail "another error: $(cat asked)"
./xio mount v.xio m >again 2>why
[ $? = 2 ] && [ ! -s again ] || fail "another status"
why='error: m is a mount whose program has ended; first: fusermount3 -u m, or as root umount m'
[ "$(cat why)" = "$why" ] || fail "$(cat why)"
fusermount3 -u m || fail "not unmounted"
mount
kill -s TERM $!
end 0 TERM
[ -z "$(ls -A m)" ] || fail "m is not empty"
echo 'as it should be'
"#;

/// Root becomes a user, in a place of mounts of its own where everybody may open `/dev/fuse`, as elsewhere udev has it. Status 77: this cannot be had here.
const AS_USER: &str = r#"
mount -t tmpfs -o mode=755 none "$1" && mknod -m 666 "$1/fuse" c 10 229 && mount --bind "$1/fuse" /dev/fuse && true 3<>/dev/fuse || exit 77
shift
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
"#;

#[test]
fn a_user_mounts_and_unmounts_and_is_told_what_a_killed_mount_needs() {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    if Command::new("fusermount3").arg("-V").output().is_err() || device.is_err() {
        return skip("it needs /dev/fuse and fusermount3 (package fuse3)");
    }
    let folder = Folder::new();
    dataset(&folder);
    folder.done(["pack", "dataset", "--no-manifest", "-o", "v.xio"]);
    // Whoever is not root may not reach where it was built.
    fs::copy(xio().get_program(), folder.path("xio")).unwrap();
    let user = folder.path("");
    let mut command = Command::new("sh");
    if is_root() {
        fs::create_dir(folder.path("dev")).unwrap();
        let mut owned = Command::new("chown");
        let owned = owned.args(["-R", "65534:65534"]).arg(&user);
        assert!(owned.status().unwrap().success());
        fs::set_permissions(&user, Permissions::from_mode(0o755)).unwrap();
        command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", AS_USER, "sh"]);
        command.arg(folder.path("dev")).arg("sh");
    }
    let ran = command
        .args(["-c", USER, "sh"])
        .arg(&user)
        .env("LC_ALL", "C");
    let ran = ran.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    if is_root() && ran.status.code() == Some(77) {
        return skip(&format!(
            "root may not become a user with /dev/fuse here: {said}"
        ));
    }
    assert_eq!(ran.stdout, b"as it should be\n", "{said}");
}
