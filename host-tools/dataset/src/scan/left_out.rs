//! What is not on a disk of which each partition is a file.

use std::collections::HashSet;

use super::{Kind, Scan};
use crate::Shape;
use crate::names::listed;

impl Scan {
    /// Where each file becomes a partition: what has no place there is noted, instead of what becomes of links on a filesystem.
    pub fn note_left_out(&mut self, shape: Shape) {
        if !matches!(shape, Shape::Partitions { .. }) {
            return;
        }
        self.notes.drain(std::mem::take(&mut self.notes_of_links));
        let mut full: HashSet<&[u8]> = HashSet::new();
        for entry in &self.entries {
            if matches!(entry.kind, Kind::File(_)) {
                let slashes = entry.path.iter().enumerate().filter(|(_, it)| **it == b'/');
                full.extend(slashes.map(|(at, _)| &entry.path[..at]));
            }
        }
        let (mut links, mut folders, mut names) = (0, 0, Vec::new());
        for entry in &self.entries {
            match entry.kind {
                Kind::Symlink { .. } => links += 1,
                Kind::Directory
                    if !entry.path.is_empty() && !full.contains(entry.path.as_slice()) =>
                {
                    folders += 1;
                }
                Kind::Directory | Kind::File(_) => continue,
            }
            names.push(entry.shown());
        }
        let counted = |count: usize, one: &str, several: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {several}")),
        };
        let what = [
            counted(links, "symbolic link", "symbolic links"),
            counted(folders, "folder without files", "folders without files"),
        ];
        let what: Vec<String> = what.into_iter().flatten().collect();
        if what.is_empty() {
            return;
        }
        let names = listed(names, ", ");
        self.notes.push(format!(
            "--gpt: each partition is a file: left out are {} ({names}); a filesystem holds them",
            what.join(" and ")
        ));
    }
}
