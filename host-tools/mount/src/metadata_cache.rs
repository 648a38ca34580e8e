//! Blocks of names and inodes, fetched some at a time and kept.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use erofs::ReadBlocks;
use erofs::limits::BLOCK_BYTES;

use crate::limits::{PAGE_BYTES, PAGES_MAX};
use crate::medium::{Medium, ReadFailure};

/// A reader of a disk's blocks; a clone shares what is kept. Where the medium does not read, its errors hold a [`ReadFailure`](crate::ReadFailure).
#[derive(Clone)]
pub struct MetadataCache {
    medium: Arc<dyn Medium>,
    pages: Arc<Mutex<Pages>>,
}

type Page = Arc<[u8]>;

/// Two generations: when the young one is full it becomes the old one, and the old one is let go. What is used in between is young again.
#[derive(Default)]
struct Pages {
    young: HashMap<u64, Page>,
    old: HashMap<u64, Page>,
}

impl Pages {
    fn get(&mut self, number: u64) -> Option<Page> {
        if let Some(page) = self.young.get(&number) {
            return Some(page.clone());
        }
        let page = self.old.remove(&number)?;
        self.put(number, page.clone());
        Some(page)
    }

    fn put(&mut self, number: u64, page: Page) {
        if self.young.len() >= PAGES_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(number, page);
    }
}

impl MetadataCache {
    /// Of this medium.
    #[must_use]
    pub fn new(medium: Arc<dyn Medium>) -> MetadataCache {
        MetadataCache {
            medium,
            pages: Arc::default(),
        }
    }

    fn page(&self, number: u64) -> io::Result<Page> {
        let held = self.lock().get(number);
        if let Some(page) = held {
            return Ok(page);
        }
        // Two threads may fetch the same page; both have it right.
        let at = number * PAGE_BYTES;
        let bytes = self.medium.bytes().saturating_sub(at).min(PAGE_BYTES);
        let mut page = vec![0; usize::try_from(bytes).unwrap_or(0)];
        let read = self.medium.read(at, &mut page);
        read.map_err(io::Error::other)?;
        let page: Page = page.into();
        self.lock().put(number, page.clone());
        Ok(page)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadBlocks for MetadataCache {
    fn read_block(&mut self, block: u32, into: &mut [u8; BLOCK_BYTES]) -> io::Result<()> {
        let at = u64::from(block) * BLOCK_BYTES as u64;
        let page = match self.page(at / PAGE_BYTES) {
            // Files lie beside the names: what is damaged may be theirs alone.
            Err(error) if is_damage(&error) => {
                return self.medium.read(at, into).map_err(io::Error::other);
            }
            page => page?,
        };
        let from = usize::try_from(at % PAGE_BYTES).unwrap_or(usize::MAX);
        let bytes = page.get(from..).and_then(|rest| rest.get(..BLOCK_BYTES));
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

fn is_damage(error: &io::Error) -> bool {
    let failure = error
        .get_ref()
        .and_then(|it| it.downcast_ref::<ReadFailure>());
    failure.is_some_and(|failure| failure.is_damage)
}

impl std::fmt::Debug for MetadataCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MetadataCache")
    }
}
