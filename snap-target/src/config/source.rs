//! What stands behind a namespace, as it is named.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use admin_proto::{mixed_parts, mixed_text};
use namespace::limits::MIXED_PARTS_MAX;
use store::{StoreError, StoreSpec};
use store_nvme::{RemoteUrl, UrlError};

use super::array::ArraySpec;

/// What stands behind a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceSpec {
    /// A volume made by `xio pack`; it has a block size of its own.
    Volume {
        /// Where.
        path: PathBuf,
    },
    /// A volume in a remote namespace.
    RemoteVolume {
        /// Which.
        url: RemoteUrl,
    },
    /// A remote namespace as it is.
    Remote {
        /// Which.
        url: RemoteUrl,
        /// Logical block size.
        lba_bytes: u32,
    },
    /// A store of this machine as it is.
    Store {
        /// Which.
        spec: StoreSpec,
        /// Logical block size.
        lba_bytes: u32,
    },
    /// Several stores as one, as it is.
    Array {
        /// Which.
        spec: ArraySpec,
        /// Logical block size.
        lba_bytes: u32,
    },
    /// A volume in several stores as one.
    ArrayVolume {
        /// Which.
        spec: ArraySpec,
    },
    /// Several of these, one behind another by LBA; none is mixed itself.
    Mixed {
        /// In their order.
        parts: Vec<SourceSpec>,
        /// Logical block size of all of them.
        lba_bytes: u32,
    },
}

const PARTS: &str =
    "a mixed namespace has 2 to 16 parts: mixed:PART+PART; a + in a path is written ++";
const _: () = assert!(MIXED_PARTS_MAX == 16, "as the text says");

impl SourceSpec {
    /// As a STORE of the command line: a bare path is a volume, `volume:` in front of a remote namespace's URL too, `mixed:` has parts, anything else is
    /// a store of its own.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str, lba_bytes: u32) -> Result<Self, StoreError> {
        let Some(texts) = mixed_parts(text) else {
            return Self::parse_plain(text, lba_bytes);
        };
        let wrong = |why| {
            let (text, why) = (text.to_owned(), Cow::Borrowed(why));
            Err(StoreError::Spec { text, why })
        };
        if texts.iter().any(String::is_empty) {
            return wrong("one of its parts is empty; a + in a path is written ++");
        }
        if texts.iter().any(|part| mixed_parts(part).is_some()) {
            return wrong("a part is mixed itself; name its parts in its place");
        }
        if !(2..=MIXED_PARTS_MAX).contains(&texts.len()) {
            return wrong(PARTS);
        }
        let parts = texts.iter().map(|part| Self::parse_plain(part, lba_bytes));
        Ok(Self::Mixed {
            parts: parts.collect::<Result<_, _>>()?,
            lba_bytes,
        })
    }

    fn parse_plain(text: &str, lba_bytes: u32) -> Result<Self, StoreError> {
        let of_volume = text.strip_prefix("volume:");
        if let Some(of_volume) = of_volume.filter(|rest| ArraySpec::is_meant(rest)) {
            let spec = ArraySpec::parse(of_volume)?;
            return Ok(Self::ArrayVolume { spec });
        }
        if ArraySpec::is_meant(text) {
            let spec = ArraySpec::parse(text)?;
            return Ok(Self::Array { spec, lba_bytes });
        }
        if let Some(rest) = of_volume.filter(|rest| !RemoteUrl::is_meant(rest)) {
            let path = rest.strip_prefix("file:").unwrap_or(rest);
            return Err(StoreError::Spec {
                text: text.to_owned(),
                why: format!("a volume in a file is named by its path alone: write {path} (volume: stands before nvme+tcp://, nvme+rdma://, stripe: and replicas:)").into(),
            });
        }
        if of_volume.is_some() || RemoteUrl::is_meant(text) {
            let url = of_volume.unwrap_or(text).parse();
            let url = url.map_err(|error: UrlError| StoreError::Spec {
                text: text.to_owned(),
                why: error.to_string().into(),
            })?;
            return Ok(match of_volume {
                Some(_) => Self::RemoteVolume { url },
                None => Self::Remote { url, lba_bytes },
            });
        }
        Ok(match StoreSpec::parse(text)? {
            StoreSpec::File { path } if !text.starts_with("file:") => Self::Volume { path },
            spec => Self::Store { spec, lba_bytes },
        })
    }

    /// The parts of a mixed one, in their order; of any other, itself.
    pub fn parts(&self) -> &[Self] {
        match self {
            Self::Mixed { parts, .. } => parts,
            plain => std::slice::from_ref(plain),
        }
    }

    /// The last of its parts.
    pub fn last_part_mut(&mut self) -> Option<&mut Self> {
        match self {
            Self::Mixed { parts, .. } => parts.last_mut(),
            plain => Some(plain),
        }
    }

    /// The file or device that it is; of a mixed one, each part has its own.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Volume { path } => Some(path),
            Self::Store {
                spec: StoreSpec::File { path },
                ..
            } => Some(path),
            Self::Store { .. }
            | Self::RemoteVolume { .. }
            | Self::Remote { .. }
            | Self::Array { .. }
            | Self::ArrayVolume { .. }
            | Self::Mixed { .. } => None,
        }
    }

    /// Its files and devices, those of the members of an array among them; of a mixed one, each part has its own.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            Self::Array { spec, .. } | Self::ArrayVolume { spec } => spec.paths().collect(),
            other => other.path().into_iter().collect(),
        }
    }

    /// Whether it is in another machine.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::RemoteVolume { .. } | Self::Remote { .. })
    }

    /// Whether it is the same disk after a restart.
    pub fn is_lasting(&self) -> bool {
        let is_lasting = |part: &Self| match part {
            Self::Array { spec, .. } | Self::ArrayVolume { spec } => spec.is_lasting(),
            plain => plain.path().is_some() || plain.is_remote(),
        };
        self.parts().iter().all(is_lasting)
    }

    /// The same with its path from the root on: a relative one of the command line is of the folder that the daemon was started in.
    pub fn whole(self) -> Self {
        // It fails for an empty path only.
        self.with_paths(&|path| std::path::absolute(&path).unwrap_or(path))
    }

    /// The same with relative paths in this folder.
    pub fn under(self, folder: &Path) -> Self {
        self.with_paths(&|path| folder.join(path))
    }

    fn with_paths(self, change: &dyn Fn(PathBuf) -> PathBuf) -> Self {
        match self {
            Self::Volume { path } => Self::Volume { path: change(path) },
            Self::Store {
                spec: StoreSpec::File { path },
                lba_bytes,
            } => Self::Store {
                spec: StoreSpec::File { path: change(path) },
                lba_bytes,
            },
            Self::Mixed { parts, lba_bytes } => Self::Mixed {
                parts: parts
                    .into_iter()
                    .map(|part| part.with_paths(change))
                    .collect(),
                lba_bytes,
            },
            Self::Array { spec, lba_bytes } => Self::Array {
                spec: spec.with_paths(change),
                lba_bytes,
            },
            Self::ArrayVolume { spec } => Self::ArrayVolume {
                spec: spec.with_paths(change),
            },
            other @ (Self::Store { .. } | Self::RemoteVolume { .. } | Self::Remote { .. }) => other,
        }
    }

    /// Whether both are the same disk: a `null:` or `void:` store's size is a part of its name.
    pub fn is_same_disk(&self, other: &Self) -> bool {
        let sizeless = |part: &Self| match part {
            Self::Store { spec, .. } => match spec {
                StoreSpec::Null { .. } | StoreSpec::Void { .. } => {
                    Some(std::mem::discriminant(spec))
                }
                StoreSpec::Mem { .. } | StoreSpec::File { .. } => None,
            },
            _ => None,
        };
        let is_same = |(one, other): (&Self, &Self)| {
            one == other || sizeless(one).is_some() && sizeless(one) == sizeless(other)
        };
        let (ours, theirs) = (self.parts(), other.parts());
        let of_a_kind = std::mem::discriminant(self) == std::mem::discriminant(other);
        of_a_kind && ours.len() == theirs.len() && ours.iter().zip(theirs).all(is_same)
    }
}

impl std::fmt::Display for SourceSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Volume { path } => write!(f, "{}", path.display()),
            Self::RemoteVolume { url } => write!(f, "volume:{url}"),
            Self::Remote { url, .. } => write!(f, "{url}"),
            Self::Store { spec, .. } => write!(f, "{spec}"),
            Self::Array { spec, .. } => write!(f, "{spec}"),
            Self::ArrayVolume { spec } => write!(f, "volume:{spec}"),
            Self::Mixed { parts, .. } => {
                f.write_str(&mixed_text(parts.iter().map(ToString::to_string)))
            }
        }
    }
}
