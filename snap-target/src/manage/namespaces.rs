//! Namespaces come, go, grow, and are shown to some hosts.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use admin_proto::v1::{self, NamespaceChange, Reason, event::Kind};
use namespace::Namespace;
use nvme::controller::{NAMESPACES_MAX, Visibility};
use nvme::nqn::Nqn;
use store::StoreSpec;

use super::hosts::take_off;
use super::steps::Step;
use super::{Closing, ManageError, Manager, News};
use crate::config::{NamespaceConfig, SourceSpec};
use crate::identity;
use crate::limits::HOSTS_MAX;
use crate::line_of;
use crate::open;
use crate::text::uuid_text;

/// What to attach.
#[derive(Clone, Debug)]
pub struct NewNamespace {
    /// To which subsystem.
    pub nqn: Nqn,
    /// Under which number; none: the lowest free one.
    pub nsid: Option<u32>,
    /// A volume or a store, as on the command line.
    pub source: String,
    /// Block size; none: 4096 of a store, its own of a volume.
    pub lba_bytes: Option<u32>,
    /// Refuses writes although the store could take them.
    pub read_only: bool,
    /// Who sees it.
    pub visibility: Visibility,
}

/// Another size for a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// This many bytes.
    Bytes(u64),
    /// What the file or block device has now.
    Rescan,
}

/// What health calls a namespace.
pub fn subject(nqn: &Nqn, nsid: u32) -> String {
    format!("{nqn} nsid {nsid}")
}

impl Manager {
    /// Opens what stands behind a namespace, and attaches it. Returns its NSID.
    ///
    /// # Errors
    /// [`ManageError`]; what cannot be opened is [`ManageError`]: Precondition and says why.
    pub fn attach(&mut self, new: NewNamespace) -> Result<u32, ManageError> {
        self.may_change()?;
        let NewNamespace { nqn, source, .. } = new;
        let there = &self.subsystem(&nqn)?.namespaces;
        let lowest = (1..=NAMESPACES_MAX).find(|nsid| !there.contains_key(nsid));
        let nsid = new.nsid.or(lowest).ok_or_else(|| {
            ManageError::new(Reason::Limit, format!(
                "{nqn} has {NAMESPACES_MAX} namespaces, and no more are possible; detach one first"
            ))
            .of_subsystem(&nqn)
        })?;
        if there.contains_key(&nsid) {
            return Err(ManageError::new(
                Reason::NsidTaken,
                format!(
                    "{nqn} has a namespace {nsid} already; detach it first, or take another number"
                ),
            )
            .of_namespace(&nqn, nsid));
        }
        let source = SourceSpec::parse(&source, new.lba_bytes.unwrap_or(4096))
            .map_err(|error| ManageError::field("source", error))?;
        let config = NamespaceConfig {
            nsid,
            source: absolute(source)?,
            visibility: new.visibility,
            read_only: new.read_only,
        };
        let namespace = self.open(&nqn, &config)?;
        if let Some(wanted) = new.lba_bytes
            && wanted != namespace.lba_bytes
        {
            return Err(ManageError::new(
                Reason::BlockSize,
                format!(
                    "{} has blocks of {} bytes, not {wanted}; leave the block size out",
                    namespace.name, namespace.lba_bytes
                ),
            ));
        }
        let next = self.with_subsystem(&nqn, |it| {
            it.namespaces.insert(nsid, config.clone());
        })?;
        let news = news(NamespaceChange::Attached, &nqn, &namespace, "attached");
        let step = Step::Attach(nqn, namespace, config.visibility);
        let _nothing_closes = self.commit(next, step, vec![news])?;
        Ok(nsid)
    }

    /// Takes a namespace away. Its data stay.
    ///
    /// # Errors
    /// [`ManageError`]: NotFound.
    pub fn detach(&mut self, nqn: &Nqn, nsid: u32) -> Result<Closing, ManageError> {
        self.may_change()?;
        self.namespace_config(nqn, nsid)?;
        let next = self.with_subsystem(nqn, |it| {
            it.namespaces.remove(&nsid);
        })?;
        let news = match self.live.served(nqn, nsid) {
            Some(old) => vec![news(NamespaceChange::Detached, nqn, old, "detached")],
            None => Vec::new(),
        };
        let closing = self.commit(next, Step::Detach(nqn.clone(), nsid), news)?;
        self.health.well(&subject(nqn, nsid));
        Ok(closing)
    }

    /// Shows a namespace to other hosts.
    ///
    /// # Errors
    /// [`ManageError`]: NotFound.
    pub fn set_visibility(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
        visibility: Visibility,
    ) -> Result<(), ManageError> {
        self.may_change()?;
        if self.namespace_config(nqn, nsid)?.visibility == visibility {
            return Ok(());
        }
        let next = self.with_subsystem(nqn, |it| {
            if let Some(config) = it.namespaces.get_mut(&nsid) {
                config.visibility = visibility.clone();
            }
        })?;
        let news = match self.live.served(nqn, nsid) {
            Some(served) => vec![news(
                NamespaceChange::Visibility,
                nqn,
                served,
                "is seen by other hosts",
            )],
            None => Vec::new(),
        };
        let step = Step::SetVisibility(nqn.clone(), nsid, visibility);
        self.commit(next, step, news).map(|_nothing_closes| ())
    }

    /// Shows a namespace to hosts besides those who see it.
    ///
    /// # Errors
    /// No such namespace, all hosts see it, or the list is full.
    pub fn show_to(&mut self, nqn: &Nqn, nsid: u32, hosts: &[Nqn]) -> Result<(), ManageError> {
        let mut list = self.seen_by(nqn, nsid)?;
        for host in hosts {
            if !list.contains(host) {
                list.push(host.clone());
            }
        }
        if list.len() > HOSTS_MAX {
            let text = format!(
                "a list has at most {HOSTS_MAX} hosts; hide it from some first, or show it to all"
            );
            return Err(ManageError::new(Reason::Limit, text).of_namespace(nqn, nsid));
        }
        self.set_visibility(nqn, nsid, Visibility::Hosts(list))
    }

    /// Shows a namespace no longer to these. Returns those that were not on its list.
    ///
    /// # Errors
    /// No such namespace, or all hosts see it.
    pub fn hide_from(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
        hosts: &[Nqn],
    ) -> Result<Vec<Nqn>, ManageError> {
        let mut list = self.seen_by(nqn, nsid)?;
        let not_listed = take_off(&mut list, hosts);
        self.set_visibility(nqn, nsid, Visibility::Hosts(list))?;
        Ok(not_listed)
    }

    /// The hosts that see a namespace, where it has a list.
    fn seen_by(&self, nqn: &Nqn, nsid: u32) -> Result<Vec<Nqn>, ManageError> {
        match &self.namespace_config(nqn, nsid)?.visibility {
            Visibility::Hosts(list) => Ok(list.clone()),
            Visibility::All => {
                let text = format!(
                    "all hosts of {nqn} see namespace {nsid}; set a list in its place first"
                );
                Err(ManageError::new(Reason::AnyHost, text).of_namespace(nqn, nsid))
            }
        }
    }

    /// Gives a raw namespace another size. Returns the one before, in bytes. A file is grown before hosts are told, and cut, if forced, after: what fails in
    /// between leaves a file that is longer than what is served of it.
    ///
    /// # Errors
    /// [`ManageError`]; a smaller size that is not forced is [`ManageError`]: Precondition.
    pub fn resize(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
        size: NewSize,
        force: bool,
    ) -> Result<(u64, Closing), ManageError> {
        self.may_change()?;
        let mut config = self.namespace_config(nqn, nsid)?.clone();
        let old = self.live.served(nqn, nsid).cloned().ok_or_else(|| {
            ManageError::new(Reason::NotServed, format!(
                "namespace {nsid} of {nqn} is not served: what stands behind it cannot be opened"
            ))
            .of_namespace(nqn, nsid)
        })?;
        let mut cut = None;
        match &mut config.source {
            SourceSpec::Volume { .. } => {
                return Err(ManageError::new(
                    Reason::Size,
                    "this namespace is a view: its size is its volume's; pack another volume"
                        .to_owned(),
                ));
            }
            SourceSpec::Store { spec, lba_bytes } => match (spec, size) {
                (StoreSpec::File { path }, NewSize::Bytes(bytes)) => {
                    whole_blocks(bytes, *lba_bytes)?;
                    may_shrink(old.bytes(), bytes, force)?;
                    if bytes < old.bytes() {
                        cut = Some((path.clone(), bytes));
                    } else {
                        grow(path, bytes)?;
                    }
                }
                (StoreSpec::File { .. }, NewSize::Rescan) => {}
                (StoreSpec::Null { bytes: now }, NewSize::Bytes(bytes)) => {
                    whole_blocks(bytes, *lba_bytes)?;
                    may_shrink(old.bytes(), bytes, force)?;
                    *now = bytes;
                }
                (StoreSpec::Mem { .. }, NewSize::Bytes(_)) => {
                    return Err(ManageError::new(
                        Reason::Size,
                        "memory keeps its size as long as it is attached; attach another one"
                            .to_owned(),
                    ));
                }
                (StoreSpec::Null { .. } | StoreSpec::Mem { .. }, NewSize::Rescan) => {
                    return Err(ManageError::new(
                        Reason::Size,
                        "only files and block devices can have changed by themselves; name a size"
                            .to_owned(),
                    ));
                }
            },
        }
        self.serve_again(nqn, &old, config, cut, force)
    }

    fn serve_again(
        &mut self,
        nqn: &Nqn,
        old: &Arc<Namespace>,
        config: NamespaceConfig,
        cut: Option<(std::path::PathBuf, u64)>,
        force: bool,
    ) -> Result<(u64, Closing), ManageError> {
        let before = old.bytes();
        let mut namespace = self.open_again(&config, old)?;
        if let Some((_, bytes)) = &cut {
            namespace.blocks = bytes / u64::from(namespace.lba_bytes);
        }
        may_shrink(before, namespace.bytes(), force)?;
        if namespace.bytes() == before {
            return Ok((before, None));
        }
        let namespace = Arc::new(namespace);
        let text = format!("has {} bytes now, it had {before}", namespace.bytes());
        let news = news(NamespaceChange::Resized, nqn, &namespace, &text);
        let next = self.with_subsystem(nqn, |it| {
            it.namespaces.insert(config.nsid, config);
        })?;
        let closing = self.commit(next, Step::Replace(nqn.clone(), namespace), vec![news])?;
        if let Some((path, bytes)) = cut {
            // Hosts see the new end already; nobody reads or writes behind it.
            set_len(&path, bytes)?;
        }
        Ok((before, closing))
    }

    /// Opens what stands behind a namespace, with the keeper of its records.
    pub(super) fn open(
        &mut self,
        nqn: &Nqn,
        config: &NamespaceConfig,
    ) -> Result<Arc<Namespace>, ManageError> {
        let namespace = self.open_alone(config)?;
        self.check_twins(nqn, config, &namespace)?;
        self.keep(namespace, config)
    }

    /// Opens what stands behind it, whatever else is served.
    pub(super) fn open_alone(
        &mut self,
        config: &NamespaceConfig,
    ) -> Result<Namespace, ManageError> {
        let state = &mut self.state;
        let mut given = |path: &Path, bytes| {
            let uuid = state.as_mut().map(|state| state.device(path, bytes));
            Ok(uuid.transpose()?)
        };
        open::namespace(config, &self.policy, &mut given)
            .map_err(|error| ManageError::new(Reason::SourceUnusable, line_of(&error)))
    }

    /// Opens it again, at another size: it is the same disk, and known as that.
    fn open_again(
        &mut self,
        config: &NamespaceConfig,
        old: &Namespace,
    ) -> Result<Namespace, ManageError> {
        let (state, uuid) = (&mut self.state, old.identity.uuid);
        let mut given = |path: &Path, bytes| {
            if let Some(state) = state {
                state.keep_device(path, bytes, uuid)?;
            }
            Ok(Some(uuid))
        };
        let namespace = open::namespace(config, &self.policy, &mut given)
            .map_err(|error| ManageError::new(Reason::SourceUnusable, line_of(&error)))?;
        Ok(namespace.succeeding(old))
    }

    /// Gives it the keeper of its records, and takes up what there is.
    pub(super) fn keep(
        &self,
        mut namespace: Namespace,
        config: &NamespaceConfig,
    ) -> Result<Arc<Namespace>, ManageError> {
        if let Some(keepers) = &self.keepers
            && open::is_lasting(config)
        {
            let keeper = keepers.of(&namespace.identity);
            namespace = namespace
                .kept_by(keeper)
                .map_err(|error| ManageError::new(Reason::SourceUnusable, error.to_string()))?;
        }
        Ok(Arc::new(namespace))
    }

    /// That nothing is served which a namespace of this subsystem would be a second way to.
    pub(super) fn check_twins(
        &self,
        nqn: &Nqn,
        config: &NamespaceConfig,
        namespace: &Namespace,
    ) -> Result<(), ManageError> {
        let node = identity::node_of(&config.source);
        for (of, other) in self.live.all_served() {
            // Two subsystems may show the same view; a disk that can be written has one writer's order, and one set of reservations.
            let read_only = other.write_protected && namespace.write_protected;
            if other.identity == namespace.identity && (of == nqn || !read_only) {
                return Err(ManageError::new(
                    Reason::SourceInUse,
                    format!(
                        "{} and {} are the same content under the same UUID; serve it once",
                        other.name, namespace.name
                    ),
                )
                .of_namespace(of, other.nsid));
            }
            let others = self.desired.namespace(of, other.nsid);
            if !read_only
                && node.is_some()
                && others.and_then(|it| identity::node_of(&it.source)) == node
            {
                return Err(ManageError::new(
                    Reason::SourceInUse,
                    format!(
                        "{} and {} are two names of the same disk; serve it once",
                        other.name, namespace.name
                    ),
                )
                .of_namespace(of, other.nsid));
            }
        }
        Ok(())
    }

    pub(super) fn namespace_config(
        &self,
        nqn: &Nqn,
        nsid: u32,
    ) -> Result<&NamespaceConfig, ManageError> {
        let there = self.subsystem(nqn)?.namespaces.get(&nsid);
        there.ok_or_else(|| {
            ManageError::new(Reason::NoNamespace, format!(
                "{nqn} has no namespace {nsid}; `snapctl namespace list` shows those that are there"
            ))
            .of_namespace(nqn, nsid)
        })
    }
}

/// What was given by a client is relative to nothing that it knows.
fn absolute(source: SourceSpec) -> Result<SourceSpec, ManageError> {
    let path = match &source {
        SourceSpec::Volume { path } => path,
        SourceSpec::Store {
            spec: StoreSpec::File { path },
            ..
        } => path,
        SourceSpec::Store { .. } => return Ok(source),
    };
    if path.is_absolute() {
        return Ok(source);
    }
    Err(ManageError::field(
        "source",
        format_args!(
            "{} is relative; write the whole path on the daemon's machine",
            path.display()
        ),
    ))
}

fn whole_blocks(bytes: u64, lba_bytes: u32) -> Result<(), ManageError> {
    if bytes == 0 || !bytes.is_multiple_of(u64::from(lba_bytes)) {
        return Err(ManageError::field(
            "bytes",
            format_args!(
                "{bytes} is no multiple of the block size; take a multiple of {lba_bytes}, at least one"
            ),
        ));
    }
    Ok(())
}

fn may_shrink(before: u64, bytes: u64, force: bool) -> Result<(), ManageError> {
    if bytes < before && !force {
        return Err(ManageError::new(
            Reason::Shrinks,
            format!(
                "{bytes} bytes are less than the {before} that hosts see; what is behind the new end would be lost: force it if that is meant"
            ),
        ));
    }
    Ok(())
}

/// Makes a file at least this long; a block device must be.
fn grow(path: &Path, bytes: u64) -> Result<(), ManageError> {
    let refused = |error: std::io::Error| {
        ManageError::new(
            Reason::SourceUnusable,
            format!("{}: {error}", path.display()),
        )
    };
    let metadata = std::fs::metadata(path).map_err(refused)?;
    if metadata.file_type().is_block_device() {
        let has = std::io::Seek::seek(
            &mut File::open(path).map_err(refused)?,
            std::io::SeekFrom::End(0),
        )
        .map_err(refused)?;
        if has != bytes {
            return Err(ManageError::new(
                Reason::Size,
                format!(
                    "{} is a block device of {has} bytes, and served whole; rescan it",
                    path.display()
                ),
            ));
        }
        return Ok(());
    }
    set_len(path, bytes)
}

fn set_len(path: &Path, bytes: u64) -> Result<(), ManageError> {
    let file = OpenOptions::new().write(true).open(path);
    let done = file.and_then(|file| {
        if file.metadata()?.len() != bytes {
            file.set_len(bytes)?;
            file.sync_all()?;
        }
        Ok(())
    });
    done.map_err(|error| {
        ManageError::new(
            Reason::SourceUnusable,
            format!(
                "{} cannot be made {bytes} bytes long: {error}",
                path.display()
            ),
        )
    })
}

pub(super) fn news(change: NamespaceChange, nqn: &Nqn, namespace: &Namespace, what: &str) -> News {
    let event = v1::NamespaceEvent {
        change: change.into(),
        subsystem_nqn: nqn.to_string(),
        nsid: namespace.nsid,
        uuid: uuid_text(&namespace.identity.uuid),
        bytes: namespace.bytes(),
    };
    let text = format!(
        "namespace {} of {nqn} ({}) {what}",
        namespace.nsid, namespace.name
    );
    (Kind::Namespace(event), text)
}
