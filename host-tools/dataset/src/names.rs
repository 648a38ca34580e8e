//! The names of each file.

use crate::scan::{FileId, Scan};

/// Which names each file has: its own, those of hard links, and those of links that lead to it.
#[derive(Debug)]
pub struct Names<'a> {
    paths: Vec<Vec<&'a [u8]>>,
}

impl<'a> Names<'a> {
    /// Of all files of the scan.
    #[must_use]
    pub fn new(scan: &'a Scan) -> Names<'a> {
        let mut paths = vec![Vec::new(); scan.files.len()];
        for entry in &scan.entries {
            let file = entry.file().and_then(|id| paths.get_mut(id.0 as usize));
            if let Some(of_file) = file {
                of_file.push(entry.path.as_slice());
            }
        }
        Names { paths }
    }

    /// The names of a file, from the root on, in the order of the scan.
    #[must_use]
    pub fn of(&self, id: FileId) -> &[&'a [u8]] {
        let paths = self.paths.get(id.0 as usize);
        paths.map(Vec::as_slice).unwrap_or_default()
    }

    /// What the first of the file's names says that says something.
    pub fn first_that<T>(&self, id: FileId, say: impl FnMut(&'a [u8]) -> Option<T>) -> Option<T> {
        self.of(id).iter().copied().find_map(say)
    }
}

/// Of names or options in a sentence, so many are said.
pub(crate) const LISTED: usize = 5;

/// The first ones, and how many more there are.
pub(crate) fn listed(mut all: Vec<String>, between: &str) -> String {
    let more = all.len().saturating_sub(LISTED);
    all.truncate(LISTED);
    let mut text = all.join(between);
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}
