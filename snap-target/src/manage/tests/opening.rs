//! Sources that do not answer: a pipe that nobody writes to is opened for ever.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use admin_proto::v1::{HealthCode, Reason};
use nix::sys::stat::Mode;

use super::{Rig, new, nqn};
use crate::limits::OPENINGS_MAX;
use crate::manage::{Manager, NewSize};

fn pipe(rig: &Rig, name: &str) -> PathBuf {
    let path = rig.folder.path().join(name);
    nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    path
}

/// Looks around until that holds.
fn until(manager: &mut Manager, holds: impl Fn(&Manager) -> bool) {
    let by = Instant::now() + Duration::from_secs(10);
    while !holds(manager) {
        assert!(Instant::now() < by, "it does not come to hold");
        manager.look_around();
        std::thread::yield_now();
    }
}

#[test]
fn others_are_served_while_a_source_is_silent_and_it_is_given_up_in_time() {
    let mut rig = Rig::new();
    rig.open_time_max = Duration::from_secs(2);
    let pipe = pipe(&rig, "pipe");
    let mut manager = rig.manager().unwrap();
    let (tell, told) = channel();
    manager.attach_then(new(pipe.to_str().unwrap()), move |_, attached| {
        tell.send(attached).unwrap();
    });
    assert!(told.try_recv().is_err(), "it is being opened");
    let grown = manager.resize(&nqn("nqn.a"), 1, NewSize::Bytes(2 << 20), false);
    assert_eq!(grown, Ok((1 << 20, None)));
    until(&mut manager, |it| {
        it.waits_for_others() && rig.health.report().problems.len() == 1
    });
    let refused = told.try_recv().unwrap().unwrap_err();
    assert_eq!(refused.reason, Reason::SourceSilent, "{refused}");
    let problem = &rig.health.report().problems[0];
    assert_eq!(problem.id, format!("opening {}", pipe.display()));
    assert_eq!(problem.code(), HealthCode::SourceSilent);
    assert_eq!(manager.attach(new("mem:1MiB")), Ok(2));
    // The server answers after all: nobody waits for it any more.
    let _writer = OpenOptions::new().write(true).open(&pipe).unwrap();
    until(&mut manager, |it| !it.waits_for_others());
    assert_eq!(rig.health.report().problems, []);
    assert_eq!(
        manager.desired().subsystems[&nqn("nqn.a")].namespaces.len(),
        2
    );
}

#[test]
fn there_are_so_many_silent_sources_and_no_more() {
    let mut rig = Rig::new();
    rig.open_time_max = Duration::ZERO;
    let pipe = pipe(&rig, "pipe");
    rig.file = rig
        .file
        .replace("[[subsystem.namespace]]\nstore = \"null:1MiB\"\n", "");
    let mut manager = rig.manager().unwrap();
    for _ in 0..OPENINGS_MAX {
        let refused = manager.attach(new(pipe.to_str().unwrap())).unwrap_err();
        assert_eq!(refused.reason, Reason::SourceSilent);
    }
    let refused = manager.attach(new("mem:1MiB")).unwrap_err();
    assert_eq!(refused.reason, Reason::Limit);
    let _writer = OpenOptions::new().write(true).open(&pipe).unwrap();
    until(&mut manager, |it| !it.waits_for_others());
}

#[test]
fn a_start_goes_on_without_what_is_silent() {
    let mut rig = Rig::new();
    rig.open_time_max = Duration::from_secs(2);
    let pipe = pipe(&rig, "pipe");
    rig.file += &format!("[[subsystem.namespace]]\nvolume = \"{}\"\n", pipe.display());
    let mut manager = rig.manager().unwrap();
    let problems = rig.health.report().problems;
    let codes: Vec<_> = problems
        .iter()
        .map(|it| (it.id.as_str(), it.code()))
        .collect();
    let opening = format!("opening {}", pipe.display());
    assert_eq!(
        codes,
        [
            ("nqn.a nsid 2", HealthCode::SourceSilent),
            (opening.as_str(), HealthCode::SourceSilent),
        ]
    );
    // It is not opened once more while it hangs.
    manager.retry_failed();
    assert!(rig.fake.take().contains(&"listen 1".to_owned()));
    let _writer = OpenOptions::new().write(true).open(&pipe).unwrap();
    until(&mut manager, |it| !it.waits_for_others());
    let problems = rig.health.report().problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
}
