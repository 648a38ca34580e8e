//! Partitions as files: each needs a path.

use std::collections::HashSet;

use crate::Place;

/// For each partition the path of a file that no other has: its name, which may lead through folders, or `partition-N` where that cannot be a path, or is another's. A
/// name that can be one is not taken from its partition by an earlier one that needs another.
#[must_use]
pub fn paths(places: &[Place]) -> Vec<String> {
    let mut taken = Paths::default();
    let named: Vec<bool> = places.iter().map(|it| taken.take(&it.name)).collect();
    let places = (1..).zip(places).zip(named);
    places
        .map(|((number, place), is_named)| {
            if is_named {
                return place.name.clone();
            }
            let mut path = format!("partition-{number}");
            while !taken.take(&path) {
                path.push('_');
            }
            path
        })
        .collect()
}

#[derive(Default)]
struct Paths {
    files: HashSet<String>,
    folders: HashSet<String>,
}

impl Paths {
    /// Whether `path` can be a file beside the others; it is one from then on.
    fn take(&mut self, path: &str) -> bool {
        let above = || path.match_indices('/').map(|(at, _)| &path[..at]);
        let is_name = |name: &str| !matches!(name, "" | "." | "..");
        let fits = path.split('/').all(is_name)
            && !self.files.contains(path)
            && !self.folders.contains(path)
            && !above().any(|folder| self.files.contains(folder));
        if fits {
            self.files.insert(path.to_owned());
            self.folders.extend(above().map(str::to_owned));
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_paths_get_others() {
        let names = [
            "a",
            "a/b",
            "c/d",
            "c",
            "",
            "..",
            "c/../x",
            "/e",
            "f/",
            "a",
            "partition-5",
            "c/d/e",
            "ü",
        ];
        let places: Vec<Place> = names
            .iter()
            .map(|name| Place {
                name: (*name).to_owned(),
                first_byte: 0,
                bytes: 1,
            })
            .collect();
        let expected = [
            "a",
            "partition-2",
            "c/d",
            "partition-4",
            "partition-5_",
            "partition-6",
            "partition-7",
            "partition-8",
            "partition-9",
            "partition-10",
            "partition-5",
            "partition-12",
            "ü",
        ];
        assert_eq!(paths(&places), expected);
    }
}
