//! Where an external source lies, and whether it may be opened (docs/format.md, "Sources").
//!
//! A volume may come from somebody else, and a locator names any file that this process may read: a volume that maps `/etc/shadow` would
//! hand it to every host. So what is opened as a matter of course lies in the volume's own directory; the user names other places.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::VolumeError;
use crate::format::SourceId;

/// Where an external source lies, as the volume says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locator<'v> {
    /// A path, absolute or relative to the volume's directory.
    Path(&'v Path),
    /// `scheme://...`
    Url(&'v str),
}

impl<'v> Locator<'v> {
    /// From a blob's bytes; `None` for a path with a NUL in it, or a URL that is not text.
    pub(crate) fn parse(bytes: &'v [u8]) -> Option<Locator<'v>> {
        if is_url(bytes) {
            return std::str::from_utf8(bytes).ok().map(Locator::Url);
        }
        (!bytes.contains(&0)).then(|| Locator::Path(Path::new(OsStr::from_bytes(bytes))))
    }
}

impl fmt::Display for Locator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Locator::Path(path) => write!(f, "{}", path.display()),
            Locator::Url(url) => f.write_str(url),
        }
    }
}

/// RFC 3986, section 3.1: a letter, then letters, digits, `+`, `-`, `.`; here with `://` after it.
fn is_url(bytes: &[u8]) -> bool {
    let Some(scheme) = bytes.windows(3).position(|at| at == b"://") else {
        return false;
    };
    match bytes.get(..scheme) {
        Some([first, rest @ ..]) => {
            first.is_ascii_alphabetic()
                && rest
                    .iter()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
        }
        _ => false,
    }
}

/// Which external sources may be opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourcePolicy {
    /// Directories that sources may lie in, beside the volume's own.
    pub allowed: Vec<PathBuf>,
}

impl SourcePolicy {
    /// The file that a locator of the volume at `volume` names, with symbolic links followed, those that lead to the volume too: a locator is
    /// relative to the directory that the volume lies in.
    ///
    /// # Errors
    /// [`VolumeError::SourceRefused`] for a URL, and for a path that leads out of the volume's directory and of those that are allowed;
    /// [`VolumeError::Io`] for one that leads nowhere.
    pub fn resolve(
        &self,
        volume: &Path,
        source_id: SourceId,
        locator: Locator<'_>,
    ) -> Result<PathBuf, VolumeError> {
        let refused = |why: String| VolumeError::SourceRefused {
            source_id,
            locator: locator.to_string(),
            why,
        };
        let Locator::Path(path) = locator else {
            return Err(refused("only files can be opened".to_owned()));
        };
        let real = |path: &Path| {
            path.canonicalize().map_err(|error: io::Error| {
                let action = format!("opening {}, which the volume is mapped on", path.display());
                VolumeError::io(action, error)
            })
        };
        let is_regular = |path: &Path| path.metadata().is_ok_and(|metadata| metadata.is_file());
        let volume = volume
            .canonicalize()
            .map_err(|error| VolumeError::io(format!("looking at {}", volume.display()), error))?;
        let folder = volume.parent().unwrap_or(&volume);
        let found = real(&folder.join(path))?;
        if !is_regular(&found) {
            return Err(refused("it is not a regular file".to_owned()));
        }
        // The directory of a device is no place for data.
        let own = is_regular(&volume).then_some(folder);
        let mut places = own
            .into_iter()
            .chain(self.allowed.iter().map(PathBuf::as_path));
        let is_inside = |place: &Path| Ok::<_, VolumeError>(found.starts_with(real(place)?));
        if places.try_fold(false, |inside, place| Ok(inside || is_inside(place)?))? {
            return Ok(found);
        }
        let parent = found.parent().unwrap_or(&found).display();
        Err(refused(format!(
            "it lies outside the volume's directory; if the volume is to be trusted with it, allow it with --allow-sources {parent}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const SOURCE: SourceId = SourceId(1);

    fn path(text: &str) -> Locator<'_> {
        Locator::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_scheme_makes_a_url() {
        assert_eq!(path("s3://bucket/a"), Locator::Url("s3://bucket/a"));
        for text in ["a/b", "/a://b", "1s3://x", "://x", "s_3://x", "s3:/x"] {
            assert_eq!(path(text), Locator::Path(Path::new(text)));
        }
        assert_eq!(Locator::parse(b"a\0b"), None);
        assert_eq!(Locator::parse(b"s3://\xff"), None);
        assert!(matches!(
            Locator::parse(b"\xff\xfe"),
            Some(Locator::Path(_))
        ));
    }

    #[test]
    fn only_the_volumes_directory_and_allowed_ones_are_open() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for folder in ["volumes/data", "elsewhere/deep"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in ["volumes/data/a", "elsewhere/deep/b"] {
            fs::write(root.join(file), b"x").unwrap();
        }
        symlink("../../elsewhere/deep/b", root.join("volumes/data/link")).unwrap();
        let volume = root.join("volumes/v.xio");
        fs::write(&volume, b"a volume").unwrap();
        let outside = root.join("elsewhere/deep/b");
        let outside = outside.to_str().unwrap();
        let strict = SourcePolicy::default();
        let inside = strict.resolve(&volume, SOURCE, path("data/../data/a"));
        assert_eq!(inside.unwrap(), root.join("volumes/data/a"));
        let open = SourcePolicy {
            allowed: vec![root.join("elsewhere")],
        };
        for text in ["../elsewhere/deep/b", "data/link", outside] {
            let error = strict.resolve(&volume, SOURCE, path(text)).unwrap_err();
            let told = error.to_string();
            let advice = format!("--allow-sources {}", root.join("elsewhere/deep").display());
            assert!(
                matches!(error, VolumeError::SourceRefused { .. }) && told.contains(&advice),
                "{told}"
            );
            let found = open.resolve(&volume, SOURCE, path(text)).unwrap();
            assert_eq!(found.to_str().unwrap(), outside);
        }
        // A link to the volume changes nothing.
        fs::create_dir(root.join("links")).unwrap();
        symlink("../volumes/v.xio", root.join("links/v.xio")).unwrap();
        let linked = strict.resolve(&root.join("links/v.xio"), SOURCE, path("data/a"));
        assert_eq!(linked.unwrap(), root.join("volumes/data/a"));
        // A device has no directory of its own.
        let device = Path::new("/dev/null");
        let error = strict.resolve(device, SOURCE, path("zero")).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
        let error = strict.resolve(device, SOURCE, path(outside)).unwrap_err();
        assert!(error.to_string().contains("--allow-sources"), "{error}");
        let url = open.resolve(&volume, SOURCE, path("s3://b/k")).unwrap_err();
        assert!(matches!(url, VolumeError::SourceRefused { .. }), "{url}");
        let nowhere = open.resolve(&volume, SOURCE, path("data/none"));
        assert!(matches!(nowhere, Err(VolumeError::Io { .. })));
    }
}
