//! The bytes that a volume or a namespace presents, read by several threads at once.

mod namespace;
mod volume;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use erofs::{Attributes, Time};
use initiator::{Initiator, Options, Url};
use mount::{Medium, OneFile};

use crate::cli::Opening;
use crate::failure::Failure;
pub use namespace::NamespaceMedium;
pub use volume::VolumeMedium;

/// Time for which a connection is tried again, where nobody says.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Of the subsystems that a target offers, so many are named.
const OFFERS_SHOWN_MAX: usize = 5;
/// The subsystem that is none (Base 2.1, 3.1.3.3).
const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

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
    /// Opens `nvme+tcp://...`, or a volume file. A connection that cannot be made, or is lost, is tried again for `patience`; then this fails, or reads do.
    pub fn open(source: &Path, opening: &Opening, patience: Duration) -> Result<Source, Failure> {
        if let Some(url) = url(source)? {
            let opened = NamespaceMedium::connect(url, opening.hostnqn.as_ref(), patience)?;
            return Ok(Source::Namespace(Arc::new(opened)));
        }
        let opened = VolumeMedium::open(source, &opening.allow_sources)?;
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

/// Connects to a subsystem. Where the target does not let this host in, the error says what it offers.
///
/// # Errors
/// That; [`initiator::Error`].
pub fn connect(url: &Url, options: &Options) -> Result<Initiator, Failure> {
    let address = url.address();
    Initiator::connect(&address, &url.subnqn, options).map_err(|error| {
        match error.is_connect_refused() {
            true => Failure::system(anyhow!("{error}; {}", offers(&address, options))),
            false => error.into(),
        }
    })
}

/// What the discovery service beside a subsystem says that there is.
fn offers(address: &str, options: &Options) -> String {
    let Ok(records) = initiator::discover(address, options) else {
        return format!(
            "check the NQN, which stands behind {address}/ in the URL, and that the target allows this host"
        );
    };
    let mut known: Vec<String> = records.into_iter().map(|it| it.subnqn).collect();
    known.retain(|nqn| nqn != DISCOVERY_NQN);
    known.sort_unstable();
    known.dedup();
    if known.is_empty() {
        return format!(
            "{address} offers this host no subsystem: check that one is there and allows this host (snapctl host)"
        );
    }
    let shown: Vec<String> = known
        .iter()
        .take(OFFERS_SHOWN_MAX)
        .map(|nqn| nqn.escape_debug().to_string())
        .collect();
    let more = match known.len().saturating_sub(OFFERS_SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{address} offers {}{more}", shown.join(", "))
}

/// The address that an argument is, or `None`: then it is a path, of any bytes.
pub fn url(argument: &Path) -> Result<Option<Url>, Failure> {
    let text = argument.to_str().filter(|text| text.contains("://"));
    let url = text.map(str::parse).transpose();
    url.map_err(|error: initiator::UrlError| Failure::usage(error))
}
