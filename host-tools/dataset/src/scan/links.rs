//! Where symbolic links lead on the disk.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::source::attributes;
use super::unfit::Unfit;
use super::{Kind, Scan, joined, real};
use crate::names::listed;
use crate::{DatasetError, items};

/// What a disk is made of: where each input really is, and what the disk calls it.
#[derive(Debug, Default)]
pub struct Roots(Vec<(PathBuf, Vec<u8>)>);

impl Roots {
    /// A folder alone, whose contents are the disk's root.
    ///
    /// # Errors
    /// [`DatasetError::Io`].
    pub fn of_folder(folder: &Path) -> Result<Roots, DatasetError> {
        let mut roots = Roots::default();
        roots.add(folder, Vec::new())?;
        Ok(roots)
    }

    pub(super) fn add(&mut self, input: &Path, name: Vec<u8>) -> Result<(), DatasetError> {
        self.0.push((real(input)?, name));
        Ok(())
    }

    /// Where the link at `at`, which the disk calls `path`, leads there: `target` leads out of the disk, by an absolute path or one above the root, and to
    /// something in the inputs. `None`: it leads where it did.
    ///
    /// # Errors
    /// [`DatasetError::Io`], also where the link leads nowhere.
    pub fn target_on_disk(
        &self,
        at: &Path,
        path: &[u8],
        target: &[u8],
    ) -> Result<Option<Vec<u8>>, DatasetError> {
        let (parent, _) = items::split(path);
        if !leaves_the_disk(parent, target) {
            return Ok(None);
        }
        let within = self.within(&real(at)?);
        Ok(within.map(|within| relative(parent, &within)))
    }

    /// What the disk calls something, by where it really is.
    fn within(&self, real: &Path) -> Option<Vec<u8>> {
        self.0.iter().find_map(|(root, name)| {
            let below = real.strip_prefix(root).ok()?;
            Some(match below.as_os_str() {
                below if below.is_empty() => name.clone(),
                below => joined(name, below),
            })
        })
    }
}

impl Scan {
    /// Links that lead out become what they lead to, if that is a file; the others get to know their file.
    pub(super) fn follow_links(&mut self) -> Result<(), DatasetError> {
        let inside = self.files.len();
        let first_note = self.notes.len();
        let mut taken: Vec<String> = Vec::new();
        for (index, at) in std::mem::take(&mut self.links) {
            let about = fs::metadata(&at).ok();
            let known = about.as_ref().and_then(|about| {
                let place = (about.dev(), about.ino());
                let known = self.known.get(&place).copied();
                known.filter(|id| (id.0 as usize) < inside)
            });
            let within = match &about {
                Some(_) => self.roots.within(&real(&at)?),
                None => None,
            };
            // By itself, or by a folder that it is in.
            let is_excluded = within.as_deref().is_some_and(|it| self.excluded.fits(it));
            let leads_out = match &about {
                None => Some("leads nowhere"),
                Some(_) if is_excluded => Some("leads to what --exclude leaves out"),
                Some(about) if about.is_dir() => {
                    let inside = self.directories.contains(&(about.dev(), about.ino()));
                    (!inside).then_some("leads to a folder that is not among the inputs")
                }
                Some(about) if about.is_file() => None,
                Some(_) => Some("leads to something that no disk holds"),
            };
            let outside = match about {
                Some(about) if known.is_none() && !is_excluded && about.is_file() => Some(about),
                _ => None,
            };
            let shown = self.entries.get(index).map(|entry| entry.path.clone());
            let unfit = |about: &Metadata| Unfit::of(&at, shown.as_deref()?, about);
            if let Some(unfit) = outside.as_ref().and_then(unfit) {
                self.unfit.push(unfit);
                continue;
            }
            let followed = outside
                .map(|about| {
                    Ok::<_, DatasetError>((self.file_id(&real(&at)?, &about)?, attributes(&about)))
                })
                .transpose()?;
            let Some(entry) = self.entries.get_mut(index) else {
                continue;
            };
            let shown = entry.shown();
            if let Some((file, attributes)) = followed {
                entry.kind = Kind::File(file);
                entry.attributes = attributes;
                taken.push(shown.clone());
            } else if let Kind::Symlink { target, file } = &mut entry.kind {
                *file = known;
                if leads_out.is_none()
                    && let Some(there) = self.roots.target_on_disk(&at, &entry.path, target)?
                {
                    let was = erofs::shown(target);
                    *target = there;
                    let now = erofs::shown(target);
                    self.notes.push(format!(
                        "{shown}: a link to {was}, which would lead nowhere on the disk; it leads to {now} there"
                    ));
                }
            }
            if let Some(why) = leads_out {
                self.notes
                    .push(format!("{shown}: a link that {why}; it is kept as it is"));
            }
        }
        self.notes_of_links = first_note..self.notes.len();
        let count = taken.len();
        let names = listed(taken, ", ");
        match count {
            0 => {}
            1 => self.notes.push(format!(
                "1 link leads to a file outside the inputs ({names}): the disk has that file"
            )),
            several => self.notes.push(format!(
                "{several} links lead to files outside the inputs ({names}): the disk has these files"
            )),
        }
        Ok(())
    }
}

/// The way from a directory to something, both from the root on.
fn relative(directory: &[u8], to: &[u8]) -> Vec<u8> {
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        let names = path.split(|&byte| byte == b'/');
        names
            .filter(|name| !name.is_empty())
            .map(<[u8]>::to_vec)
            .collect()
    };
    let (from, to) = (names(directory), names(to));
    let same = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = from.iter().skip(same).map(|_| b"..".to_vec());
    let way: Vec<Vec<u8>> = up.chain(to.into_iter().skip(same)).collect();
    match way.as_slice() {
        [] => b".".to_vec(),
        way => way.join(&b'/'),
    }
}

/// Whether a link in the directory `parent` leads out of the disk, wherever that is mounted: by an absolute path, or by one above the root.
fn leaves_the_disk(parent: &[u8], target: &[u8]) -> bool {
    let folders = parent.split(|&byte| byte == b'/');
    let mut depth = folders.filter(|name| !name.is_empty()).count();
    for name in target.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." if depth == 0 => return true,
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    target.starts_with(b"/")
}
