//! Files of a disk that has no filesystem: one for each partition, or one for all of it.

use erofs::{Attributes, Kind};

use crate::files::{Listed, Node, ROOT, Run, part};
use crate::on_disk::PartitionFile;

/// What folders allow: nobody writes.
const FOLDER_PERMISSIONS: u16 = 0o555;

/// Files whose names and places are held in memory.
pub(crate) struct FlatFiles {
    /// The root first; inode numbers count from it.
    nodes: Vec<FlatNode>,
    /// Of every file, and but for the permissions of every folder.
    attributes: Attributes,
}

struct FlatNode {
    name: Vec<u8>,
    parent: usize,
    what: What,
}

enum What {
    /// With its entries, by their places in the list.
    Folder(Vec<usize>),
    /// From a byte of the disk on, so many.
    File { at: u64, bytes: u64 },
}

impl FlatFiles {
    /// One file, of all the disk's bytes.
    pub(crate) fn one(name: Vec<u8>, bytes: u64, attributes: Attributes) -> FlatFiles {
        let mut flat = FlatFiles::empty(attributes);
        flat.add(0, &name, What::File { at: 0, bytes });
        flat
    }

    /// A file for each partition.
    pub(crate) fn partitions(files: &[PartitionFile], attributes: Attributes) -> FlatFiles {
        let mut flat = FlatFiles::empty(attributes);
        for file in files {
            let (folder, name) = match file.path.rsplit_once('/') {
                Some((folders, name)) => (flat.folder(folders), name),
                None => (0, file.path.as_str()),
            };
            let (at, bytes) = (file.first_byte, file.bytes);
            flat.add(folder, name.as_bytes(), What::File { at, bytes });
        }
        flat
    }

    fn empty(attributes: Attributes) -> FlatFiles {
        let root = FlatNode {
            name: Vec::new(),
            parent: 0,
            what: What::Folder(Vec::new()),
        };
        FlatFiles {
            nodes: vec![root],
            attributes,
        }
    }

    /// The folder at a path, which is made where it is not there.
    fn folder(&mut self, path: &str) -> usize {
        let mut at = 0;
        for name in path.split('/') {
            let found = self.entry(at, name.as_bytes());
            at = found.unwrap_or_else(|| self.add(at, name.as_bytes(), What::Folder(Vec::new())));
        }
        at
    }

    fn add(&mut self, parent: usize, name: &[u8], what: What) -> usize {
        let place = self.nodes.len();
        self.nodes.push(FlatNode {
            name: name.to_vec(),
            parent,
            what,
        });
        if let Some(What::Folder(entries)) = self.nodes.get_mut(parent).map(|it| &mut it.what) {
            entries.push(place);
        }
        place
    }

    fn get(&self, number: u64) -> Option<(usize, &FlatNode)> {
        let place = usize::try_from(number.checked_sub(ROOT)?).ok()?;
        Some((place, self.nodes.get(place)?))
    }

    fn entries(&self, folder: usize) -> &[usize] {
        match self.nodes.get(folder).map(|it| &it.what) {
            Some(What::Folder(entries)) => entries,
            Some(What::File { .. }) | None => &[],
        }
    }

    fn entry(&self, folder: usize, name: &[u8]) -> Option<usize> {
        let named = |place: &&usize| self.nodes.get(**place).is_some_and(|it| it.name == name);
        self.entries(folder).iter().find(named).copied()
    }

    fn number(place: usize) -> u64 {
        ROOT + place as u64
    }

    pub(crate) fn inodes(&self) -> u64 {
        self.nodes.len() as u64
    }

    pub(crate) fn node(&self, number: u64) -> Option<Node> {
        let (place, node) = self.get(number)?;
        let (kind, links, bytes) = match node.what {
            What::File { bytes, .. } => (Kind::File, 1, bytes),
            What::Folder(_) => {
                let below = self.entries(place).iter();
                let folders = below.filter(|&&it| self.kind(it) == Kind::Directory);
                let links = u32::try_from(folders.count()).unwrap_or(u32::MAX - 2);
                (Kind::Directory, 2 + links, 0)
            }
        };
        let mut attributes = self.attributes;
        if kind == Kind::Directory {
            attributes.permissions = FOLDER_PERMISSIONS;
        }
        Some(Node {
            number,
            kind,
            attributes,
            links,
            bytes,
        })
    }

    fn kind(&self, place: usize) -> Kind {
        match self.nodes.get(place).map(|it| &it.what) {
            Some(What::Folder(_)) => Kind::Directory,
            Some(What::File { .. }) | None => Kind::File,
        }
    }

    pub(crate) fn find(&self, parent: u64, name: &[u8]) -> Option<Node> {
        let (folder, _) = self.get(parent)?;
        self.node(FlatFiles::number(self.entry(folder, name)?))
    }

    /// As [`Files::list`](crate::files::Files::list): the entry behind the `at`th.
    pub(crate) fn list(
        &self,
        folder: u64,
        at: u64,
        nodes: bool,
        mut visit: impl FnMut(&Listed<'_>, Option<&Node>) -> bool,
    ) {
        let Some((place, folder)) = self.get(folder) else {
            return;
        };
        let own = [(&b"."[..], place), (b"..", folder.parent)];
        let below = self.entries(place).iter().filter_map(|&it| {
            let node = self.nodes.get(it)?;
            Some((node.name.as_slice(), it))
        });
        let skipped = usize::try_from(at).unwrap_or(usize::MAX);
        for (next, (name, it)) in (1..).zip(own.into_iter().chain(below)).skip(skipped) {
            let number = FlatFiles::number(it);
            let node = if nodes { self.node(number) } else { None };
            let listed = Listed {
                name,
                number,
                kind: self.kind(it),
                next,
            };
            if !visit(&listed, node.as_ref()) {
                return;
            }
        }
    }

    /// Where bytes of a file lie, or `None` for what is none.
    pub(crate) fn locate(&self, number: u64, from: u64, bytes: usize) -> Option<Run> {
        match self.get(number)?.1.what {
            What::File { at, bytes: all } => Some(part((at, all), from, bytes)),
            What::Folder(_) => None,
        }
    }

    pub(crate) fn path(&self, number: u64) -> Option<Vec<u8>> {
        let (place, mut node) = self.get(number)?;
        let mut path = node.name.clone();
        let mut above = if place == 0 { 0 } else { node.parent };
        while above != 0 {
            node = self.nodes.get(above)?;
            path = [node.name.as_slice(), b"/", &path].concat();
            above = node.parent;
        }
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat() -> FlatFiles {
        let file = |path: &str, first_byte, bytes| PartitionFile {
            path: path.to_owned(),
            first_byte,
            bytes,
        };
        let files = [
            file("x", 4096, 512),
            file("a/b/one", 8192, 1000),
            file("a/two", 12_288, 1),
        ];
        FlatFiles::partitions(&files, Attributes::new(0o444))
    }

    fn names(flat: &FlatFiles, folder: u64, at: u64) -> Vec<(String, u64, u64)> {
        let mut names = Vec::new();
        flat.list(folder, at, true, |listed, node| {
            let node = node.unwrap();
            assert_eq!((listed.number, listed.kind), (node.number, node.kind));
            let name = String::from_utf8(listed.name.to_vec()).unwrap();
            names.push((name, listed.number, listed.next));
            true
        });
        names
    }

    #[test]
    fn folders_are_made_for_paths() {
        let flat = flat();
        assert_eq!(flat.inodes(), 6);
        let expected = [(".", 1, 1), ("..", 1, 2), ("x", 2, 3), ("a", 3, 4)];
        assert_eq!(
            names(&flat, ROOT, 0),
            expected.map(|(a, b, c)| (a.to_owned(), b, c))
        );
        assert_eq!(names(&flat, ROOT, 3), [("a".to_owned(), 3, 4)]);
        let a = flat.find(ROOT, b"a").unwrap();
        assert_eq!(
            (a.kind, a.links, a.attributes.permissions),
            (Kind::Directory, 3, 0o555)
        );
        let expected = [(".", 3, 1), ("..", 1, 2), ("b", 4, 3), ("two", 6, 4)];
        assert_eq!(
            names(&flat, a.number, 0),
            expected.map(|(a, b, c)| (a.to_owned(), b, c))
        );
        let b = flat.find(a.number, b"b").unwrap();
        let one = flat.find(b.number, b"one").unwrap();
        assert_eq!((one.kind, one.links, one.bytes), (Kind::File, 1, 1000));
        assert_eq!(flat.path(one.number).unwrap(), b"a/b/one");
        assert_eq!(flat.path(ROOT).unwrap(), b"");
        let run = |at, bytes| Some(Run { at, bytes });
        assert_eq!(flat.locate(one.number, 900, 4096), run(9092, 100));
        for (folder, name) in [
            (ROOT, &b"b"[..]),
            (a.number, b"x"),
            (one.number, b"x"),
            (99, b"x"),
        ] {
            assert!(flat.find(folder, name).is_none());
        }
        assert!(flat.node(0).is_none() && flat.node(7).is_none());
        assert_eq!(flat.locate(a.number, 0, 1), None);
    }
}
