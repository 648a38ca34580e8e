//! Every point at which power can fail, and what a disk may have kept by then: any sectors of what was not synced, and any of the names.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::super::disk::{Disk, replace};
use super::super::overlay::Overlay;
use super::super::record::{seal, unseal};
use super::super::{bytes_of, load, save};
use super::{DISKS, MORE, desired};

const SECTOR_BYTES: usize = 512;

/// A file system that fails after a number of operations, and knows what may be left of it then.
#[derive(Clone, Debug, Default)]
struct Sim {
    /// Contents, and whether they are on stable storage.
    inodes: Vec<(Vec<u8>, bool)>,
    durable_names: BTreeMap<String, usize>,
    names: BTreeMap<String, usize>,
    /// Changes of names since they were synced: taken away, and given.
    pending: Vec<(Option<String>, String, usize)>,
    written: Option<usize>,
    operations_left: usize,
}

impl Sim {
    fn operation(&mut self) -> io::Result<()> {
        self.operations_left = self
            .operations_left
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("the power is gone"))?;
        Ok(())
    }

    /// Everything that may be found after the power is back.
    fn remains(&self) -> Vec<Sim> {
        let mut all = Vec::new();
        for chosen in 0..1_u32 << self.pending.len() {
            let mut names = self.durable_names.clone();
            for (at, (gone, name, inode)) in self.pending.iter().enumerate() {
                if chosen & 1 << at != 0 {
                    gone.as_ref().map(|gone| names.remove(gone));
                    names.insert(name.clone(), *inode);
                }
            }
            let unsynced = self.inodes.iter().position(|(_, synced)| !synced);
            let contents = match unsynced {
                Some(inode) => torn(&self.inodes[inode].0),
                None => vec![Vec::new()],
            };
            for content in contents {
                let mut sim = Sim {
                    inodes: self.inodes.clone(),
                    durable_names: names.clone(),
                    names: names.clone(),
                    operations_left: usize::MAX,
                    ..Sim::default()
                };
                if let Some(inode) = unsynced {
                    sim.inodes[inode] = (content, true);
                }
                all.push(sim);
            }
        }
        all
    }
}

/// Any sectors of it, the others zero, at any length.
fn torn(bytes: &[u8]) -> Vec<Vec<u8>> {
    let sectors = bytes.len().div_ceil(SECTOR_BYTES);
    assert!(sectors <= 8, "too many to try all");
    let mut all = Vec::new();
    for length in (0..=sectors).map(|sectors| bytes.len().min(sectors * SECTOR_BYTES)) {
        for chosen in 0..1_u32 << sectors {
            let mut content = bytes[..length].to_vec();
            for (at, sector) in content.chunks_mut(SECTOR_BYTES).enumerate() {
                if chosen & 1 << at == 0 {
                    sector.fill(0);
                }
            }
            all.push(content);
        }
    }
    all
}

impl Disk for Sim {
    fn write_new(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        // The write itself is what is torn: it has begun although the power is gone.
        self.inodes.push((bytes.to_vec(), false));
        let inode = self.inodes.len() - 1;
        self.names.insert(name.to_owned(), inode);
        self.pending.push((None, name.to_owned(), inode));
        self.written = Some(inode);
        self.operation()
    }

    fn sync_written(&mut self) -> io::Result<()> {
        self.operation()?;
        if let Some(inode) = self.written.take() {
            self.inodes[inode].1 = true;
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.operation()?;
        let inode = self.names.remove(from).unwrap();
        self.names.insert(to.to_owned(), inode);
        self.pending
            .push((Some(from.to_owned()), to.to_owned(), inode));
        Ok(())
    }

    fn remove(&mut self, _name: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_names(&mut self) -> io::Result<()> {
        self.operation()?;
        self.durable_names = self.names.clone();
        self.pending.clear();
        Ok(())
    }

    fn try_write(&self) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self
            .names
            .get(name)
            .map(|&inode| self.inodes[inode].0.clone()))
    }
}

fn loaded(sim: &Sim) -> Overlay {
    load(sim, Path::new("/state")).unwrap().0
}

/// Changes of the admin plane: after a crash at any operation, what was saved last or what was being saved, whole; and the next saving works.
#[test]
fn changes_survive_a_crash_at_every_point() {
    let words = [
        Overlay::default(),
        Overlay::between(&desired(DISKS), &desired(MORE)),
        Overlay::between(&desired(MORE), &desired(DISKS)),
    ];
    assert!(words[1] != words[2] && words[1] != words[0]);
    let mut tried = 0;
    for (before, after) in [(0, 1), (1, 2), (2, 1), (1, 0)] {
        let (before, after) = (&words[before], &words[after]);
        for operations in 0..=4 {
            let mut sim = Sim {
                operations_left: usize::MAX,
                ..Sim::default()
            };
            if *before != Overlay::default() {
                save(&mut sim, 1, &bytes_of(before).unwrap()).unwrap();
            }
            sim.operations_left = operations;
            let saved = save(&mut sim, 2, &bytes_of(after).unwrap());
            assert_eq!(saved.is_ok(), operations == 4);
            for mut found in sim.remains() {
                tried += 1;
                let word = loaded(&found);
                assert!(word == *after || saved.is_err() && word == *before);
                save(&mut found, 3, &bytes_of(&words[2]).unwrap()).unwrap();
                assert_eq!(loaded(&found), words[2]);
            }
        }
    }
    assert!(tried > 1000, "{tried}");
}

/// The same for a namespace's record of several sectors.
#[test]
fn records_survive_a_crash_at_every_point() {
    let seals: Vec<Vec<u8>> = [(1, vec![0xA5; 900]), (2, vec![0x5A; 2000])]
        .iter()
        .map(|(sequence, bytes)| seal("reservations", *sequence, bytes))
        .collect();
    for operations in 0..=4 {
        let mut sim = Sim {
            operations_left: usize::MAX,
            ..Sim::default()
        };
        replace(&mut sim, "r", &seals[0]).unwrap();
        sim.operations_left = operations;
        let saved = replace(&mut sim, "r", &seals[1]);
        for found in sim.remains() {
            let record = found.read("r").unwrap().unwrap();
            let (sequence, _) = unseal("reservations", &record, "r").unwrap();
            assert!(sequence == 2 || saved.is_err() && sequence == 1);
        }
    }
}
