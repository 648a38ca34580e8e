//! The manager against a frontend that writes down what it is asked, and fails where it is told to.

mod closing;
mod cutting;
mod cutting_again;
mod damage;
mod denied;
mod drain;
mod functions;
mod lives;
mod opening;
mod reachable;
mod resizing;
mod saving;
mod starting;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admin_proto::v1::{HealthCode, Reason};
use frontend_nvme::link::Bound;
use frontend_nvme::{AdminError, Closed, Closing, ControllerReport, Life};
use frontend_vhost_user_blk::DeviceReport;
use namespace::Namespace;
use nvme::controller::{ControllerId, HostPolicy, Lifetime, Referral, Subsystem, Visibility};
use nvme::nqn::Nqn;
use nvme_spec::Nsid;

use super::{Foundation, Frontend, ManageError, Manager, NamespaceLive, NewNamespace, NewSize};
use crate::catalogue::Catalogue;
use crate::config::{Config, FunctionConfig, FunctionName, Writes};
use crate::desired::Desired;
use crate::events::Hub;
use crate::health::{Health, Phase};
use crate::limits::OPEN_TIME_MAX;
use crate::ports::Ports;
use crate::state::StateFolder;

/// What it was asked, and which call fails.
#[derive(Clone, Debug, Default)]
struct Fake {
    calls: Arc<Mutex<Vec<String>>>,
    fails: Arc<Mutex<Option<&'static str>>>,
    /// What a store has left of what is taken away.
    leaves: Arc<Mutex<Option<Closing>>>,
    /// Who is connected.
    connected: Arc<Mutex<Vec<ControllerReport>>>,
    /// What the subsystems that were made have counted.
    lifetimes: Arc<Mutex<BTreeMap<Nqn, Lifetime>>>,
}

impl Fake {
    fn call(&self, call: String) -> Result<(), AdminError> {
        let fails = *self.fails.lock().unwrap();
        let failed = fails.is_some_and(|name| call.starts_with(name));
        self.calls.lock().unwrap().push(call);
        if failed {
            Err(AdminError::Stopped)
        } else {
            Ok(())
        }
    }

    /// What a call that takes something away leaves: as it was told.
    fn taken(&self, called: Result<(), AdminError>) -> Result<Closed, AdminError> {
        let leaves = self.leaves.lock().unwrap().clone();
        called.map(|()| leaves.map_or(Closed::Done, Closed::Later))
    }

    /// What it was asked since.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn fail(&self, call: Option<&'static str>) {
        *self.fails.lock().unwrap() = call;
    }
}

impl Frontend for Fake {
    fn create_subsystem(&self, subsystem: Subsystem, life: Life) -> Result<(), AdminError> {
        let (nqn, lifetime) = (subsystem.nqn.clone(), life.lifetime);
        self.lifetimes.lock().unwrap().insert(nqn, lifetime);
        self.call(format!("create {} {:?}", subsystem.nqn, subsystem.hosts))
    }

    fn delete_subsystem(&self, nqn: &Nqn) -> Result<Closed, AdminError> {
        self.taken(self.call(format!("delete {nqn}")))
    }

    fn set_hosts(&self, nqn: &Nqn, hosts: HostPolicy) -> Result<Closed, AdminError> {
        self.taken(self.call(format!("hosts {nqn} {hosts:?}")))
    }

    fn attach(
        &self,
        nqn: &Nqn,
        namespace: Arc<Namespace>,
        visibility: Visibility,
    ) -> Result<(), AdminError> {
        let (nsid, bytes) = (namespace.nsid, namespace.bytes());
        self.call(format!("attach {nqn} {nsid} {bytes} {visibility:?}"))
    }

    fn replace(&self, nqn: &Nqn, namespace: Arc<Namespace>) -> Result<Closed, AdminError> {
        let (nsid, bytes) = (namespace.nsid, namespace.bytes());
        self.taken(self.call(format!("replace {nqn} {nsid} {bytes}")))
    }

    fn detach(&self, nqn: &Nqn, nsid: Nsid) -> Result<Closed, AdminError> {
        self.taken(self.call(format!("detach {nqn} {}", nsid.0)))
    }

    fn set_visibility(
        &self,
        nqn: &Nqn,
        nsid: Nsid,
        visibility: Visibility,
    ) -> Result<Closed, AdminError> {
        self.taken(self.call(format!("visibility {nqn} {} {visibility:?}", nsid.0)))
    }

    fn add_listener(&self, port_id: u16, _listener: Box<dyn Bound>) -> Result<(), AdminError> {
        self.call(format!("listen {port_id}"))
    }

    fn remove_listener(&self, port_id: u16) -> Result<(), AdminError> {
        self.call(format!("silence {port_id}"))
    }

    fn add_disk(&self, config: &FunctionConfig, namespace: &Namespace) -> Result<(), String> {
        self.call(format!("disk {} nsid {}", config.name, namespace.nsid))
            .map_err(|error| error.to_string())
    }

    fn remove_disk(&self, name: FunctionName) -> bool {
        let called = self.call(format!("no disk {name}"));
        called.is_err()
    }

    fn disk(&self, _name: FunctionName) -> Option<DeviceReport> {
        None
    }

    fn remove_function(&self, port_id: u16) -> Result<Closed, AdminError> {
        self.taken(self.call(format!("silence function {port_id}")))
    }

    fn set_referrals(&self, referrals: Vec<Referral>) -> Result<(), AdminError> {
        self.call(format!("referrals {}", referrals.len()))
    }

    fn end_controller(&self, id: ControllerId) -> Result<Closed, AdminError> {
        self.connected.lock().unwrap().retain(|it| it.id != id);
        self.taken(self.call(format!("end {}", id.0)))
    }

    fn controllers(&self) -> Result<Vec<ControllerReport>, AdminError> {
        Ok(self.connected.lock().unwrap().clone())
    }

    fn lifetimes(&self) -> Result<Vec<(Nqn, Lifetime)>, AdminError> {
        let all = self.lifetimes.lock().unwrap();
        Ok(all.iter().map(|(nqn, it)| (nqn.clone(), *it)).collect())
    }
}

const BASE: &str = r#"
[[listener]]
address = "127.0.0.1:0"
[[subsystem]]
nqn = "nqn.a"
hosts = ["nqn.h"]
[[subsystem.namespace]]
store = "null:1MiB"
"#;

struct Rig {
    /// The configuration.
    file: String,
    fake: Fake,
    health: Health,
    events: Hub,
    folder: Arc<tempfile::TempDir>,
    open_time_max: Duration,
}

impl Rig {
    fn new() -> Rig {
        let events = Hub::default();
        Rig {
            file: BASE.to_owned(),
            fake: Fake::default(),
            health: Health::new(events.clone()),
            events,
            folder: Arc::new(tempfile::tempdir().unwrap()),
            open_time_max: OPEN_TIME_MAX,
        }
    }

    /// A manager over what was kept, as after a restart; the one before is gone.
    fn manager(&self) -> anyhow::Result<Manager> {
        self.manager_over(self.state())
    }

    fn state(&self) -> StateFolder {
        StateFolder::open(self.folder.path()).unwrap()
    }

    fn manager_over(&self, state: StateFolder) -> anyhow::Result<Manager> {
        let config = Config::parse(Path::new("/t.toml"), &self.file).unwrap();
        Manager::restore(Foundation {
            frontend: Box::new(self.fake.clone()),
            ports: Ports::new(config.target.success_flag),
            policy: config.target.source_policy(),
            base: Desired::of(&config),
            start: config.target.start,
            state: Some(state),
            events: self.events.clone(),
            health: self.health.clone(),
            open_time_max: self.open_time_max,
            catalogue: Catalogue::default(),
        })
    }

    /// From now on nothing can be saved, or it can be again.
    fn break_folder(&self, broken: bool) {
        let new = self.folder.path().join("changes.new");
        if broken {
            std::fs::create_dir(new).unwrap();
        } else {
            std::fs::remove_dir(new).unwrap();
        }
    }
}

fn nqn(text: &str) -> Nqn {
    Nqn::parse(text).unwrap()
}

fn new(source: &str) -> NewNamespace {
    NewNamespace {
        nqn: nqn("nqn.a"),
        nsid: None,
        source: source.to_owned(),
        lba_bytes: None,
        writes: Writes::Taken,
        limit: None,
        visibility: Visibility::All,
    }
}

#[test]
fn a_start_serves_the_configuration_and_listens_last() {
    let rig = Rig::new();
    rig.manager().unwrap();
    assert_eq!(
        rig.fake.take(),
        [
            "referrals 0",
            "create nqn.a Only([nqn.h])",
            "attach nqn.a 1 1048576 All",
            "listen 1"
        ]
    );
}

/// Every change: no longer saved where the frontend refuses it, and not begun where it cannot be saved.
#[test]
fn a_change_that_fails_leaves_everything_as_it_was() {
    type Change = fn(&mut Manager) -> Result<(), ManageError>;
    let changes: [(&str, &'static str, Change, &str); 8] = [
        (
            "create",
            "create",
            |it| {
                let body = it.desired().subsystems[&nqn("nqn.a")].body.clone();
                it.create_subsystem(nqn("nqn.b"), body)
            },
            "create nqn.b Only([nqn.h])",
        ),
        (
            "delete",
            "delete",
            |it| it.delete_subsystem(&nqn("nqn.a"), true).map(|_| ()),
            "delete nqn.a",
        ),
        (
            "attach",
            "attach",
            |it| it.attach(new("mem:1MiB")).map(|_| ()),
            "attach nqn.a 2 1048576 All",
        ),
        (
            "detach",
            "detach",
            |it| it.detach(&nqn("nqn.a"), 1).map(|_| ()),
            "detach nqn.a 1",
        ),
        (
            "resize",
            "replace",
            |it| {
                it.resize(&nqn("nqn.a"), 1, NewSize::Bytes(2 << 20), false)
                    .map(|_| ())
            },
            "replace nqn.a 1 2097152",
        ),
        (
            "visibility",
            "visibility",
            |it| {
                let hosts = Visibility::Hosts(vec![nqn("nqn.h")]);
                it.set_visibility(&nqn("nqn.a"), 1, hosts).map(|_| ())
            },
            "visibility nqn.a 1 Hosts([nqn.h])",
        ),
        (
            "hosts",
            "hosts",
            |it| it.set_hosts(&nqn("nqn.a"), HostPolicy::Any).map(|_| ()),
            "hosts nqn.a Any",
        ),
        (
            "remove",
            "silence",
            |it| it.remove_listener(1, true),
            "silence 1",
        ),
    ];
    let rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    rig.fake.take();
    let before = manager.desired().clone();
    for (what, call, change, asked) in changes {
        let told = rig.events.range();
        rig.fake.fail(Some(call));
        let error = change(&mut manager).unwrap_err();
        assert_eq!(
            error,
            ManageError::new(Reason::Ending, "the target is stopping"),
            "{what}"
        );
        rig.fake.fail(None);
        assert_eq!(rig.fake.take(), [asked], "{what}");
        assert_eq!(*manager.desired(), before, "{what}");
        assert_eq!(rig.events.range(), told, "{what}: nothing is told");

        rig.break_folder(true);
        let error = change(&mut manager).unwrap_err();
        assert!(
            error.reason == Reason::StateFault && error.to_string().contains("nothing was changed"),
            "{what}: {error:?}"
        );
        rig.break_folder(false);
        // Told now, not as news of the next change.
        rig.health.well("state folder");
        assert_eq!(
            rig.fake.take(),
            Vec::<String>::new(),
            "{what}: hosts saw nothing"
        );
        assert_eq!(*manager.desired(), before, "{what}");
    }
    assert!(matches!(
        manager.live_namespace(&nqn("nqn.a"), 1),
        Some(NamespaceLive::Served(it)) if it.bytes() == 1 << 20
    ));
    drop(manager);
    assert_eq!(
        *rig.manager().unwrap().desired(),
        before,
        "nothing was kept of it"
    );
}

#[test]
fn what_was_made_is_made_again_by_the_next_start() {
    let rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    let body = manager.desired().subsystems[&nqn("nqn.a")].body.clone();
    manager.create_subsystem(nqn("nqn.b"), body).unwrap();
    assert_eq!(
        manager.attach(NewNamespace {
            nqn: nqn("nqn.b"),
            nsid: Some(7),
            ..new("null:4MiB")
        }),
        Ok(7)
    );
    manager.detach(&nqn("nqn.a"), 1).unwrap();
    manager
        .resize(&nqn("nqn.b"), 7, NewSize::Bytes(8 << 20), false)
        .unwrap();
    let added = manager.add_listener("127.0.0.1:0".parse().unwrap(), None);
    assert_eq!(added, Ok(2));
    manager
        .add_referral("192.0.2.1:1".parse().unwrap(), 0)
        .unwrap();
    let made = manager.desired().clone();
    rig.fake.take();
    drop(manager);
    let manager = rig.manager().unwrap();
    assert_eq!(*manager.desired(), made);
    assert_eq!(
        rig.fake.take(),
        [
            "referrals 1",
            "create nqn.a Only([nqn.h])",
            "create nqn.b Only([nqn.h])",
            "attach nqn.b 7 8388608 All",
            "listen 1",
            "listen 2"
        ]
    );
}

/// What was made and is gone is a problem that is told; it is tried again at the next start.
#[test]
fn a_disk_that_went_away_is_not_served_and_the_rest_is() {
    let rig = Rig::new();
    rig.health.enter(Phase::Serving);
    let disk = rig.folder.path().join("disk.raw");
    std::fs::write(&disk, vec![0; 8192]).unwrap();
    let mut manager = rig.manager().unwrap();
    let source = format!("file:{}", disk.display());
    assert_eq!(manager.attach(new(&source)), Ok(2));
    drop(manager);
    let away = disk.with_extension("away");
    std::fs::rename(&disk, &away).unwrap();
    let mut manager = rig.manager().unwrap();
    let Some(NamespaceLive::Failed(why)) = manager.live_namespace(&nqn("nqn.a"), 2) else {
        panic!("it cannot be served")
    };
    assert!(why.contains("check the path"), "{why}");
    let problem = &rig.health.report().problems[0];
    assert_eq!(problem.id, "nqn.a nsid 2");
    assert_eq!(problem.code(), HealthCode::SourceUnusable);
    let refused = manager.resize(&nqn("nqn.a"), 2, NewSize::Rescan, false);
    assert_eq!(refused.unwrap_err().reason, Reason::NotServed);
    drop(manager);
    std::fs::rename(&away, &disk).unwrap();
    let mut manager = rig.manager().unwrap();
    assert!(matches!(
        manager.live_namespace(&nqn("nqn.a"), 2),
        Some(NamespaceLive::Served(_))
    ));
    // It grew by itself: hosts see that when they are told to look.
    std::fs::OpenOptions::new()
        .write(true)
        .open(&disk)
        .unwrap()
        .set_len(16384)
        .unwrap();
    rig.fake.take();
    assert_eq!(
        manager.resize(&nqn("nqn.a"), 2, NewSize::Rescan, false),
        Ok((8192, None))
    );
    assert_eq!(rig.fake.take(), ["replace nqn.a 2 16384"]);
    // Smaller only by force, and then the file is cut.
    let smaller = NewSize::Bytes(4096);
    assert!(manager.resize(&nqn("nqn.a"), 2, smaller, false).is_err());
    assert_eq!(rig.fake.take(), Vec::<String>::new());
    let cut = manager.resize(&nqn("nqn.a"), 2, smaller, true);
    assert_eq!(cut, Ok((16384, None)));
    assert_eq!(rig.fake.take(), ["replace nqn.a 2 4096"]);
    assert_eq!(std::fs::metadata(&disk).unwrap().len(), 4096);
}

#[test]
fn the_same_disk_is_not_served_twice() {
    let rig = Rig::new();
    let disk = rig.folder.path().join("disk.raw");
    std::fs::write(&disk, vec![0; 8192]).unwrap();
    let source = format!("file:{}", disk.display());
    let mut manager = rig.manager().unwrap();
    manager.attach(new(&source)).unwrap();
    let body = manager.desired().subsystems[&nqn("nqn.a")].body.clone();
    manager.create_subsystem(nqn("nqn.b"), body).unwrap();
    for of in ["nqn.a", "nqn.b"] {
        let again = NewNamespace {
            nqn: nqn(of),
            ..new(&source)
        };
        let error = manager.attach(again).unwrap_err();
        assert_eq!(error.reason, Reason::SourceInUse);
        let which = "serve it once: namespace 2 of nqn.a has it";
        assert!(error.to_string().ends_with(which), "{error:?}");
    }
    // Under another name, which has a UUID of its own; and at a start.
    let link = rig.folder.path().join("link.raw");
    std::os::unix::fs::symlink(&disk, &link).unwrap();
    let again = new(&format!("file:{}", link.display()));
    let error = manager.attach(again).unwrap_err().to_string();
    assert!(error.contains("two names of the same disk"), "{error}");
    drop(manager);
    let mut strict = Rig::new();
    strict.file = format!(
        "[target]\nstart = \"all\"\n{BASE}[[subsystem.namespace]]\nstore = \"file:{}\"\n[[subsystem.namespace]]\nstore = \"file:{}\"\n",
        disk.display(),
        link.display()
    );
    let error = strict.manager().err().unwrap().to_string();
    assert!(error.contains("two names of the same disk"), "{error}");
}

#[test]
fn a_draining_daemon_takes_no_changes() {
    let rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    rig.health.enter(Phase::Draining);
    let refused = manager.attach(new("mem:1MiB")).unwrap_err();
    assert_eq!(refused.reason, Reason::Ending);
    let refused = manager.remove_listener(1, true).unwrap_err();
    assert_eq!(refused.reason, Reason::Ending);
}
