//! Every mistake is refused with its place, its key, and what to do: the exact texts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nvme::controller::{ControllerLimits, HostPolicy, Visibility};
use nvme::nqn::Nqn;
use reactor::Features;
use store::StoreSpec;

use super::{Config, FunctionDevice, SourceSpec, Writes};

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("/etc/xio/t.toml"), text).map_err(|error| error.to_string())
}

/// The least that can be served.
const LEAST: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\n";
const SUBSYSTEM: &str = "[[subsystem]]\nnqn = \"nqn.a\"\nallow-any-host = true\n";

#[test]
fn the_documented_example_is_what_it_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/snap-target.toml");
    let config = Config::load(&file).unwrap();
    let folder = file.parent().unwrap().canonicalize().unwrap();
    assert_eq!(config.target.state, Some(PathBuf::from("/var/lib/xio")));
    assert_eq!(config.target.drain, Duration::from_secs(10));
    assert_eq!(config.target.cache_bytes, 64 << 20);
    assert_eq!(config.target.without, Features::NONE);
    assert_eq!(config.listeners.len(), 1);
    let [function] = config.functions.as_slice() else {
        panic!("one function, not {:?}", config.functions)
    };
    assert_eq!(function.name.to_string(), "pf0vf1");
    assert_eq!(function.socket, PathBuf::from("/run/xio/pf0vf1"));
    assert_eq!(function.subsystem, config.subsystems[0].nqn);
    let [(subsystem, local)] = config.locals.as_slice() else {
        panic!("one block device, not {:?}", config.locals)
    };
    assert_eq!(*subsystem, config.subsystems[0].nqn);
    assert_eq!((local.number, local.nsid), (0, 1));
    assert_eq!(config.referrals[0].address.to_string(), "192.0.2.7:8009");
    let [datasets, disks] = config.subsystems.as_slice() else {
        panic!("two subsystems, not {:?}", config.subsystems)
    };
    assert_eq!(datasets.hosts, HostPolicy::Any);
    assert_eq!(
        datasets.limits,
        ControllerLimits::default(),
        "the limits that are written down are those that hold without"
    );
    assert_eq!(
        datasets.namespaces[0].source,
        SourceSpec::Volume {
            path: folder.join("tokens.xio")
        }
    );
    let names: Vec<Nqn> = [
        "nqn.2014-08.org.nvmexpress:uuid:00112233-4455-6677-8899-aabbccddeeff",
        "nqn.2014-08.org.nvmexpress:uuid:ffeeddcc-bbaa-9988-7766-554433221100",
    ]
    .map(|name| Nqn::parse(name).unwrap())
    .to_vec();
    assert_eq!(disks.hosts, HostPolicy::Only(names.clone()));
    let [disk, memory, mixed] = disks.namespaces.as_slice() else {
        panic!("three namespaces, not {:?}", disks.namespaces)
    };
    assert_eq!(
        disk.source,
        SourceSpec::Store {
            spec: StoreSpec::File {
                path: folder.join("disk.raw")
            },
            lba_bytes: 4096
        }
    );
    assert_eq!(disk.visibility, Visibility::Hosts(names[..1].to_vec()));
    assert_eq!((disk.nsid, memory.nsid, mixed.nsid), (1, 2, 3));
    let dataset = folder.join("tokens.xio").display().to_string();
    let mixed_text = format!("mixed:{}+mem:64MiB", dataset.replace('+', "++"));
    assert_eq!(mixed.source.to_string(), mixed_text);
    assert_eq!(memory.visibility, Visibility::All);
    assert_eq!(
        config.admin.unwrap().socket,
        PathBuf::from("/run/xio/snap-target.sock")
    );
    assert_eq!(
        config.metrics.unwrap().address.to_string(),
        "127.0.0.1:9464"
    );
}

#[test]
fn functions_have_names_and_sockets_of_their_own() {
    let function = |name: &str, socket: &str| {
        format!("[[function]]\nname = {name:?}\nsubsystem = \"nqn.a\"\nsocket = {socket:?}\n")
    };
    let of = |functions: &[(&str, &str)]| {
        let all = functions
            .iter()
            .map(|(name, socket)| function(name, socket));
        parse(&format!("{LEAST}{}", all.collect::<String>()))
    };
    let config = of(&[("pf0", "a"), ("pf0vf1", "/run/b"), ("pf0sf1", "c")]).unwrap();
    let sockets: Vec<String> = config
        .functions
        .iter()
        .map(|it| format!("{} {}", it.name, it.socket.display()))
        .collect();
    assert_eq!(
        sockets,
        ["pf0 /etc/xio/a", "pf0vf1 /run/b", "pf0sf1 /etc/xio/c"]
    );
    for (functions, why) in [
        (&[("pf0", "a"), ("pf0", "b")][..], "pf0 is taken by line 4"),
        (
            &[("pf0", "a"), ("pf1", "/etc/xio/a")],
            "/etc/xio/a is taken by line 6",
        ),
        (&[("vf0", "a")], "\"vf0\" names no function"),
        (
            &[("pf0", &"x".repeat(120))],
            "and a socket's has at most 107",
        ),
    ] {
        let refused = of(functions).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    let missing = parse(&format!("{LEAST}[[function]]\nname = \"pf0\"\n")).unwrap_err();
    assert!(missing.contains("subsystem"), "{missing}");
    let polled = |poll: &str| parse(&format!("{LEAST}{}poll = {poll}\n", function("pf0", "a")));
    let device = |config: Result<Config, String>| config.unwrap().functions[0].device;
    let nvme = |poll| FunctionDevice::Nvme { poll };
    assert_eq!(device(of(&[("pf0", "a")])), nvme(false));
    assert_eq!(device(polled("true")), nvme(true));
    let refused = polled("\"yes\"").unwrap_err();
    assert!(
        refused.contains("poll") && refused.contains("true or false"),
        "{refused}"
    );
}

#[test]
fn a_function_is_a_controller_or_a_disk() {
    let of = |lines: &str| {
        let function = "[[function]]\nname = \"pf0\"\nsubsystem = \"nqn.a\"\nsocket = \"a\"\n";
        parse(&format!("{LEAST}{function}{lines}"))
    };
    const DISK: &str = "protocol = \"vhost-user-blk\"\n";
    const CONTROLLER: &str = "protocol = \"vfio-user\"\n";
    let nvme = |poll| FunctionDevice::Nvme { poll };
    let virtio = |nsid| FunctionDevice::VirtioBlk { nsid };
    for (lines, device) in [
        (CONTROLLER.to_owned(), nvme(false)),
        (format!("{CONTROLLER}poll = true\n"), nvme(true)),
        (DISK.to_owned(), virtio(1)),
        (format!("{DISK}poll = false\nnsid = 7\n"), virtio(7)),
    ] {
        assert_eq!(of(&lines).unwrap().functions[0].device, device, "{lines}");
    }
    for (lines, key, why) in [
        (format!("{DISK}poll = true\n"), "poll", "no doorbells"),
        (format!("{DISK}nsid = 0\n"), "nsid", "from 1 to"),
        (format!("{CONTROLLER}nsid = 1\n"), "nsid", "all namespaces"),
        ("nsid = 1\n".to_owned(), "nsid", "all namespaces"),
        (
            "protocol = \"virtio\"\n".to_owned(),
            "protocol",
            "vhost-user-blk",
        ),
    ] {
        let refused = of(&lines).unwrap_err();
        let is_told = refused.contains(key) && refused.contains(why);
        assert!(is_told, "{lines}: {refused}");
    }
}

#[test]
fn block_devices_have_numbers_of_their_own() {
    let of = |lines: &[&str]| {
        let all = lines
            .iter()
            .map(|line| format!("[[ublk]]\nsubsystem = \"nqn.a\"\n{line}\n"));
        parse(&format!("{LEAST}{}", all.collect::<String>()))
    };
    let config = of(&["number = 0", "number = 7\nnsid = 3"]).unwrap();
    let found: Vec<_> = config
        .locals
        .iter()
        .map(|(nqn, local)| (nqn.as_str(), local.number, local.nsid))
        .collect();
    assert_eq!(found, [("nqn.a", 0, 1), ("nqn.a", 7, 3)]);
    for (lines, why) in [
        (&["number = 2", "number = 2"][..], "2 is taken by line 5"),
        (&[""], "number: it is missing"),
        (&["number = 1048576"], "1048575"),
        (&["number = 0\nnsid = 0"], "nsid"),
        (&["number = 0\npath = \"x\""], "there is no such key"),
    ] {
        let refused = of(lines).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = parse(LEAST).unwrap();
    assert_eq!(config.target, super::TargetConfig::default());
    assert_eq!(
        (config.listeners.len(), config.listeners[0].port_id),
        (1, 1)
    );
    assert_eq!(config.subsystems, []);
    assert_eq!((config.admin, config.metrics), (None, None));
}

#[test]
fn nsids_that_are_not_written_take_the_smallest_that_are_free() {
    let mut text = format!("{LEAST}{SUBSYSTEM}");
    for line in ["", "nsid = 1\n", "", "nsid = 3\n", ""] {
        text += &format!(
            "[[subsystem.namespace]]\nstore = \"mem:1MiB\"\nread-only = {}\n{line}",
            line.is_empty()
        );
    }
    let config = parse(&text).unwrap();
    let found: Vec<(u32, bool)> = config.subsystems[0]
        .namespaces
        .iter()
        .map(|namespace| (namespace.nsid, namespace.writes.are_refused()))
        .collect();
    assert_eq!(
        found,
        [(1, false), (2, true), (3, false), (4, true), (5, true)]
    );
}

#[test]
fn what_nobody_changes_takes_no_writes() {
    let mut text = format!("{LEAST}{SUBSYSTEM}");
    for lines in [
        "",
        "immutable = false\nread-only = true\n",
        "immutable = true\n",
        "immutable = true\nread-only = true\n",
    ] {
        text += &format!("[[subsystem.namespace]]\nstore = \"mem:1MiB\"\n{lines}");
    }
    let config = parse(&text).unwrap();
    let all = config.subsystems[0].namespaces.iter();
    let found: Vec<_> = all.map(|namespace| namespace.writes).collect();
    use Writes::{Never, Refused, Taken};
    assert_eq!(found, [Taken, Refused, Never, Never]);
    assert!(Never.are_refused() && Never.is_immutable());
    assert!(Refused.are_refused() && !Refused.is_immutable());
}

#[test]
fn paths_are_relative_to_the_file() {
    let text = format!(
        "{LEAST}{SUBSYSTEM}[[subsystem.namespace]]\nstore = \"file:a.raw\"\n[[subsystem.namespace]]\nvolume = \"/data/b.xio\"\n[[subsystem.namespace]]\nstore = \"mixed:a++b.xio+file:/c.raw+mem:1024KiB\"\nlba = 512\n"
    );
    let config = parse(&text).unwrap();
    let sources: Vec<String> = config.subsystems[0]
        .namespaces
        .iter()
        .map(|namespace| namespace.source.to_string())
        .collect();
    let mixed = "mixed:/etc/xio/a++b.xio+file:/c.raw+mem:1MiB";
    assert_eq!(sources, ["file:/etc/xio/a.raw", "/data/b.xio", mixed]);
    let mixed = &config.subsystems[0].namespaces[2].source;
    let again = SourceSpec::parse(&mixed.to_string(), 512).unwrap();
    assert_eq!(&again, mixed, "the text says all");
    assert!(!mixed.is_lasting() && mixed.parts()[..2].iter().all(SourceSpec::is_lasting));
}

/// Appended to the least that can be served, which has two lines.
#[test]
fn every_mistake_is_refused_with_its_place_and_what_to_do() {
    // Behind /etc/xio/ there is room for 98 bytes.
    let socket = |bytes| format!("[admin]\nsocket = \"{}\"\n", "s".repeat(bytes));
    assert!(parse(&format!("{LEAST}{}", socket(98))).is_ok());
    let too_long = socket(99);
    let cases: &[(&str, &str)] = &[
        (
            "[targt]\n",
            "3:2: targt: there is no such key; did you mean target?",
        ),
        (
            "[target]\n  recators = 2\n",
            "4:3: [target] recators: there is no such key; did you mean reactors?",
        ),
        (
            "[metrics]\naddress = \"127.0.0.1:1\"\ncolour = 1\n",
            "5:1: [metrics] colour: there is no such key; known here: address",
        ),
        (
            "[target]\nzzz = 1\naaa = 1\n",
            "4:1: [target] zzz: there is no such key; known here: reactors, workers, cache, prefetch, without, success-flag, allow-sources, state, log, drain, start",
        ),
        (
            "[target]\nreactors = 0\n",
            "4:12: [target] reactors: it must be a whole number from 1 to 64",
        ),
        (
            "[target]\nreactors = -1\n",
            "4:12: [target] reactors: it must be a whole number from 1 to 64",
        ),
        (
            "[target]\nreactors = \"2\"\n",
            "4:12: [target] reactors: a whole number from 1 to 64 is expected here, and this is a TOML string",
        ),
        (
            "[target]\ncache = \"64XiB\"\n",
            "4:9: [target] cache: \"64XiB\": the unit must be one of KiB, MiB, GiB, TiB, kB, MB, GB, TB",
        ),
        (
            "[target]\ncache = 4096\n",
            "4:9: [target] cache: 4096 bytes; it must be from 1048576 to 18446744073709551615 bytes",
        ),
        (
            "[target]\nprefetch = \"1kB\"\n",
            "4:12: [target] prefetch: \"1kB\": it must be at least 1MiB, which is fetched at a time; or write \"off\"",
        ),
        (
            "[target]\nprefetch = \"1TiB\"\n",
            "4:12: [target] prefetch: it is at most half of cache, which holds what is fetched until it is read: 32MiB of 64MiB; make cache at least 2TiB",
        ),
        (
            "[target]\nwithout = [\"all\", \"magic\"]\n",
            "4:19: [target] without: \"magic\": it is one of coop_taskrun, single_issuer, defer_taskrun, buffer_rings, multishot_accept, multishot_recv, msg_ring, send_zc, all",
        ),
        (
            "[target]\nsuccess-flag = \"maybe\"\n",
            "4:16: [target] success-flag: \"maybe\": it is one of always, without-flow-control, never",
        ),
        (
            "[target]\ndrain = \"1h\"\n",
            "4:9: [target] drain: \"1h\": a time is a whole number and ms or s",
        ),
        (
            "[target]\nstart = \"now\"\n",
            "4:9: [target] start: \"now\": it is one of available, all",
        ),
        (
            "[target]\ndrain = \"601s\"\n",
            "4:9: [target] drain: \"601s\": it is over 600 s",
        ),
        (
            "[target]\nreactors = 1\nreactors = 2\n",
            "5:1: not TOML: duplicate key",
        ),
        ("[target\n", "3:8: not TOML: unclosed table, expected `]`"),
        (
            "target = 7\n",
            "3:1: [[listener]] target: there is no such key; known here: transport, address, port-id",
        ),
        (
            "[[target]]\n",
            "3:1: target: a table, [target], is expected here, and this is a TOML array",
        ),
        ("[listener]\n", "3:2: not TOML: duplicate key"),
        (
            "[[listener]]\naddress = \"localhost\"\n",
            "4:11: [[listener]] address: \"localhost\": write IP:PORT or [IPv6]:PORT, for example 0.0.0.0:4420",
        ),
        (
            "[[listener]]\nport-id = 2\n",
            "3:1: [[listener]] address: it is missing; for example address = \"127.0.0.1:4420\"",
        ),
        (
            "[[listener]]\naddress = \"10.0.0.1:4420\"\nport-id = 1\n",
            "5:11: [[listener]] port-id: 1 is taken by line 1; each needs its own",
        ),
        (
            "[[listener]]\naddress = \"10.0.0.1:1\"\n[[listener]]\naddress = \"10.0.0.1:1\"\n",
            "6:11: [[listener]] address: 10.0.0.1:1 is taken by line 4; each needs its own",
        ),
        (
            "[[subsystem]]\nallow-any-host = true\n",
            "3:1: [[subsystem]] nqn: it is missing; for example nqn = \"nqn.2026-11.io.xio:snap\"",
        ),
        (
            "[[subsystem]]\nnqn = \"iqn.a\"\nallow-any-host = true\n",
            "4:7: [[subsystem]] nqn: \"iqn.a\": an NQN begins with \"nqn.\", for example nqn.2014-08.org.nvmexpress:uuid:...",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.2014-08.org.nvmexpress.discovery\"\nallow-any-host = true\n",
            "4:7: [[subsystem]] nqn: \"nqn.2014-08.org.nvmexpress.discovery\": this is the discovery service's name; a subsystem needs its own",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\n",
            "3:1: [[subsystem]] hosts: it is missing; name the hosts that may connect, hosts = [\"nqn...\"], or write allow-any-host = true",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nallow-any-host = false\n",
            "3:1: [[subsystem]] hosts: it is missing; name the hosts that may connect, hosts = [\"nqn...\"], or write allow-any-host = true",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\nallow-any-host = true\n",
            "6:18: [[subsystem]] allow-any-host: hosts are named too; leave one of the two out",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = [\"nqn.b\", 7]\n",
            "5:19: [[subsystem]] hosts: each entry is a text in quotes",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = [\"nqn.b\", \"nqn.b\"]\n",
            "5:9: [[subsystem]] hosts: nqn.b is there twice; leave one out",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = [\"nqn.2026-11.io.xio:function:pf0\"]\n",
            "5:9: [[subsystem]] hosts: nqn.2026-11.io.xio:function:pf0 is a PCIe function's host, which no list lets in or keeps out: whoever can open its socket has it; leave it out",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n",
            "7:7: [[subsystem]] nqn: nqn.a is taken by line 4; each needs its own",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\nserial = \"012345678901234567890\"\n",
            "6:10: [[subsystem]] serial: \"012345678901234567890\": it must be 1 to 20 printable ASCII characters",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[subsystem.limits]\ntransfer = \"24KiB\"\n",
            "7:12: [subsystem.limits] transfer: it must be a power of two",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\nlimits.io-queue = 1\n",
            "6:8: [subsystem.limits] io-queue: there is no such key; did you mean io-queues?",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem.namespace]]\n",
            "6:1: [[subsystem.namespace]] volume: it is missing; write volume = \"FILE\" for what xio pack made, or store = \"file:PATH\" for a plain disk",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem.namespace]]\nstorre = \"mem:1MiB\"\n",
            "7:1: [[subsystem.namespace]] storre: there is no such key; did you mean store?",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem.namespace]]\nstore = \"disk.raw\"\n",
            "7:9: [[subsystem.namespace]] store: \"disk.raw\": write file:disk.raw to serve it byte for byte, or volume = \"disk.raw\" for what xio pack made",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem.namespace]]\nstore = \"mem:1MiB\"\nvolume = \"a\"\n",
            "7:9: [[subsystem.namespace]] store: a volume is named too; leave one of the two out",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem.namespace]]\nvolume = \"a\"\nlba = 512\n",
            "8:7: [[subsystem.namespace]] lba: a volume has its own; leave this line out",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem.namespace]]\nstore = \"mem:1MiB\"\nlba = 1024\n",
            "8:7: [[subsystem.namespace]] lba: it is 512 or 4096",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem.namespace]]\nstore = \"mem:1000\"\n",
            "7:9: [[subsystem.namespace]] store: 1000 bytes are not one block of 4096; make it at least as long as a block",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem.namespace]]\nstore = \"null:511\"\nlba = 512\n",
            "7:9: [[subsystem.namespace]] store: 511 bytes are not one block of 512; make it at least as long as a block",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem.namespace]]\nvolume = \"file:x.raw\"\n",
            "7:10: [[subsystem.namespace]] volume: \"file:x.raw\": write volume = \"x.raw\" for what xio pack made, or store = \"file:x.raw\" to serve the file byte for byte",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem.namespace]]\nvolume = \"volume:nvme+tcp://a/nqn.b\"\n",
            "7:10: [[subsystem.namespace]] volume: \"volume:nvme+tcp://a/nqn.b\": write volume = \"nvme+tcp://a/nqn.b\": the key says already that it is one",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem.namespace]]\nstore = \"mem:1MiB\"\nnsid = 1025\n",
            "8:8: [[subsystem.namespace]] nsid: it must be a whole number from 1 to 1024",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem.namespace]]\nstore = \"mem:1MiB\"\nnsid = 5\n[[subsystem.namespace]]\nstore = \"mem:1MiB\"\nnsid = 5\n",
            "11:8: [[subsystem.namespace]] nsid: nsid 5 is taken by line 8; each needs its own",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem.namespace]]\nstore = \"mixed:a.xio+\"\n",
            "7:9: [[subsystem.namespace]] store: \"mixed:a.xio+\": one of its parts is empty; a + in a path is written ++",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem.namespace]]\nstore = \"mixed:a.xio+mem:1XB\"\n",
            "7:9: [[subsystem.namespace]] store: \"mixed:a.xio+mem:1XB\": mem:1XB: the unit must be one of KiB, MiB, GiB, TiB, kB, MB, GB, TB",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.a\"\nhosts = []\n[[subsystem.namespace]]\nstore = \"mem:1MiB\"\nimmutable = true\nread-only = false\n",
            "9:13: [[subsystem.namespace]] read-only: immutable = true says that nobody writes; leave this line out, or make that false",
        ),
        (
            "[admin]\ntcp = \"127.0.0.1:1\"\n",
            "3:1: [admin] socket: it is missing; for example socket = \"/run/xio/snap-target.sock\"",
        ),
        (
            "[admin]\nsocket = \"s\"\ntcp = \"127.0.0.1:1\"\ntls-key = \"k\"\n",
            "3:1: [admin] tls-cert: it is missing; the admin service over TCP needs TLS: tls-cert and tls-key name PEM files",
        ),
        (
            "[admin]\nsocket = \"s\"\ntcp = \"127.0.0.1:1\"\ntls-key = \"k\"\ntls-cert = \"c\"\n",
            "3:1: [admin] tls-client-ca: it is missing; clients over TCP show a certificate: tls-client-ca names the PEM file of the authority that signed theirs",
        ),
        (
            "[admin]\nsocket = \"s\"\ntls-change = [\"a\"]\n",
            "5:14: [admin] tls-change: it is for tcp, which is not there; add tcp = \"ADDRESS:PORT\" or leave it out",
        ),
        (
            "[[referral]]\naddress = \"192.0.2.7:0\"\n",
            "4:11: [[referral]] address: port 0 is nobody's; name the port of the discovery service",
        ),
        (
            &too_long,
            "4:10: [admin] socket: with its folder the path has 108 bytes, and a socket's has at most 107; name a shorter one",
        ),
        (
            "[target]\ncache = \"1.5GiB\"\n",
            "4:9: [target] cache: \"1.5GiB\": the size must be a whole number: write 1536MiB for 1.5GiB",
        ),
        (
            "[admin]\nsocket = \"s\"\ntls-client-ca = \"c\"\n",
            "5:17: [admin] tls-client-ca: it is for tcp, which is not there; add tcp = \"ADDRESS:PORT\" or leave it out",
        ),
    ];
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|(text, expected)| {
            let expected = format!("/etc/xio/t.toml:{expected}");
            let found = parse(&format!("{LEAST}{text}")).err();
            (found.as_ref() != Some(&expected))
                .then(|| format!("{text}  is      {found:?}\n  must be {expected:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_file_without_a_listener_serves_nobody() {
    assert_eq!(
        parse("").unwrap_err(),
        "/etc/xio/t.toml:1:1: [[listener]]: there is none, so no host could connect; write [[listener]] and address = \"127.0.0.1:4420\""
    );
}

/// TCP and RDMA have ports of their own: one address may be both.
#[test]
fn listeners_have_a_transport() {
    let config = parse(
        "[[listener]]\naddress = \"192.0.2.7:4420\"\n[[listener]]\ntransport = \"rdma\"\naddress = \"192.0.2.7:4420\"\n[[listener]]\ntransport = \"tcp\"\naddress = \"[::1]:4420\"\n",
    )
    .unwrap();
    let places = config.listeners.iter().map(|it| it.place.to_string());
    assert_eq!(
        places.collect::<Vec<_>>(),
        ["192.0.2.7:4420", "rdma://192.0.2.7:4420", "[::1]:4420"]
    );
    let one = "[[listener]]\ntransport = \"rdma\"\naddress = \"192.0.2.7:4420\"\n";
    assert_eq!(
        parse(&format!("{one}{one}")).unwrap_err(),
        "/etc/xio/t.toml:6:11: [[listener]] address: rdma://192.0.2.7:4420 is taken by line 3; each needs its own"
    );
    assert_eq!(
        parse(&one.replace("rdma", "roce")).unwrap_err(),
        "/etc/xio/t.toml:2:13: [[listener]] transport: \"roce\": write tcp or rdma"
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::load(&PathBuf::from("/no/such/file.toml")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/no/such/file.toml: No such file or directory (os error 2)"
    );
}

/// Nesting that would overflow a stack is refused by the parser's own bound.
#[test]
fn deep_nesting_is_an_error() {
    let text = format!(
        "{LEAST}x = {}1{}\n",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert!(parse(&text).unwrap_err().contains("not TOML"));
}

/// Else what was changed while serving would not be known again by a start from another folder.
#[test]
fn paths_do_not_depend_on_how_the_file_was_named() {
    let text = format!("{LEAST}{SUBSYSTEM}[[subsystem.namespace]]\nstore = \"file:disk.raw\"\n");
    let here = std::env::current_dir().unwrap();
    let whole = Config::parse(&here.join("t.toml"), &text).unwrap();
    let named = here.file_name().unwrap();
    for name in [
        Path::new("t.toml").to_owned(),
        Path::new("./t.toml").to_owned(),
        Path::new("..").join(named).join("t.toml"),
    ] {
        assert_eq!(Config::parse(&name, &text).as_ref(), Ok(&whole), "{name:?}");
    }
}
