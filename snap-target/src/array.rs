//! From the members of an array to one store, and to a namespace of ours.

use std::fs::File;
use std::io::Read;

use anyhow::{Context, Result};
use namespace::{Identity, Namespace};
use store::SharedStore;
use store_array::replicas::{self, Member};
use store_array::stripe::{self, SetId};

use crate::config::{ArrayKind, ArraySpec, MemberSpec};
use crate::{open, remote};

/// An array, served block by block.
///
/// # Errors
/// A member cannot be had, or is none of this array.
pub fn of_blocks(
    nsid: u32,
    spec: &ArraySpec,
    lba_bytes: u32,
    read_only: bool,
) -> Result<Namespace> {
    let (store, identity) = assembled(spec, read_only)?;
    let mut namespace = Namespace::of_store(nsid, store, identity, lba_bytes);
    namespace.name = spec.to_string();
    Ok(namespace)
}

/// The volume in an array, served read-only.
///
/// # Errors
/// As [`of_blocks`]; no volume is there, or one that maps files.
pub fn of_volume(nsid: u32, spec: &ArraySpec) -> Result<Namespace> {
    let (store, _) = assembled(spec, true)?;
    remote::view_of(nsid, store, &spec.to_string())
}

/// The store, and what it is called for ever.
fn assembled(spec: &ArraySpec, read_only: bool) -> Result<(SharedStore, Identity)> {
    let opened = match spec.kind {
        ArrayKind::Stripe { unit_bytes, is_new } => striped(spec, unit_bytes, is_new, read_only),
        ArrayKind::Replicas => replicated(spec),
    };
    opened.with_context(|| spec.to_string())
}

fn striped(
    spec: &ArraySpec,
    unit_bytes: u32,
    is_new: bool,
    read_only: bool,
) -> Result<(SharedStore, Identity)> {
    let members = spec.members.iter().map(|member| opened(member, read_only));
    let members = members.collect::<Result<Vec<_>>>()?;
    let (store, set) = if is_new && !read_only {
        let mut fresh = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut fresh)?;
        stripe::open_or_make(members, unit_bytes, SetId(fresh))?
    } else {
        stripe::open(members, unit_bytes)?
    };
    Ok((store, Identity::of_raw("stripe", &set.0)))
}

/// The same names are the same disk, whichever of them are there.
fn replicated(spec: &ArraySpec) -> Result<(SharedStore, Identity)> {
    let member = |member: &MemberSpec| Member {
        name: member.to_string(),
        store: opened(member, true).map_err(|error| format!("{error:#}")),
    };
    // All at once: one that says nothing takes its time, and the others need not wait for it.
    let members = std::thread::scope(|scope| {
        let opening = spec.members.iter().map(|spec| scope.spawn(|| member(spec)));
        let opening: Vec<_> = opening.collect();
        let opened = opening.into_iter().map(std::thread::ScopedJoinHandle::join);
        opened.collect::<std::thread::Result<Vec<_>>>()
    });
    let members = members.map_err(|_| anyhow::anyhow!("a replica's opening ended by a panic"))?;
    let store = replicas::open(members, replicas::PATIENCE)?;
    for problem in store.problems() {
        tracing::warn!(store = %spec, "{}", problem.text);
    }
    let identity = Identity::of_raw("replicas", spec.to_string().as_bytes());
    Ok((store, identity))
}

fn opened(member: &MemberSpec, read_only: bool) -> Result<SharedStore> {
    match member {
        MemberSpec::Store(spec) => open::open_raw(spec, read_only),
        MemberSpec::Remote(url) => remote::store(url, !read_only),
    }
}
