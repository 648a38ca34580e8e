//! Which host a connection is of: its name and its identifier, as nvme-cli keeps them in /etc/nvme, or made up.
//!
//! What it does not do: it writes nothing; a name that was made up is another one in the next process.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Read;
use std::path::Path;

use nvme::nqn::Nqn;

/// Where nvme-cli keeps this machine's name as a host, and its identifier.
const FOLDER: &str = "/etc/nvme";
/// Bytes of such a file that are looked at.
const FILE_BYTES_MAX: u64 = 4096;

/// The host of this name; without one, what this machine is called. `None` where it has no name. The same name always has the same identifier.
#[must_use]
pub fn named(hostnqn: Option<&Nqn>) -> Option<(Nqn, [u8; 16])> {
    let folder = Path::new(FOLDER);
    named_among(
        hostnqn,
        line(&folder.join("hostnqn")),
        line(&folder.join("hostid")),
    )
}

/// A host that nobody else is: a random UUID, as a name and as an identifier.
#[must_use]
pub fn made_up() -> (String, [u8; 16]) {
    let (id, uuid) = random_uuid();
    (format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}"), id)
}

/// A UUID from the kernel; where /proc is missing, one of the clock and the process, which is unique enough to be told apart.
fn random_uuid() -> ([u8; 16], String) {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let bytes = uuid_bytes(text.trim()).unwrap_or_else(|| {
        let nanos = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos();
        (nanos << 32 | u128::from(std::process::id())).to_be_bytes()
    });
    (bytes, nvme::initiator::Uuid(bytes).to_string())
}

/// With what the machine's files say.
fn named_among(
    hostnqn: Option<&Nqn>,
    machine: Option<String>,
    hostid: Option<String>,
) -> Option<(Nqn, [u8; 16])> {
    let machine = machine.and_then(|line| Nqn::parse(&line).ok());
    let nqn = hostnqn.or(machine.as_ref())?;
    let recorded = hostid.filter(|_| Some(nqn) == machine.as_ref());
    let id = recorded.and_then(|line| uuid_bytes(&line));
    Some((nqn.clone(), id.unwrap_or_else(|| identifier_of(nqn))))
}

fn line(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text.lines().next()?.trim().to_owned())
}

/// The same for each connection of a name: the UUID that it ends with, else a hash (FNV-1a) of it.
fn identifier_of(nqn: &Nqn) -> [u8; 16] {
    let uuid = nqn.as_str().rsplit_once("uuid:");
    uuid.and_then(|(_, uuid)| uuid_bytes(uuid))
        .unwrap_or_else(|| {
            let hash = nqn.as_str().bytes().fold(
                0x6c62_272e_07bb_0142_62b8_2175_6295_c58d,
                |hash, byte| {
                    (hash ^ u128::from(byte))
                        .wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013B)
                },
            );
            hash.to_be_bytes()
        })
}

/// Of a UUID's text; none that is all zeros.
fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    let is_uuid = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let value = is_uuid.then(|| u128::from_str_radix(&digits, 16).ok())??;
    (value != 0).then(|| value.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "nqn.2014-08.org.nvmexpress:uuid:ce7731e9-dc09-4bb0-8a0f-3b26472aa146";
    const OF_NAME: [u8; 16] = 0xce77_31e9_dc09_4bb0_8a0f_3b26_472a_a146_u128.to_be_bytes();

    fn named(
        name: Option<&str>,
        machine: Option<&str>,
        hostid: Option<&str>,
    ) -> Option<(String, [u8; 16])> {
        let name = name.map(|name| Nqn::parse(name).unwrap());
        let named = named_among(
            name.as_ref(),
            machine.map(str::to_owned),
            hostid.map(str::to_owned),
        );
        named.map(|(nqn, id)| (nqn.to_string(), id))
    }

    #[test]
    fn a_host_is_this_machine_unless_it_is_named() {
        let hostid = Some("f39c02a5-654b-41e8-8454-50bc04cba589");
        let id = 0xf39c_02a5_654b_41e8_8454_50bc_04cb_a589_u128.to_be_bytes();
        let machine = Some(MACHINE);
        assert_eq!(named(None, None, None), None, "it has no name");
        assert_eq!(
            named(None, Some("no name"), hostid),
            None,
            "nor is this one"
        );
        assert_eq!(named(None, machine, hostid), Some((MACHINE.to_owned(), id)));
        assert_eq!(
            named(None, machine, None),
            Some((MACHINE.to_owned(), OF_NAME))
        );
        assert_eq!(
            named(machine, None, None),
            Some((MACHINE.to_owned(), OF_NAME))
        );
        assert_eq!(
            named(machine, machine, hostid),
            named(None, machine, hostid)
        );
    }

    #[test]
    fn another_host_has_an_identifier_of_its_own_and_always_the_same() {
        let hostid = Some("f39c02a5-654b-41e8-8454-50bc04cba589");
        let one = named(Some("nqn.2026-11.org.example:1"), Some(MACHINE), hostid).unwrap();
        assert_eq!(one.0, "nqn.2026-11.org.example:1");
        assert_eq!(
            named(Some("nqn.2026-11.org.example:1"), None, None),
            Some(one.clone())
        );
        let two = named(Some("nqn.2026-11.org.example:2"), Some(MACHINE), hostid).unwrap();
        let machine = named(None, Some(MACHINE), hostid).unwrap();
        assert!(one.1 != two.1 && one.1 != machine.1 && two.1 != machine.1);
    }
}
