//! The bytes that a volume or a namespace presents, read by several threads at once.

mod namespace;
mod volume;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use erofs::{Attributes, Time};
use initiator::Url;
use mount::{Medium, OneFile};

use crate::failure::Failure;
pub use namespace::NamespaceMedium;
pub use volume::VolumeMedium;

/// Time for which a lost connection is made again, where nobody says.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What is said where the bytes of a namespace are the same.
pub const LENGTH_UNKNOWN: &str =
    "; a namespace is whole blocks, and does not say how many of the zeros at its end are data";

/// A source that is open.
pub enum Source {
    /// A volume in a file.
    Volume(Arc<VolumeMedium>),
    /// What a target serves.
    Namespace(Arc<NamespaceMedium>),
}

impl Source {
    /// Opens `nvme+tcp://...`, or a volume file. A lost connection is made again for `patience`; then reads fail.
    pub fn open(
        source: &Path,
        allow_sources: &[PathBuf],
        patience: Duration,
    ) -> Result<Source, Failure> {
        if let Some(url) = url(source)? {
            let opened = NamespaceMedium::connect(url, patience)?;
            return Ok(Source::Namespace(Arc::new(opened)));
        }
        let opened = VolumeMedium::open(source, allow_sources)?;
        Ok(Source::Volume(Arc::new(opened)))
    }

    /// Its bytes.
    pub fn medium(&self) -> Arc<dyn Medium> {
        match self {
            Source::Volume(volume) => volume.clone(),
            Source::Namespace(namespace) => namespace.clone(),
        }
    }

    /// What it is presented as where it has no filesystem.
    pub fn as_one_file(&self) -> OneFile {
        let (name, modified) = match self {
            Source::Volume(volume) => (volume.name().to_owned(), volume.modified),
            Source::Namespace(namespace) => (
                format!("namespace-{}", namespace.nsid()),
                std::time::UNIX_EPOCH,
            ),
        };
        let since = modified.duration_since(std::time::UNIX_EPOCH);
        let since = since.unwrap_or_default();
        OneFile {
            name: name.into_bytes(),
            attributes: Attributes {
                modified: Time {
                    seconds: i64::try_from(since.as_secs()).unwrap_or(0),
                    nanoseconds: since.subsec_nanos(),
                },
                ..Attributes::new(0o444)
            },
        }
    }

    /// Ends connections in order, where there are any.
    pub fn close(&self) {
        if let Source::Namespace(namespace) = self {
            namespace.close();
        }
    }
}

/// The address that an argument is, or `None`: then it is a path, of any bytes.
pub fn url(argument: &Path) -> Result<Option<Url>, Failure> {
    let text = argument.to_str().filter(|text| text.contains("://"));
    let url = text.map(str::parse).transpose();
    url.map_err(|error: initiator::UrlError| Failure::usage(error))
}
