//! kill -9 in the middle of writes: what was acknowledged is in the file, and what was under way is old or new, sector by sector.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use initiator::{Initiator, Options};

use crate::target::{Folder, Random, Target};

const BLOCK_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;
/// Blocks that one writer owns.
const BLOCKS: usize = 512;
const WRITERS: usize = 2;
const KILLS: u64 = 6;
/// Longest write, in blocks: longer than what a capsule takes, so that some are asked for.
const WRITE_BLOCKS_MAX: u64 = 40;

/// What a writer knows of its blocks.
struct Model {
    first_block: usize,
    /// Versions that were acknowledged, by block.
    acknowledged: Vec<u32>,
    /// The version that was on its way at the end, and its blocks.
    under_way: Option<(u32, std::ops::Range<usize>)>,
    last_version: u32,
}

impl Model {
    /// Writes until the connection ends.
    fn write_on(&mut self, host: &mut Initiator, random: &mut Random, total: &AtomicU64) {
        self.under_way = None;
        loop {
            let len = usize::try_from(1 + random.below(WRITE_BLOCKS_MAX)).unwrap();
            let start = usize::try_from(random.below((BLOCKS - len) as u64)).unwrap();
            self.last_version += 1;
            let version = self.last_version;
            let data: Vec<u8> = (start..start + len)
                .flat_map(|block| content(version, self.first_block + block))
                .collect();
            self.under_way = Some((version, start..start + len));
            let offset = (self.first_block + start) * BLOCK_BYTES;
            if host.write(1, offset as u64, &data).is_err() {
                return;
            }
            self.under_way = None;
            self.acknowledged[start..start + len].fill(version);
            total.fetch_add(1, Ordering::Relaxed);
            if random.below(8) == 0 && host.flush(1).is_err() {
                return;
            }
        }
    }

    /// Compares the file with what was acknowledged, and takes over what it holds.
    fn check(&mut self, file: &File) {
        for block in 0..BLOCKS {
            let place = self.first_block + block;
            let mut found = vec![0; BLOCK_BYTES];
            file.read_exact_at(&mut found, (place * BLOCK_BYTES) as u64)
                .unwrap();
            let old = content(self.acknowledged[block], place);
            let new = match &self.under_way {
                Some((version, blocks)) if blocks.contains(&block) => content(*version, place),
                _ => old.clone(),
            };
            for at in (0..BLOCK_BYTES).step_by(SECTOR_BYTES) {
                let sector = at..at + SECTOR_BYTES;
                assert!(
                    found[sector.clone()] == old[sector.clone()]
                        || found[sector.clone()] == new[sector],
                    "block {place}, byte {at}: neither version {} nor what was under way: {:02x?}...",
                    self.acknowledged[block],
                    &found[at..at + 16]
                );
            }
        }
    }
}

/// Different in every sector of every version.
fn content(version: u32, block: usize) -> Vec<u8> {
    if version == 0 {
        return vec![0; BLOCK_BYTES];
    }
    let mut random = Random::new(u64::from(version) << 32 | block as u64);
    let words = std::iter::repeat_with(|| random.below(u64::MAX));
    words
        .take(BLOCK_BYTES / 8)
        .flat_map(u64::to_le_bytes)
        .collect()
}

#[test]
fn what_was_acknowledged_before_kill_9_is_in_the_file() {
    let folder = Folder::new("killed");
    let path = folder.path("disk.raw");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    file.set_len((WRITERS * BLOCKS * BLOCK_BYTES) as u64)
        .unwrap();
    let spec = format!("file:{}", path.display());
    let mut models: Vec<Model> = (0..WRITERS)
        .map(|writer| Model {
            first_block: writer * BLOCKS,
            acknowledged: vec![0; BLOCKS],
            under_way: None,
            last_version: u32::try_from(writer).unwrap() << 24,
        })
        .collect();
    let mut random = Random::new(9);
    let mut interrupted = 0;
    for kill in 0..KILLS {
        let target = Target::start(&[&spec]);
        let total = AtomicU64::new(0);
        let enough = 20 + random.below(150);
        thread::scope(|scope| {
            for (writer, model) in models.iter_mut().enumerate() {
                let mut host = target.host(&Options::default());
                let mut random = Random::new(kill << 8 | writer as u64);
                let total = &total;
                scope.spawn(move || model.write_on(&mut host, &mut random, total));
            }
            while total.load(Ordering::Relaxed) < enough {
                thread::sleep(Duration::from_micros(200));
            }
            target.kill();
        });
        for model in &mut models {
            model.check(&file);
            interrupted += u32::from(model.under_way.is_some());
            settle(model, &file);
        }
    }
    assert!(interrupted > 0, "no write was under way at any kill");
}

/// The next round begins from what is there: blocks that the last write has reached in part are written anew.
fn settle(model: &mut Model, file: &File) {
    let Some((version, blocks)) = model.under_way.take() else {
        return;
    };
    for block in blocks {
        let place = model.first_block + block;
        let mut found = vec![0; BLOCK_BYTES];
        file.read_exact_at(&mut found, (place * BLOCK_BYTES) as u64)
            .unwrap();
        if found == content(version, place) {
            model.acknowledged[block] = version;
        } else if found != content(model.acknowledged[block], place) {
            let old = content(model.acknowledged[block], place);
            file.write_all_at(&old, (place * BLOCK_BYTES) as u64)
                .unwrap();
        }
    }
}

/// A limit on file sizes fails writes beyond it, as the status says, and ends nothing else.
#[test]
fn a_limit_on_file_sizes_fails_a_write_and_not_the_daemon() {
    const BYTES: u64 = 4 << 20;
    let folder = Folder::new("file-limit");
    let path = folder.path("disk");
    File::create(&path).unwrap().set_len(BYTES).unwrap();
    let spec = format!("file:{}", path.display());
    // 1 MiB or 2, as the shell counts.
    let target = Target::start_under("ulimit -f 2048", &[&spec]);
    let mut host = target.host(&Options::default());
    let block = [7; BLOCK_BYTES];
    let error = host.write(1, BYTES - BLOCK_BYTES as u64, &block);
    let status = crate::target::status_of(error);
    assert_eq!(status, nvme_spec::Status::WRITE_FAULT);
    host.write(1, 0, &block).unwrap();
    assert_eq!(target.terminate(), Some(0));
}
