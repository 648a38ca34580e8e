//! Raw namespaces get another size.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use admin_proto::v1::{NamespaceChange, Reason};
use frontend_nvme_tcp::Closed;
use namespace::Namespace;
use nvme::nqn::Nqn;
use store::StoreSpec;

use super::namespaces::news;
use super::opening::Opened;
use super::steps::Step;
use super::{ManageError, Manager, StillClosing};
use crate::config::{NamespaceConfig, SourceSpec};

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
    /// A file that is cut when hosts were told, to so many bytes.
    cut: Option<(PathBuf, u64)>,
    force: bool,
}

impl Manager {
    /// Gives a raw namespace another size; `then` hears the one before, in bytes, and what the change left, or why there is none: a smaller size must be forced.
    /// A file is grown before hosts are told, and cut, if forced, after: what fails in between leaves a file that is longer than what is served of it. Other
    /// requests are carried out while the source is opened again.
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
        let (config, uuid) = (resize.config.clone(), resize.old.identity.uuid);
        let actor = self.actor.clone();
        let resize = move |manager: &mut Self, opened: Result<Opened, ManageError>| {
            manager.begin(actor);
            let resized = opened.and_then(|opened| manager.serve_again(resize, opened));
            then(manager, resized);
            manager.end();
        };
        self.open_then(&config, Some(uuid), Box::new(resize));
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

    fn check_resize(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
        size: NewSize,
        force: bool,
    ) -> Result<Resize, ManageError> {
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
        Ok(Resize {
            nqn: nqn.clone(),
            config,
            old,
            cut,
            force,
        })
    }

    fn serve_again(&mut self, resize: Resize, opened: Opened) -> Result<Resized, ManageError> {
        let Resize {
            nqn,
            config,
            old,
            cut,
            force,
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
        // It is the same disk, and known as that.
        let mut namespace = opened.namespace.succeeding(&old);
        if let Some((_, bytes)) = &cut {
            namespace.blocks = bytes / u64::from(namespace.lba_bytes);
        }
        may_shrink(before, namespace.bytes(), force)?;
        if namespace.bytes() == before {
            return Ok((before, None));
        }
        let namespace = Arc::new(namespace);
        let text = format!("has {} bytes now, it had {before}", namespace.bytes());
        let news = news(NamespaceChange::Resized, &nqn, &namespace, &text);
        let next = self.with_subsystem(&nqn, |it| {
            it.namespaces.insert(config.nsid, config);
        })?;
        let closed = self.commit(next, Step::Replace(nqn, namespace), vec![news])?;
        if let Some((path, bytes)) = cut {
            // Hosts see the new end already; nobody reads or writes behind it.
            set_len(&path, bytes)?;
        }
        let closing = match closed {
            Closed::Done => None,
            Closed::Later(_) => Some(format!(
                "operations of {} as it was before are still under way: its store has not answered them",
                old.name
            )),
        };
        Ok((before, closing))
    }
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
