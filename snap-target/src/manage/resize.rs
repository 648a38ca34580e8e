//! Raw namespaces get another size.
//!
//! Files are looked at, grown and cut by a thread that may wait. A file is grown before hosts are told of more, and cut after they were told of less: what fails
//! in between leaves a file that is longer than what is served of it, and that is cut before anything else is made of it ([`cut`]). Nothing is cut off a file
//! without `force`, whether hosts saw it or not.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use admin_proto::v1::{NamespaceChange, Reason};
use frontend_nvme::{Closed, Closing};
use namespace::Namespace;
use nvme::nqn::Nqn;
use store::{BYTES_MAX, StoreSpec};

use super::cut::{self, CutAgain, SetSize};
use super::namespaces::news;
use super::opening::{Ask, unusable};
use super::steps::Step;
use super::{ManageError, Manager, StillClosing};
use crate::config::{Cut, NamespaceConfig, SourceSpec};
use crate::identity::Nodes;
use crate::limits::RESIZE_TIME_MAX;
use crate::{line_of, open};

/// Another size for a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// This many bytes.
    Bytes(u64),
    /// What the file or block device has now.
    Rescan,
}

/// The size before, in bytes, and what the change left.
pub type Resized = (u64, StillClosing);

/// A namespace on its way to another size.
struct Resize {
    nqn: Nqn,
    config: NamespaceConfig,
    old: Arc<Namespace>,
    /// The file that is to have a size; none where it is to be looked at only, or there is no file.
    wanted: Option<Wanted>,
    /// The file or block device whose size is taken as it is.
    as_it_is: Option<PathBuf>,
    force: bool,
    /// Held as long as a thread may still touch the file.
    under_way: Arc<()>,
}

/// What stands behind a namespace of another size, and what is to be cut off its file.
type Fitted = (Namespace, Option<Cut>);

/// What became of a change: the size before, in bytes, and operations of then that are under way.
struct Changed {
    before: u64,
    left: Option<Closing>,
}

/// A file to be cut.
struct ToCut {
    nqn: Nqn,
    nsid: u32,
    source: SourceSpec,
    path: PathBuf,
    cut: Cut,
    held: Arc<()>,
}

impl Resize {
    /// The file of which this is to be cut off.
    fn to_cut(&self, cut: Option<Cut>) -> Option<ToCut> {
        let wanted = self.wanted.as_ref().map(|wanted| &wanted.path);
        Some(ToCut {
            nqn: self.nqn.clone(),
            nsid: self.config.nsid,
            source: self.config.source.clone(),
            path: wanted.or(self.as_it_is.as_ref())?.clone(),
            cut: cut?,
            held: self.under_way.clone(),
        })
    }
}

/// What a file or block device is to be.
#[derive(Clone, Debug)]
struct Wanted {
    path: PathBuf,
    bytes: u64,
    /// What hosts see of it.
    served: u64,
    force: bool,
}

/// A source whose size a thread may still change.
#[derive(Debug)]
pub(super) struct Resizing {
    source: SourceSpec,
    nodes: Nodes,
    under_way: Weak<()>,
}

impl Manager {
    /// Gives a raw namespace another size; `then` hears the one before, in bytes, and what the change left, or why there is none: a smaller size must be forced.
    /// Other requests are carried out meanwhile.
    pub fn resize_then(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
        size: NewSize,
        force: bool,
        then: impl FnOnce(&mut Self, Result<Resized, ManageError>) + Send + 'static,
    ) {
        let resize = match self.check_resize(nqn, nsid, size, force) {
            Ok(resize) => resize,
            Err(error) => return then(self, Err(error)),
        };
        let nodes = self.live.nodes.get(&(nqn.clone(), nsid)).cloned();
        let nodes = nodes.unwrap_or_default();
        // The other parts of a mixed one stay open, and as they are.
        let (config, last) = (resize.config.clone(), last_part(&resize.old));
        let uuid = last.identity.uuid;
        self.resizing.push(Resizing {
            source: config.source.clone(),
            nodes: nodes.clone(),
            under_way: Arc::downgrade(&resize.under_way),
        });
        let (wanted, held, set_size) = (
            resize.wanted.clone(),
            resize.under_way.clone(),
            self.set_size,
        );
        let as_it_is = resize.as_it_is.clone().filter(|path| path.is_file());
        let served = last.bytes();
        let (source, policy) = (config.source.to_string(), self.policy.clone());
        let work = move |ask: &Ask| {
            let _held = held;
            same_file(&config.source, &nodes)?;
            cut::finish(&config, set_size)?;
            let mut to_cut = match &wanted {
                Some(wanted) => fit(wanted, set_size)?,
                None => None,
            };
            if let Some(path) = &as_it_is {
                settle(path)?;
            }
            let mut given = |path: &Path, bytes| ask.uuid_of(path, bytes);
            let opened = open::last_part(&config, &policy, &mut given);
            let opened = opened.map_err(|error| unusable(line_of(&error)))?;
            if as_it_is.is_some() {
                // Somebody has cut it; what is written behind its end by now is not to stay.
                to_cut = behind(opened.bytes(), served);
            }
            Ok((opened, to_cut))
        };
        let (actor, name) = (self.actor.clone(), source.clone());
        let follow = move |manager: &mut Self, opened: Result<Fitted, ManageError>| {
            manager.begin(actor);
            match opened.and_then(|(opened, cut)| {
                let to_cut = resize.to_cut(cut);
                Ok((manager.serve_again(resize, opened, cut)?, to_cut))
            }) {
                Ok((changed, Some(to_cut))) => manager.cut_then(to_cut, changed, then),
                Ok((Changed { before, left }, None)) => {
                    let closing = left.map(|_| format!(
                        "operations of {name} as it was before are still under way: its store has not answered them"
                    ));
                    then(manager, Ok((before, closing)));
                }
                Err(error) => then(manager, Err(error)),
            }
            manager.end();
        };
        self.errand_then(source, RESIZE_TIME_MAX, Some(uuid), work, follow);
    }

    /// Cuts a file: hosts see the new end already, and nobody reads or writes behind it, but for what was under way. That it is not cut is no reason to take the
    /// change back: it is kept that it is to be.
    fn cut_then(
        &mut self,
        to_cut: ToCut,
        changed: Changed,
        then: impl FnOnce(&mut Self, Result<Resized, ManageError>) + Send + 'static,
    ) {
        let (path, bytes, held) = (to_cut.path.clone(), to_cut.cut.to, to_cut.held.clone());
        let source = format!("file:{}", path.display());
        let set_size = self.set_size;
        let work = move |_: &_| {
            let _held = held;
            set_len(&path, bytes, set_size)
        };
        let actor = self.actor.clone();
        let follow = move |manager: &mut Self, cut: Result<(), ManageError>| {
            manager.begin(actor);
            let failed = cut.err().map(|error| {
                let text = format!(
                    "{error}; hosts see the new size, and nothing else is made of the file before it is cut: ask for this size again"
                );
                tracing::error!("{text}");
                text
            });
            let Changed { before, left } = changed;
            let closing = manager.cut_once(to_cut, failed.is_none(), left);
            then(manager, Ok((before, failed.or(closing))));
            manager.end();
        };
        self.errand_then(source, RESIZE_TIME_MAX, None, work, follow);
    }

    /// A file has been cut, or could not be. Where operations are left it is to be cut once more; returns that.
    fn cut_once(&mut self, cut: ToCut, is_made: bool, left: Option<Closing>) -> StillClosing {
        let ToCut {
            nqn,
            nsid,
            source,
            path,
            cut,
            held,
        } = cut;
        let Some(operations) = left else {
            if is_made {
                self.cut_is_made(&nqn, nsid);
            }
            return None;
        };
        let again = CutAgain {
            nqn,
            nsid,
            source,
            path,
            cut,
            operations,
            held,
        };
        let why = again.why();
        self.cut_later(again);
        Some(why)
    }

    /// The same, waiting for it.
    ///
    /// # Errors
    /// [`ManageError`].
    #[cfg(test)]
    pub fn resize(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
        size: NewSize,
        force: bool,
    ) -> Result<Resized, ManageError> {
        let (tell, told) = std::sync::mpsc::channel();
        self.resize_then(nqn, nsid, size, force, move |_, resized| {
            tell.send(resized).unwrap();
        });
        self.wait_for_openings();
        told.recv().unwrap()
    }

    /// That no thread may still change the size of a source.
    pub(super) fn check_resizing(
        &self,
        source: &SourceSpec,
        nodes: &Nodes,
    ) -> Result<(), ManageError> {
        let is_same = |it: &&Resizing| {
            let is_under_way = it.under_way.strong_count() > 0;
            is_under_way && (it.source == *source || it.nodes.meet(nodes))
        };
        match self.resizing.iter().find(is_same) {
            None => Ok(()),
            Some(it) => {
                let text = format!(
                    "the size of {} is being changed; ask again when that has ended",
                    it.source
                );
                Err(ManageError::new(Reason::SourceClosing, text))
            }
        }
    }

    fn check_resize(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
        size: NewSize,
        force: bool,
    ) -> Result<Resize, ManageError> {
        self.may_change()?;
        self.resizing.retain(|it| it.under_way.strong_count() > 0);
        let mut config = self.namespace_config(nqn, nsid)?.clone();
        self.check_resizing(&config.source, &Nodes::default())
            .map_err(|error| error.of_namespace(nqn, nsid))?;
        let old = self.live.served(nqn, nsid).cloned().ok_or_else(|| {
            ManageError::new(Reason::NotServed, format!(
                "namespace {nsid} of {nqn} is not served: what stands behind it cannot be opened"
            ))
            .of_namespace(nqn, nsid)
        })?;
        self.frontend
            .may_resize(nqn, nsid)
            .map_err(|why| ManageError::new(Reason::Size, why).of_namespace(nqn, nsid))?;
        let before_last = first_byte_of_last_part(&old);
        let served = old.bytes();
        let (mut wanted, mut as_it_is) = (None, None);
        let is_mixed = matches!(config.source, SourceSpec::Mixed { .. });
        match config.source.last_part_mut() {
            Some(SourceSpec::Remote { .. }) => {
                return Err(ManageError::new(
                    Reason::Size,
                    "this namespace is in another machine, which alone can give it another size"
                        .to_owned(),
                ));
            }
            Some(SourceSpec::Array { .. }) => {
                return Err(ManageError::new(
                    Reason::Size,
                    "this namespace is several stores as one, which have the size that they were opened with"
                        .to_owned(),
                ));
            }
            None
            | Some(
                SourceSpec::Volume { .. }
                | SourceSpec::RemoteVolume { .. }
                | SourceSpec::ArrayVolume { .. }
                | SourceSpec::Mixed { .. },
            ) => {
                let what = if is_mixed {
                    "the last part of this mixed namespace is a view, and only the last part can have another size: what lies behind another one would move"
                } else {
                    "this namespace is a view"
                };
                let text =
                    format!("{what}; the size of a view is its volume's; pack another volume");
                return Err(ManageError::new(Reason::Size, text));
            }
            Some(SourceSpec::Store { spec, lba_bytes }) => match (spec, size) {
                (StoreSpec::File { path }, NewSize::Bytes(bytes)) => {
                    whole_blocks(bytes, *lba_bytes)?;
                    if i64::try_from(bytes).is_err() {
                        return Err(ManageError::field("bytes", "no file has 8 EiB or more"));
                    }
                    may_shrink(served, bytes, force)?;
                    wanted = Some(Wanted {
                        path: path.clone(),
                        bytes: of_last_part(bytes, before_last)?,
                        served: served - before_last,
                        force,
                    });
                }
                (StoreSpec::File { path }, NewSize::Rescan) => as_it_is = Some(path.clone()),
                (
                    StoreSpec::Null { bytes: now } | StoreSpec::Void { bytes: now },
                    NewSize::Bytes(bytes),
                ) => {
                    whole_blocks(bytes, *lba_bytes)?;
                    may_shrink(served, bytes, force)?;
                    *now = of_last_part(bytes, before_last)?;
                }
                (StoreSpec::Mem { .. }, NewSize::Bytes(_)) => {
                    return Err(ManageError::new(
                        Reason::Size,
                        "memory keeps its size as long as it is attached; attach another one"
                            .to_owned(),
                    ));
                }
                (
                    StoreSpec::Null { .. } | StoreSpec::Void { .. } | StoreSpec::Mem { .. },
                    NewSize::Rescan,
                ) => {
                    return Err(ManageError::new(
                        Reason::Size,
                        "only files and block devices can have changed by themselves; name a size"
                            .to_owned(),
                    ));
                }
            },
        }
        Ok(Resize {
            nqn: nqn.clone(),
            config,
            old,
            wanted,
            as_it_is,
            force,
            under_way: Arc::new(()),
        })
    }

    fn serve_again(
        &mut self,
        resize: Resize,
        last: Namespace,
        to_cut: Option<Cut>,
    ) -> Result<Changed, ManageError> {
        let Resize {
            nqn,
            mut config,
            old,
            wanted,
            force,
            ..
        } = resize;
        self.may_change()?;
        let now = self.live.served(&nqn, config.nsid);
        if !now.is_some_and(|now| Arc::ptr_eq(now, &old)) {
            let text = format!(
                "namespace {} of {nqn} was changed meanwhile; look, and ask again",
                config.nsid
            );
            return Err(ManageError::new(Reason::NotServed, text).of_namespace(&nqn, config.nsid));
        }
        let before = old.bytes();
        let name = config.source.to_string();
        let again = old.with_last_part(last, name);
        let again = again.map_err(|error| unusable(error.to_string()))?;
        // It is the same disk, and known as that.
        let mut namespace = again.succeeding(&old);
        if let Some(wanted) = wanted {
            // The file may have more.
            let bytes = first_byte_of_last_part(&namespace) + wanted.bytes;
            let blocks = bytes / u64::from(namespace.lba_bytes);
            namespace = namespace.limited_to(blocks);
        }
        may_shrink(before, namespace.bytes(), force)?;
        if namespace.bytes() == before {
            // What was to be cut before has been.
            self.cut_is_made(&nqn, config.nsid);
            let left = None;
            return Ok(Changed { before, left });
        }
        config.cut = to_cut;
        let namespace = Arc::new(namespace);
        let text = format!("has {} bytes now, it had {before}", namespace.bytes());
        let news = news(NamespaceChange::Resized, &nqn, &namespace, &text);
        let next = self.with_subsystem(&nqn, |it| {
            it.namespaces.insert(config.nsid, config);
        })?;
        let left = match self.commit(next, Step::Replace(nqn, namespace), vec![news])? {
            Closed::Done => None,
            Closed::Later(left) => Some(left),
        };
        Ok(Changed { before, left })
    }
}

/// That a path still leads to what is served: hosts that use it must not be given another disk under its name.
fn same_file(source: &SourceSpec, nodes: &Nodes) -> Result<(), ManageError> {
    if nodes.is_empty() || Nodes::of(source) == *nodes {
        return Ok(());
    }
    let text = format!(
        "{source} no longer leads to the file that is served; put that one back, or detach the namespace and attach the new one"
    );
    Err(ManageError::new(Reason::SourceUnusable, text))
}

/// Where the last part of a mixed namespace begins: the size of that part alone can change. Of any other, 0.
fn first_byte_of_last_part(namespace: &Namespace) -> u64 {
    namespace
        .bytes()
        .saturating_sub(last_part(namespace).bytes())
}

fn last_part(namespace: &Namespace) -> &Namespace {
    namespace.parts().last().unwrap_or(namespace)
}

/// What is left for the last part of so many bytes.
fn of_last_part(bytes: u64, before_it: u64) -> Result<u64, ManageError> {
    match bytes.checked_sub(before_it) {
        Some(left @ 1..) => Ok(left),
        _ => Err(ManageError::new(
            Reason::Size,
            format!(
                "the parts before the last one have {before_it} bytes, and keep them; take more than that"
            ),
        )),
    }
}

fn whole_blocks(bytes: u64, lba_bytes: u32) -> Result<(), ManageError> {
    if bytes > BYTES_MAX {
        return Err(ManageError::field("bytes", "the size is over 8 EiB"));
    }
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

/// Makes a file as long as is wanted, or finds out that it is to be cut, later. A block device must have the size.
fn fit(wanted: &Wanted, set_size: SetSize) -> Result<Option<Cut>, ManageError> {
    let Wanted {
        path,
        bytes,
        served,
        force,
    } = wanted;
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
        if has != *bytes {
            return Err(ManageError::new(
                Reason::Size,
                format!(
                    "{} is a block device of {has} bytes, and served whole; rescan it",
                    path.display()
                ),
            ));
        }
        return Ok(None);
    }
    let has = metadata.len();
    if has < *bytes {
        return set_len(path, *bytes, set_size).map(|()| None);
    }
    // What is there beyond what hosts see was put there by somebody: what was to be cut off has been.
    if has == *bytes {
        return settle(path).map(|()| behind(*bytes, *served));
    }
    if bytes == served {
        return Ok(None);
    }
    if !force {
        return Err(ManageError::new(
            Reason::Shrinks,
            format!(
                "{} has {has} bytes, and what is behind {bytes} would be cut off: rescan to serve all of it, or force it if that is meant",
                path.display()
            ),
        ));
    }
    Ok(Some(Cut {
        from: has.max(*served),
        to: *bytes,
    }))
}

/// What writes under way may still put behind the end of a file that has been cut already.
fn behind(bytes: u64, served: u64) -> Option<Cut> {
    (bytes < served).then_some(Cut {
        from: served,
        to: bytes,
    })
}

/// The size that somebody has given a file, or a change of size that ended before it was synced, outlasts power from now on: hosts are about to be told of it.
fn settle(path: &Path) -> Result<(), ManageError> {
    store::settle_file_size(path).map_err(|error| {
        ManageError::new(
            Reason::SourceUnusable,
            format!(
                "the size of {} cannot be made durable: {error}",
                path.display()
            ),
        )
    })
}

fn set_len(path: &Path, bytes: u64, set_size: SetSize) -> Result<(), ManageError> {
    set_size(path, bytes).map_err(|error| {
        let what_to_do = match error.kind() {
            ErrorKind::FileTooLarge => {
                "; its file system, or the daemon's limit (ulimit -f), takes no file of this size: take a smaller one"
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; make room in its file system",
            _ => "",
        };
        let text = format!(
            "{} cannot be made {bytes} bytes long: {error}{what_to_do}",
            path.display()
        );
        ManageError::new(Reason::SourceUnusable, text)
    })
}
