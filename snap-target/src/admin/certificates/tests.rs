use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use super::*;
use crate::events::Hub;

/// Three files, and what looks at them; the test's thread looks.
struct Rig {
    folder: TempDir,
    look: Look,
    health: Health,
    certificates: Certificates,
    /// A modification time that no file had.
    later: SystemTime,
}

/// A certificate and its key.
fn made() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

impl Rig {
    fn new() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let files = AdminTcpConfig {
            address: ([127, 0, 0, 1], 0).into(),
            cert: path("cert"),
            key: path("key"),
            client_ca: path("ca"),
            announce: Vec::new(),
            change: Vec::new(),
        };
        let (cert, key) = made();
        for (name, pem) in [("cert", &cert), ("key", &key), ("ca", &cert)] {
            std::fs::write(path(name), pem).unwrap();
        }
        let health = Health::new(Hub::default());
        let certificates = Certificates::read(&files).unwrap();
        let look = Look::new(files, certificates.clone(), health.clone());
        Rig {
            folder,
            look,
            health,
            certificates,
            later: SystemTime::now(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&mut self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        // However coarse the file system's clock is.
        self.later += Duration::from_secs(1);
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(self.later).unwrap();
    }

    fn server(&self) -> Arc<tokio_rustls::rustls::ServerConfig> {
        self.certificates.now().server
    }

    fn problems(&self) -> Vec<(HealthCode, String)> {
        let problems = self.health.report().problems.into_iter();
        problems.map(|it| (it.code(), it.text)).collect()
    }
}

#[test]
fn files_that_did_not_change_are_left_alone() {
    let mut rig = Rig::new();
    let before = rig.server();
    assert_eq!(rig.look.look(false), TLS_LOOK);
    assert!(Arc::ptr_eq(&before, &rig.server()));
    // Whoever asks has them read.
    assert_eq!(rig.look.look(true), TLS_LOOK);
    assert!(!Arc::ptr_eq(&before, &rig.server()));
}

/// The key comes a moment after its certificate: nobody is told of the moment between.
#[test]
fn a_renewal_is_taken_up_when_it_is_whole() {
    let mut rig = Rig::new();
    let before = rig.server();
    let (cert, key) = made();
    rig.write("cert", &cert);
    assert_eq!(rig.look.look(false), TLS_SETTLE);
    assert!(Arc::ptr_eq(&before, &rig.server()));
    rig.write("key", &key);
    assert_eq!(rig.look.look(false), TLS_LOOK);
    assert!(!Arc::ptr_eq(&before, &rig.server()));
    assert_eq!(rig.problems(), []);
}

#[test]
fn a_broken_file_changes_nothing_and_is_told_once() {
    let mut rig = Rig::new();
    let before = rig.server();
    rig.write("key", "nothing\n");
    assert_eq!(rig.look.look(false), TLS_SETTLE);
    assert_eq!(rig.problems(), []);
    assert_eq!(rig.look.look(false), TLS_LOOK);
    assert!(Arc::ptr_eq(&before, &rig.server()));
    let [(HealthCode::Certificate, text)] = &rig.problems()[..] else {
        panic!("{:?}", rig.problems())
    };
    let beginning = format!("tls-key {}: it is not", rig.path("key").display());
    assert!(text.starts_with(&beginning), "{text}");
    assert!(text.ends_with("; the ones before stay in force"), "{text}");
    // It is settled: nothing is read until something changes.
    assert_eq!(rig.look.look(false), TLS_LOOK);
    assert_eq!(rig.look.doubtful, None);

    std::fs::remove_file(rig.path("ca")).unwrap();
    assert_eq!(rig.look.look(true), TLS_SETTLE);
    assert_eq!(rig.look.look(false), TLS_LOOK);
    let [(_, text)] = &rig.problems()[..] else {
        panic!("{:?}", rig.problems())
    };
    assert!(text.starts_with("tls-client-ca "), "{text}");

    let (cert, key) = made();
    for (name, pem) in [("cert", &cert), ("key", &key), ("ca", &cert)] {
        rig.write(name, pem);
    }
    assert_eq!(rig.look.look(false), TLS_LOOK);
    assert!(!Arc::ptr_eq(&before, &rig.server()));
    assert_eq!(rig.problems(), []);
}
