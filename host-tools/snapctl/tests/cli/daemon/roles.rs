//! Over TLS the certificate says what one may, and whose word an announcement is: the real daemon, asked by three people.

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::support::{Ran, snapctl};
use super::super::tls::{Authority, write};
use super::Daemon;

const NQN: &str = "nqn.2026-11.org.example:configured";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:d0e5c1d8-8a2c-4b6c-9a0e-0242ac120002";
const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:d0e5c1d8-8a2c-4b6c-9a0e-0242ac120003";

/// Somebody with a certificate.
struct Person {
    options: Vec<String>,
}

impl Person {
    fn ask(&self, arguments: &[&str]) -> Ran {
        let options = self.options.iter().map(String::as_str);
        snapctl(
            None,
            &options.chain(arguments.iter().copied()).collect::<Vec<_>>(),
        )
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.ask(&[arguments, &["--json"]].concat());
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{arguments:?}");
        serde_json::from_str(&ran.stdout).unwrap()
    }

    /// Whether it may: done, or refused for its role.
    fn may(&self, arguments: &[&str]) -> bool {
        let ran = self.ask(&[arguments, &["--json"]].concat());
        if ran.status == 0 {
            return true;
        }
        let refused: Value = serde_json::from_str(&ran.stderr).unwrap();
        assert_eq!(
            (ran.status, &refused["code"], &refused["reason"]),
            (6, &json!("PERMISSION_DENIED"), &json!("REASON_ROLE")),
            "{arguments:?}: {refused}"
        );
        false
    }
}

/// A certificate with this common name, and a host's NQN as an alternative name.
fn certificate(name: &str, host: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let uri = host.map(|host| SanType::URI(host.try_into().unwrap()));
    params.subject_alt_names.extend(uri);
    params
}

#[test]
#[ignore = "needs the daemon's program beside this one: ci/test builds both"]
fn a_certificate_says_what_one_may_and_whose_word_it_is() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| write(folder.path(), name, text);
    let authority = Authority::new();
    let (cert, key) = authority.sign("localhost");
    file("server.pem", &cert);
    file("server.key", &key);
    let ca = file("ca.pem", &authority.pem);
    let daemon = Daemon::start_with(
        folder.path(),
        "tcp = \"127.0.0.1:0\"\ntls-cert = \"server.pem\"\ntls-key = \"server.key\"\ntls-client-ca = \"ca.pem\"\n\
         tls-announce = [\"trainer1\"]\ntls-change = [\"operator\"]\n",
    );
    let address = daemon
        .said
        .iter()
        .find_map(|line| line.strip_prefix("admin https://"))
        .unwrap();
    let person = |name: &str, host: Option<&str>| {
        let key = KeyPair::generate().unwrap();
        let cert = authority.sign_params(certificate(name, host), &key);
        let cert = file(&format!("{name}.pem"), &cert);
        let key = file(&format!("{name}.key"), &key.serialize_pem());
        let options = [
            ["--tcp", address],
            ["--tls-name", "localhost"],
            ["--tls-ca", &ca],
            ["--tls-cert", &cert],
            ["--tls-key", &key],
        ];
        Person {
            options: options.concat().into_iter().map(str::to_owned).collect(),
        }
    };
    let reader = person("reader", None);
    let trainer = person("trainer1", Some(HOST));
    let operator = person("operator", Some(OTHER));

    let read: [&[&str]; 4] = [
        &["subsystem", "list"],
        &["stat", "--totals"],
        &["events"],
        &["recorder", "dump"],
    ];
    for who in [&reader, &trainer, &operator] {
        for arguments in read {
            assert!(who.may(arguments), "{arguments:?}");
        }
    }
    let change: [&[&str]; 5] = [
        &["host", "allow", NQN, HOST, "--only"],
        &["namespace", "attach", NQN, "null:1MiB"],
        &["listener", "add", "127.0.0.1:0"],
        &["subsystem", "delete", NQN, "--force"],
        &["target", "drain"],
    ];
    for arguments in change {
        assert!(!reader.may(arguments), "{arguments:?}");
        assert!(!trainer.may(arguments), "{arguments:?}");
    }
    assert!(operator.may(change[1]));

    let announce = |who: &Person, host: &str, label: &str| {
        who.may(&["announce", host, "--reader", label, "--epoch", "1"])
    };
    assert!(!announce(&reader, HOST, "nobody"));
    assert!(announce(&trainer, HOST, "own"));
    // Its certificate has another name.
    assert!(announce(&trainer, OTHER, "others"));
    assert!(announce(&operator, HOST, "operators"));
    let local = daemon.ctl(&["announce", HOST, "--reader", "local", "--epoch", "1"]);
    assert_eq!(local.status, 0);
    let list = reader.json(&["announcement", "list"]);
    let rows = list["announcements"].as_array().unwrap().iter();
    let proven: Vec<_> = rows
        .map(|row| (&row["reader"], &row["host_nqn"], &row["verified"]))
        .collect();
    let row =
        |label: &str, host: &str, verified: bool| (json!(label), json!(host), json!(verified));
    let expected = [
        row("local", HOST, false),
        row("operators", HOST, false),
        row("own", HOST, true),
        row("others", OTHER, false),
    ];
    let expected: Vec<_> = expected.iter().map(|(a, b, c)| (a, b, c)).collect();
    assert_eq!(proven, expected);

    // Whose doing it was, and nothing of those that were refused.
    let told = reader.ask(&[
        "events",
        "--topic",
        "namespace",
        "--topic",
        "host",
        "--json",
    ]);
    let events = told
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let actors: Vec<Value> = events
        .filter_map(|message: Value| message.get("event").map(|it| it["actor"].clone()))
        .collect();
    assert_eq!(actors, [json!("operator")]);
}
