//! What a path leads to inside a scan.

use std::collections::HashMap;

use crate::items::split;
use crate::scan::{Entry, FileId, Kind, Scan};

/// Links that are followed on the way to one name, as in Linux.
const HOPS_MAX: usize = 40;

/// The names of a scan, to be found.
pub(crate) struct Paths<'a> {
    scan: &'a Scan,
    places: HashMap<&'a [u8], usize>,
}

impl<'a> Paths<'a> {
    pub(crate) fn new(scan: &'a Scan) -> Paths<'a> {
        let entries = scan.entries.iter().enumerate();
        let places = entries.map(|(place, entry)| (entry.path.as_slice(), place));
        Paths {
            scan,
            places: places.collect(),
        }
    }

    /// The place in [`Scan::entries`] of what is called so.
    pub(crate) fn place(&self, path: &[u8]) -> Option<usize> {
        self.places.get(path).copied()
    }

    /// The file that `name` leads to from `folder`, and the place of its name, through links to directories: what a reader opens.
    pub(crate) fn file_from(&self, folder: &[u8], name: &[u8]) -> Option<(usize, FileId)> {
        let place = self.place_from(folder, name)?;
        Some((place, self.entry(place)?.file()?))
    }

    /// The place that a link names. It may be a link itself.
    pub(crate) fn next(&self, place: usize) -> Option<usize> {
        let entry = self.entry(place)?;
        let Kind::Symlink { target, .. } = &entry.kind else {
            return None;
        };
        self.place_from(entry.parent(), target)
    }

    fn entry(&self, place: usize) -> Option<&'a Entry> {
        self.scan.entries.get(place)
    }

    fn place_from(&self, folder: &[u8], path: &[u8]) -> Option<usize> {
        if path.starts_with(b"/") {
            return None;
        }
        let mut at = folder.to_vec();
        let mut left: Vec<&[u8]> = path.rsplit(|byte| *byte == b'/').collect();
        let mut hops = 0;
        while let Some(name) = left.pop() {
            match name {
                b"" | b"." => continue,
                b".." if at.is_empty() => return None,
                b".." => {
                    at.truncate(split(&at).0.len());
                    continue;
                }
                _ => {}
            }
            let parent_bytes = at.len();
            if parent_bytes > 0 {
                at.push(b'/');
            }
            at.extend_from_slice(name);
            let entry = self.place(&at).and_then(|place| self.entry(place));
            if let Some(Kind::Symlink { target, .. }) = entry.map(|entry| &entry.kind)
                && !left.is_empty()
            {
                hops += 1;
                if hops > HOPS_MAX || target.starts_with(b"/") {
                    return None;
                }
                at.truncate(parent_bytes);
                left.extend(target.rsplit(|byte| *byte == b'/'));
            }
        }
        self.place(&at)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn names_are_found_as_a_reader_finds_them() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/x"), "x").unwrap();
        symlink("a", at("link")).unwrap();
        symlink("../link/b/x", at("a/y")).unwrap();
        symlink("y", at("a/z")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let scan = Scan::new(&[folder.path().to_owned()]).unwrap();
        let paths = Paths::new(&scan);
        let found = |from: &str, name: &str| {
            let (place, id) = paths.file_from(from.as_bytes(), name.as_bytes())?;
            assert_eq!(id, FileId(0));
            Some(scan.entries[place].shown())
        };
        for (from, name, wanted) in [
            ("", "a/b/x", Some("a/b/x")),
            ("", "link//b/./x", Some("a/b/x")),
            ("a", "../link/b/../b/x", Some("a/b/x")),
            ("a", "z", Some("a/z")),
            ("", "a/b", None),
            ("", "x", None),
            ("", "../a/b/x", None),
            ("", "/a/b/x", None),
            ("", "loop/x", None),
        ] {
            assert_eq!(found(from, name).as_deref(), wanted, "{from} {name}");
        }
        let hop = |place| paths.next(place).map(|place| scan.entries[place].shown());
        let z = paths.place(b"a/z").unwrap();
        assert_eq!(hop(z).as_deref(), Some("a/y"));
        assert_eq!(hop(paths.next(z).unwrap()).as_deref(), Some("a/b/x"));
        assert_eq!(hop(paths.place(b"a/b/x").unwrap()), None);
    }
}
