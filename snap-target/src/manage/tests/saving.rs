//! A change is saved before hosts see it, over a disk that fails where it is told to.

use std::io;
use std::sync::{Arc, Mutex};

use admin_proto::v1::{HealthState, Reason};
use nix::errno::Errno;

use super::{Fake, Rig, nqn};
use crate::health::Phase;
use crate::manage::{ManageError, Manager, NamespaceLive};
use crate::state::{Disk, Folder};

/// Writes down what is saved among what the frontend is asked.
#[derive(Clone, Debug)]
struct Watched {
    folder: Arc<Mutex<Folder>>,
    fake: Fake,
    fails: Arc<Mutex<Option<Fails>>>,
}

#[derive(Clone, Copy, Debug)]
enum Fails {
    /// Every write.
    Writes(Errno),
    /// What comes last, once: then the file has its new name already.
    NamesOnce,
}

impl Watched {
    fn new(rig: &Rig) -> Watched {
        Watched {
            folder: Arc::new(Mutex::new(Folder::open(rig.folder.path()).unwrap())),
            fake: rig.fake.clone(),
            fails: Arc::default(),
        }
    }

    fn fail(&self, fails: Option<Fails>) {
        *self.fails.lock().unwrap() = fails;
    }

    fn manager(&self, rig: &Rig) -> Manager {
        rig.manager_over(rig.state().on(self.clone())).unwrap()
    }
}

impl Disk for Watched {
    fn write_new(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.try_write()?;
        self.fake.calls.lock().unwrap().push("save".to_owned());
        self.folder.lock().unwrap().write_new(name, bytes)
    }

    fn sync_written(&mut self) -> io::Result<()> {
        self.folder.lock().unwrap().sync_written()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.folder.lock().unwrap().rename(from, to)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.folder.lock().unwrap().remove(name)
    }

    fn sync_names(&mut self) -> io::Result<()> {
        let mut fails = self.fails.lock().unwrap();
        if matches!(*fails, Some(Fails::NamesOnce)) {
            *fails = None;
            return Err(Errno::EIO.into());
        }
        self.folder.lock().unwrap().sync_names()
    }

    fn try_write(&self) -> io::Result<()> {
        match *self.fails.lock().unwrap() {
            Some(Fails::Writes(errno)) => Err(errno.into()),
            _ => Ok(()),
        }
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.folder.lock().unwrap().read(name)
    }
}

const NOTHING: [&str; 0] = [];

fn problems(rig: &Rig) -> Vec<String> {
    let all = rig.health.report().problems;
    all.into_iter().map(|it| it.text).collect()
}

#[test]
fn a_change_is_saved_before_hosts_see_it() {
    let rig = Rig::new();
    let disk = Watched::new(&rig);
    let mut manager = disk.manager(&rig);
    assert!(!rig.fake.take().contains(&"save".to_owned()), "as it was");
    rig.fake.fail(Some("detach"));
    manager.detach(&nqn("nqn.a"), 1).unwrap_err();
    assert_eq!(rig.fake.take(), ["save", "detach nqn.a 1", "save"]);
    rig.fake.fail(None);
    manager.detach(&nqn("nqn.a"), 1).unwrap();
    assert_eq!(rig.fake.take(), ["save", "detach nqn.a 1"]);
    drop(manager);
    let manager = disk.manager(&rig);
    assert_eq!(manager.desired().namespace(&nqn("nqn.a"), 1), None);
    assert!(!rig.fake.take().contains(&"save".to_owned()), "as it was");
}

/// Full, over quota, read-only: hosts are served, changes are refused, and health says what to do, until there is room.
#[test]
fn a_folder_that_cannot_be_written_refuses_changes_and_serves() {
    let room = "make room in its file system and try again";
    let rights = "make it writable to the daemon's user and try again";
    for (errno, refused, advice) in [
        (Errno::ENOSPC, Reason::StateFull, room),
        (Errno::EDQUOT, Reason::StateFull, room),
        (Errno::EROFS, Reason::StateReadOnly, rights),
        (Errno::EACCES, Reason::StateReadOnly, rights),
    ] {
        let rig = Rig::new();
        rig.health.enter(Phase::Serving);
        let disk = Watched::new(&rig);
        disk.fail(Some(Fails::Writes(errno)));
        // Known at the start, before anybody asks for a change.
        let mut manager = disk.manager(&rig);
        let said = format!(
            "the state folder {}: the changes cannot be saved: {}; {advice}",
            rig.folder.path().display(),
            io::Error::from(errno)
        );
        assert_eq!(problems(&rig), [said.as_str()]);
        assert_eq!(rig.health.report().state(), HealthState::Degraded);
        rig.fake.take();
        assert_eq!(
            manager.detach(&nqn("nqn.a"), 1),
            Err(ManageError::new(
                refused,
                format!("{said}; nothing was changed")
            ))
        );
        assert_eq!(rig.fake.take(), NOTHING, "hosts keep their disk");
        assert!(matches!(
            manager.live_namespace(&nqn("nqn.a"), 1),
            Some(NamespaceLive::Served(_))
        ));
        let told = problems(&rig);
        assert_ne!(told, NOTHING);
        manager.retry_failed();
        assert_eq!(problems(&rig), told, "nothing is mended yet");
        // Mended, and nobody asked for a change.
        disk.fail(None);
        manager.retry_failed();
        assert_eq!(problems(&rig), NOTHING);
        manager.detach(&nqn("nqn.a"), 1).unwrap();
        assert_eq!(rig.health.report().state(), HealthState::Serving);
    }
}

/// Where the failing step comes after the new file has its name, the old one gets it back.
#[test]
fn a_change_whose_saving_fails_at_the_end_is_not_made_by_the_next_start() {
    let rig = Rig::new();
    let disk = Watched::new(&rig);
    let mut manager = disk.manager(&rig);
    manager
        .create_subsystem(
            nqn("nqn.b"),
            manager.desired().subsystems[&nqn("nqn.a")].body.clone(),
        )
        .unwrap();
    let before = manager.desired().clone();
    rig.fake.take();
    disk.fail(Some(Fails::NamesOnce));
    let refused = manager.detach(&nqn("nqn.a"), 1).unwrap_err();
    assert_eq!(refused.reason, Reason::StateFault);
    assert_eq!(rig.fake.take(), ["save", "save"]);
    drop(manager);
    assert_eq!(*disk.manager(&rig).desired(), before);
}
