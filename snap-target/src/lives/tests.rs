//! Lives over starts and ends of every kind, over folders of every kind.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use admin_proto::v1::HealthCode;
use nvme::controller::{ControllerCounters, Lifetime};
use nvme::nqn::Nqn;

use super::{Known, Lives, SILENT, SUBJECT};
use crate::events::Hub;
use crate::health::Health;
use crate::limits::LIFE_IDLE_INTERVAL;
use crate::state::{Disk, LifeFiles};

struct Rig {
    folder: tempfile::TempDir,
    health: Health,
}

impl Rig {
    fn new() -> Rig {
        Rig {
            folder: tempfile::tempdir().unwrap(),
            health: Health::new(Hub::default()),
        }
    }

    /// The lives as the next daemon finds them; of the one before nothing is under way.
    fn start(&self) -> Lives {
        Lives::start(self.folder.path(), self.health.clone()).unwrap()
    }

    /// Codes and texts of what is wrong.
    fn problems(&self) -> Vec<(HealthCode, String)> {
        let all = self.health.report().problems;
        assert!(all.iter().all(|it| it.id == SUBJECT));
        all.into_iter().map(|it| (it.code(), it.text)).collect()
    }

    /// The files whose names end so.
    fn files(&self, end: &str) -> Vec<PathBuf> {
        let all = std::fs::read_dir(self.folder.path()).unwrap();
        all.map(|it| it.unwrap().path())
            .filter(|path| path.to_str().unwrap().ends_with(end))
            .collect()
    }

    fn only_file(&self, end: &str) -> PathBuf {
        let files = self.files(end);
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }
}

fn nqn(text: &str) -> Nqn {
    Nqn::parse(text).unwrap()
}

/// A life with so many reads.
fn with_reads(life: Lifetime, reads: u128) -> Lifetime {
    Lifetime {
        powered: life.powered + Duration::from_secs(1),
        counters: ControllerCounters {
            read_commands: reads,
            bytes_read: reads * 4096,
            bytes_written: u128::from(u64::MAX) + 7,
            error_log_entries: 3,
            ..life.counters
        },
        ..life
    }
}

/// Saves through a keeper, and says whether that worked.
fn save(life: &frontend_nvme::Life, lifetime: Lifetime) -> bool {
    let (tell, told) = sync_channel(1);
    let keeper = life.keeper.as_ref().unwrap();
    keeper.save(lifetime, Box::new(move |saved| tell.send(saved).unwrap()));
    told.recv().unwrap()
}

#[test]
fn a_life_goes_on_over_ends_of_every_kind_and_each_subsystem_has_its_own() {
    let rig = Rig::new();
    let (a, b) = (nqn("nqn.a"), nqn("nqn.b"));
    let lives = rig.start();
    let first = lives.open(&a, false).lifetime;
    assert_eq!(first, Lifetime::default());
    assert_eq!(lives.open(&b, false).lifetime, Lifetime::default());
    lives.begin();
    let counted = with_reads(first, 5);
    lives.save(vec![(a.clone(), counted)]);
    // Killed, once the round is over.
    lives.begin();
    drop(lives);

    let lives = rig.start();
    let second = lives.open(&a, false).lifetime;
    let expected = Lifetime {
        power_cycles: 2,
        unsafe_shutdowns: 1,
        ..counted
    };
    assert_eq!(second, expected);
    assert_eq!(lives.open(&b, false).lifetime.counters.read_commands, 0);
    lives.begin();
    let counted = with_reads(second, 9);
    lives.end(vec![(a.clone(), counted)]);
    drop(lives);

    // A start that did not get ready has not been one, however often it is tried.
    for _ in 0..2 {
        let lives = rig.start();
        let third = Lifetime {
            power_cycles: 3,
            ..counted
        };
        assert_eq!(lives.open(&a, false).lifetime, third);
        let of_b = lives.open(&b, false).lifetime;
        assert_eq!((of_b.power_cycles, of_b.unsafe_shutdowns), (3, 1));
    }
    assert_eq!(rig.problems(), []);
}

#[test]
fn what_a_host_is_told_is_saved_at_once_until_the_end() {
    let rig = Rig::new();
    let lives = rig.start();
    let life = lives.open(&nqn("nqn.a"), false);
    let told = with_reads(life.lifetime, 77);
    // Before the daemon is ready, too: then the start has been one.
    assert!(save(&life, told));
    drop((lives, life));
    let lives = rig.start();
    let after = lives.open(&nqn("nqn.a"), false).lifetime;
    assert_eq!((after.power_cycles, after.unsafe_shutdowns), (2, 1));
    assert_eq!(after.counters, told.counters);
    lives.end(vec![(nqn("nqn.a"), after)]);
    let lives = rig.start();
    let last = lives.open(&nqn("nqn.a"), false);
    lives.end(Vec::new());
    assert!(!save(&last, told), "behind the end");
    drop(lives);
    let after = rig.start().open(&nqn("nqn.a"), false).lifetime;
    assert_eq!((after.power_cycles, after.unsafe_shutdowns), (4, 1));
}

#[test]
fn a_round_that_comes_late_takes_nothing_back() {
    let rig = Rig::new();
    let a = nqn("nqn.a");
    let lives = rig.start();
    let life = lives.open(&a, false);
    let round = with_reads(life.lifetime, 5);
    let told = with_reads(round, 9);
    assert!(save(&life, told));
    lives.save(vec![(a.clone(), round)]);
    lives.end(vec![(a.clone(), round)]);
    drop(lives);
    let found = rig.start().open(&a, false).lifetime;
    assert_eq!(found.counters, told.counters);
}

#[test]
fn a_deleted_subsystem_takes_its_life_along() {
    let rig = Rig::new();
    let (a, b) = (nqn("nqn.a"), nqn("nqn.b"));
    let lives = rig.start();
    for name in [&a, &b] {
        let life = lives.open(name, true);
        assert!(save(&life, with_reads(life.lifetime, 5)));
    }
    let orphan = lives.open(&a, true);
    assert_eq!(orphan.lifetime, Lifetime::default(), "another of that name");
    lives.forget(&a);
    assert!(!save(&orphan, with_reads(orphan.lifetime, 6)));
    assert_eq!(rig.files(".life").len(), 1);
    assert_eq!(lives.open(&a, false).lifetime, Lifetime::default());
    assert_eq!(lives.open(&b, false).lifetime.counters.read_commands, 5);
}

/// Damaged, of a newer daemon, of another subsystem: kept for whoever wants to look, and the daemon starts.
#[test]
fn a_record_that_cannot_be_used_is_set_aside() {
    let rig = Rig::new();
    let (a, b) = (nqn("nqn.a"), nqn("nqn.b"));
    let life = rig.start().open(&a, false);
    assert!(save(&life, with_reads(life.lifetime, 5)));
    let file = rig.only_file(".life");
    let whole = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let of_b = rig.start().open(&b, false);
    assert!(save(&of_b, of_b.lifetime));
    let others = std::fs::read(rig.only_file(".life")).unwrap();
    let mut flipped = whole.clone();
    let last = flipped.len() - 1;
    flipped[last] ^= 1;
    for bad in [
        Vec::new(),
        flipped,
        whole[..last].to_vec(),
        b"xio-state 2 life\n".to_vec(),
        others,
    ] {
        std::fs::write(&file, &bad).unwrap();
        let lives = rig.start();
        let life = lives.open(&a, false);
        assert_eq!(life.lifetime, Lifetime::default());
        assert_eq!(std::fs::read(rig.only_file(".aside")).unwrap(), bad);
        assert!(save(&life, with_reads(life.lifetime, 1)));
        assert_eq!(rig.problems(), []);
    }
    std::fs::write(&file, whole).unwrap();
    let found = rig.start().open(&a, false).lifetime;
    assert_eq!(found.counters.read_commands, 5);
}

#[test]
fn a_folder_that_fails_is_a_problem_until_it_does_not() {
    let rig = Rig::new();
    let lives = rig.start();
    let life = lives.open(&nqn("nqn.a"), false);
    assert!(save(&life, life.lifetime));
    let new = rig.only_file(".life").with_extension("life.new");
    std::fs::create_dir(&new).unwrap();
    let told = with_reads(life.lifetime, 2);
    assert!(!save(&life, told));
    let said = format!(
        "the state folder {}: the counters of a subsystem's life cannot be saved: Is a directory (os error 21)",
        rig.folder.path().display()
    );
    assert_eq!(rig.problems(), [(HealthCode::StateFolder, said)]);
    std::fs::remove_dir(&new).unwrap();
    lives.save(vec![(nqn("nqn.a"), told)]);
    lives.begin();
    assert_eq!(rig.problems(), []);
    drop(lives);
    let found = rig.start().open(&nqn("nqn.a"), false).lifetime;
    assert_eq!(found.counters, told.counters);
}

/// What is there and cannot be read is not overwritten by less.
#[test]
fn a_record_that_cannot_be_read_stays() {
    let rig = Rig::new();
    let life = rig.start().open(&nqn("nqn.a"), false);
    assert!(save(&life, life.lifetime));
    let file = rig.only_file(".life");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let lives = rig.start();
    let life = lives.open(&nqn("nqn.a"), false);
    assert!(life.keeper.is_none() && life.lifetime == Lifetime::default());
    lives.begin();
    lives.save(vec![(nqn("nqn.a"), with_reads(life.lifetime, 2))]);
    lives.end(vec![(nqn("nqn.a"), with_reads(life.lifetime, 3))]);
    assert!(file.is_dir());
    let problems = rig.problems();
    assert!(
        problems.len() == 1 && problems[0].1.contains("cannot be read"),
        "{problems:?}"
    );
}

#[test]
fn powered_time_alone_is_saved_more_seldom() {
    let now = Lifetime::default();
    let known = |saved: Option<Lifetime>| Known { now, saved };
    assert!(known(None).is_worth_saving());
    assert!(!known(Some(now)).is_worth_saving());
    assert!(known(Some(with_reads(now, 1))).is_worth_saving());
    let aged = |powered| Known {
        now: Lifetime { powered, ..now },
        saved: Some(now),
    };
    let almost = LIFE_IDLE_INTERVAL - Duration::from_millis(1);
    assert!(!aged(almost).is_worth_saving());
    assert!(aged(LIFE_IDLE_INTERVAL).is_worth_saving());
}

/// Every write waits until it is let go.
#[derive(Debug)]
struct Hanging {
    came: SyncSender<()>,
    go: Receiver<()>,
}

impl Disk for Hanging {
    fn write_new(&mut self, _name: &str, _bytes: &[u8]) -> io::Result<()> {
        self.came.send(()).unwrap();
        self.go.recv().map_err(io::Error::other)
    }

    fn sync_written(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn rename(&mut self, _from: &str, _to: &str) -> io::Result<()> {
        Ok(())
    }

    fn remove(&mut self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_names(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn try_write(&self) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, _name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
}

#[test]
fn a_folder_that_hangs_is_a_problem_and_holds_nobody_up() {
    let rig = Rig::new();
    let (came, comes) = sync_channel(1);
    let (let_go, go) = sync_channel(1);
    let files = LifeFiles::on(rig.folder.path(), Hanging { came, go });
    let lives = Lives::over(files, rig.health.clone()).unwrap();
    let life = lives.open(&nqn("nqn.a"), true);
    lives.save(vec![(nqn("nqn.a"), with_reads(life.lifetime, 1))]);
    comes.recv().unwrap();
    assert_eq!(rig.problems(), []);
    // The next round, while the first one is under way.
    lives.save(vec![(nqn("nqn.a"), with_reads(life.lifetime, 2))]);
    let silent = (HealthCode::StateFolder, SILENT.to_owned());
    assert_eq!(rig.problems(), [silent]);
    let_go.send(()).unwrap();
    lives.begin();
    assert_eq!(rig.problems(), []);
}
