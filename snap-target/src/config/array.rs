//! Several stores as one, as they are named: `stripe:UNIT:STORE+STORE` and `replicas:STORE+STORE`.

use std::fmt;
use std::path::{Path, PathBuf};

use admin_proto::{joined, parts_of};
use store::{StoreError, StoreSpec, parse_size};
use store_array::limits::MEMBERS_MAX;
use store_nvme::{RemoteUrl, UrlError};

const STRIPE: &str = "stripe:";
const REPLICAS: &str = "replicas:";
/// Of a stripe that is to be made of blank members.
const NEW: &str = "new:";

/// Which stores, and as what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// As what.
    pub kind: ArrayKind,
    /// In their order.
    pub members: Vec<MemberSpec>,
}

/// What an array does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayKind {
    /// Its bytes are spread over the members.
    Stripe {
        /// In units of so many bytes.
        unit_bytes: u32,
        /// Blank members become a stripe.
        is_new: bool,
    },
    /// The members have the same bytes.
    Replicas,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberSpec {
    /// A store of this machine.
    Store(StoreSpec),
    /// A remote namespace.
    Remote(RemoteUrl),
}

impl ArraySpec {
    /// Whether a text is meant as one.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(STRIPE) || text.starts_with(REPLICAS)
    }

    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let wrong = |why: String| StoreError::Spec {
            text: text.to_owned(),
            why: why.into(),
        };
        let (kind, members) = match text.strip_prefix(STRIPE) {
            Some(rest) => stripe(rest).map_err(wrong)?,
            None => (
                ArrayKind::Replicas,
                text.strip_prefix(REPLICAS).unwrap_or(text),
            ),
        };
        let members = parts_of(members);
        // A single + in a path or a URL cuts it: what is left of it is no store.
        if let Some(cut) = members.iter().find(|text| is_cut(text)) {
            return Err(wrong(format!(
                "`{cut}` is no store: a + that is part of a member is written ++ (nvme++tcp://HOST/SUBNQN)"
            )));
        }
        if !(2..=MEMBERS_MAX).contains(&members.len()) || members.iter().any(String::is_empty) {
            let why = format!(
                "it has 2 to {MEMBERS_MAX} members: stripe:UNIT:STORE+STORE, replicas:STORE+STORE; a + in one of them is written ++"
            );
            return Err(wrong(why));
        }
        let members = members.iter().map(|text| MemberSpec::parse(text));
        Ok(Self {
            kind,
            members: members.collect::<Result<_, _>>()?,
        })
    }

    /// Paths of members that are files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.members.iter().filter_map(|member| match member {
            MemberSpec::Store(StoreSpec::File { path }) => Some(path.as_path()),
            MemberSpec::Store(_) | MemberSpec::Remote(_) => None,
        })
    }

    /// Whether it is the same after a restart.
    pub fn is_lasting(&self) -> bool {
        let is_lasting = |member: &MemberSpec| {
            matches!(
                member,
                MemberSpec::Store(StoreSpec::File { .. }) | MemberSpec::Remote(_)
            )
        };
        self.members.iter().all(is_lasting)
    }

    /// The same with other paths.
    pub fn with_paths(mut self, change: &dyn Fn(PathBuf) -> PathBuf) -> Self {
        for member in &mut self.members {
            if let MemberSpec::Store(StoreSpec::File { path }) = member {
                *path = change(std::mem::take(path));
            }
        }
        self
    }
}

/// Whether a member is the rest of a URL that a single + has cut.
fn is_cut(text: &str) -> bool {
    text.starts_with("tcp://") || text.starts_with("rdma://")
}

/// What stands before the members of a stripe, and the members.
fn stripe(rest: &str) -> Result<(ArrayKind, &str), String> {
    let (is_new, rest) = match rest.strip_prefix(NEW) {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let (unit, members) = rest
        .split_once(':')
        .ok_or("its unit is missing: stripe:64KiB:STORE+STORE")?;
    let unit_bytes = parse_size(unit).map_err(|why| format!("its unit `{unit}`: {why}"))?;
    // Whether it can be a unit is said when it is opened.
    let unit_bytes = u32::try_from(unit_bytes).unwrap_or(u32::MAX);
    Ok((ArrayKind::Stripe { unit_bytes, is_new }, members))
}

impl MemberSpec {
    fn parse(text: &str) -> Result<Self, StoreError> {
        if RemoteUrl::is_meant(text) {
            let url = text.parse().map_err(|error: UrlError| StoreError::Spec {
                text: text.to_owned(),
                why: error.to_string().into(),
            })?;
            return Ok(Self::Remote(url));
        }
        for kind in [STRIPE, REPLICAS, "mixed:", "volume:"] {
            if text.starts_with(kind) {
                return Err(StoreError::Spec {
                    text: text.to_owned(),
                    why: format!("a member is a store: file:PATH, nvme+tcp://HOST/SUBNQN or nvme+rdma://HOST/SUBNQN; it cannot be {kind} itself (volume: stands before the whole array)").into(),
                });
            }
        }
        StoreSpec::parse(text).map(Self::Store)
    }
}

impl fmt::Display for MemberSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(spec) => spec.fmt(f),
            Self::Remote(url) => url.fmt(f),
        }
    }
}

impl fmt::Display for ArraySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ArrayKind::Stripe { unit_bytes, is_new } => {
                let new = if is_new { NEW } else { "" };
                write!(f, "{STRIPE}{new}{}:", Unit(unit_bytes))?;
            }
            ArrayKind::Replicas => f.write_str(REPLICAS)?,
        }
        f.write_str(&joined(self.members.iter().map(ToString::to_string)))
    }
}

/// As `parse_size` takes it.
struct Unit(u32);

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            mib if mib.is_multiple_of(1 << 20) => write!(f, "{}MiB", mib >> 20),
            kib if kib.is_multiple_of(1 << 10) => write!(f, "{}KiB", kib >> 10),
            bytes => write!(f, "{bytes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_named_again() {
        for text in [
            "stripe:64KiB:file:/a+file:/b",
            "stripe:new:1MiB:file:/a++b+mem:1GiB+nvme++tcp://10.0.0.1:4420/nqn.2026-11.io.xio:s?nsid=1",
            "replicas:file:/a+file:/b",
        ] {
            assert!(ArraySpec::is_meant(text));
            assert_eq!(ArraySpec::parse(text).unwrap().to_string(), text);
        }
        let replicas = ArraySpec::parse("replicas:/a+b+c").unwrap();
        assert_eq!((replicas.members.len(), replicas.paths().count()), (3, 3));
        assert!(replicas.is_lasting());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (text, part) in [
            ("stripe:/a+/b", "`/a+/b` does not name a store"),
            ("stripe:64KiB:/a", "it has 2 to 16 members"),
            ("stripe:64KiB:/a+", "it has 2 to 16 members"),
            (
                "stripe:64XiB:/a+/b",
                "its unit `64XiB`: the unit must be one of",
            ),
            ("stripe:64KiB", "its unit is missing"),
            ("replicas:/a", "it has 2 to 16 members"),
            (
                "replicas:/a+stripe:64KiB:/b++/c",
                "it cannot be stripe: itself",
            ),
            ("replicas:volume:/a+/b", "it cannot be volume: itself"),
            (
                "stripe:64KiB:nvme+tcp://a/nqn.b+/c",
                "`tcp://a/nqn.b` is no store: a + that is part of a member is written ++",
            ),
        ] {
            let error = ArraySpec::parse(text).unwrap_err().to_string();
            assert!(
                error.contains(part) || text == "stripe:/a+/b",
                "{text}: {error}"
            );
        }
    }
}
