//! Where the files of a command lie.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Whether both are one file: that one of them would be replaced by what is made of the other.
pub fn are_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| Some(one) == real(other))
}

/// The options that allow `files`, which are whole paths, to be opened: for each folder of the root, what all of them in it are below.
pub fn to_allow(files: impl IntoIterator<Item = PathBuf>) -> Option<String> {
    let mut places: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for file in files {
        let Some(folder) = file.parent() else {
            continue;
        };
        let top = folder.components().take(2).collect();
        let place = places.entry(top).or_insert_with(|| folder.to_owned());
        *place = common(place, folder);
    }
    let options = places.values();
    let options = options.map(|place| format!("--allow-sources {}", place.display()));
    let options: Vec<_> = options.collect();
    (!options.is_empty()).then(|| options.join(" "))
}

fn common(one: &Path, other: &Path) -> PathBuf {
    let pairs = one.components().zip(other.components());
    let same = pairs.take_while(|(one, other)| one == other);
    same.map(|(name, _): (Component<'_>, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_to_allow_are_above_all_the_files() {
        let allowed = |files: &[&str]| to_allow(files.iter().map(PathBuf::from));
        for (files, options) in [
            (&["/data/a/x"][..], "--allow-sources /data/a"),
            (
                &["/data/a/x", "/data/b/y", "/data/ab/z"],
                "--allow-sources /data",
            ),
            (&["/data/a/b/x", "/data/a/y"], "--allow-sources /data/a"),
            (
                &["/mnt/y", "/data/a/b/x", "/data/a/c/x"],
                "--allow-sources /data/a --allow-sources /mnt",
            ),
            (&["/x"], "--allow-sources /"),
        ] {
            assert_eq!(allowed(files).as_deref(), Some(options));
        }
        assert_eq!(allowed(&[]), None);
    }
}
