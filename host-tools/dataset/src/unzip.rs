//! MDS datasets whose shards are compressed, as they would be without: raw shards, and an index that says so.
//!
//! MosaicML streaming writes `shard.00000.mds.zstd` where its writer is told to compress, and its readers decompress each shard to a file of their own before they read
//! it (`streaming/base/stream.py`). What lies in that file is put into the scan in the place of the compressed shard, so that everything that comes after takes the dataset for
//! one that was never compressed. Size and hashes of each raw shard have to be those that the index names.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bzip2::read::MultiBzDecoder;
use flate2::read::MultiGzDecoder;
use formats::{Format, Part, mds};
use sha2::{Digest, Sha256};

use crate::DatasetError;
use crate::hash::NamedHash;
use crate::items::split;
use crate::paths::Paths;
use crate::scan::{Entry, FileId, Kind, Origin, Scan, SourceFile};
use crate::zstd::ZstdReader;

/// The name by which streaming finds an index.
const INDEX_NAME: &[u8] = b"index.json";

/// What was decompressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unzipped {
    /// How many shards.
    pub shards: u64,
    /// Bytes of the compressed shards.
    pub zip_bytes: u64,
    /// Bytes of the raw ones.
    pub raw_bytes: u64,
}

/// Puts the raw shards of every compressed MDS dataset in the place of the compressed ones, and an index that names them in that of its index. `spool` is an empty folder with room for all raw
/// shards; it has to stay until the scan is no longer read. `on_progress` is told how many raw bytes there are by now.
///
/// # Errors
/// An index that names shards that are not there, or twice; a compression that is not known; shards that do not become what the index says; files that cannot be read or written.
pub fn unzip(
    scan: &mut Scan,
    spool: &Path,
    on_progress: &mut dyn FnMut(u64),
) -> Result<Unzipped, DatasetError> {
    let mut done = Unzipped::default();
    let indexes = zipped_indexes(scan)?;
    let shards = Shards::of(scan, &indexes)?;
    for (place, shard) in &shards.list {
        shard.unzip(scan, *place, spool, &mut done, on_progress)?;
    }
    shards.rename(scan);
    let mut rewritten = HashSet::new();
    for index in &indexes {
        if rewritten.insert(index.id) {
            index.rewrite(scan, spool)?;
        }
    }
    Ok(done)
}

/// The file that an entry is, and not one that it links to.
fn regular(entry: &Entry) -> Option<FileId> {
    match entry.kind {
        Kind::File(id) => Some(id),
        Kind::Directory | Kind::Symlink { .. } => None,
    }
}

/// Every name of an index of compressed shards. One with a name that is a link alone is taken for no dataset: its shards are links, too.
fn zipped_indexes(scan: &Scan) -> Result<Vec<Zipped>, DatasetError> {
    let named = scan.entries.iter().filter(|it| it.name() == INDEX_NAME);
    let named: Vec<(&Entry, FileId)> = named.filter_map(|it| Some((it, it.file()?))).collect();
    let files: HashSet<FileId> = named.iter().filter_map(|it| regular(it.0)).collect();
    let mut indexes = Vec::new();
    for (entry, id) in named.iter().filter(|it| files.contains(&it.1)) {
        if let Some(index) = zipped_index(scan, *id)? {
            indexes.push(Zipped {
                folder: entry.parent().to_owned(),
                id: *id,
                index,
            });
        }
    }
    Ok(indexes)
}

/// The index in this file, where it is one, and names compressed shards.
fn zipped_index(scan: &Scan, id: FileId) -> Result<Option<mds::Index>, DatasetError> {
    let Some(file) = scan.file(id) else {
        return Ok(None);
    };
    let open = file.open()?;
    // What is malformed is told where files are recognised.
    if !formats::describe(&open).is_ok_and(|it| it.format == Format::MdsIndex) {
        return Ok(None);
    }
    let index = mds::Index::read(&open).map_err(|error| DatasetError::format(&file.path, error))?;
    open.check()?;
    let is_zipped = index.shards().iter().any(|shard| shard.zip.is_some());
    Ok(is_zipped.then_some(index))
}

/// A folder with an index of compressed shards.
struct Zipped {
    folder: Vec<u8>,
    id: FileId,
    index: mds::Index,
}

impl Zipped {
    fn path_of(&self, name: &str) -> Vec<u8> {
        let mut path = self.folder.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        path
    }

    fn refused(&self, why: String) -> DatasetError {
        let index = self.path_of("index.json");
        let why = format!("{why}, or leave out --unzip");
        DatasetError::refused(String::from_utf8_lossy(&index), why)
    }

    /// The compressed file of that name, and where its entry is.
    fn zip_file(
        &self,
        scan: &Scan,
        paths: &Paths<'_>,
        name: &str,
    ) -> Result<(usize, FileId), DatasetError> {
        let found = paths.file_from(&self.folder, name.as_bytes());
        let is_file = |place: usize| scan.entries.get(place).and_then(regular).is_some();
        let Some((place, id)) = found.filter(|it| is_file(it.0)) else {
            let why = format!("names the shard {name}, which is not there as a file: fetch it");
            return Err(self.refused(why));
        };
        let names = scan.entries.iter().filter(|it| it.file() == Some(id));
        if names.count() > 1 {
            let why = format!(
                "names the shard {name}, which has other names too: a link to a compressed shard leads to none when the shard is presented raw: take the others out"
            );
            return Err(self.refused(why));
        }
        Ok((place, id))
    }

    /// The path that the raw shard gets, beside the compressed one at `zip_path`.
    fn raw_path(
        &self,
        scan: &Scan,
        zip_path: &[u8],
        shard: &mds::ShardEntry,
    ) -> Result<Vec<u8>, DatasetError> {
        let zip_name = shard.zip.as_ref().map(|zip| zip.basename.as_str());
        let (zip_folder, _) = split(zip_name.unwrap_or_default().as_bytes());
        let raw_name = shard.raw.basename.as_str();
        let (raw_folder, name) = split(raw_name.as_bytes());
        let is_plain = !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
        if !is_plain || name.len() > NAME_BYTES_MAX || raw_folder != zip_folder {
            let why = format!(
                "names a raw shard {raw_name:?}, which is no file name beside the compressed one: mend it"
            );
            return Err(self.refused(why));
        }
        let folder = split(zip_path).0;
        let slash = if folder.is_empty() { &b""[..] } else { b"/" };
        let path = [folder, slash, name].concat();
        if scan.entries.iter().any(|it| it.path == path) {
            let why = format!(
                "names the raw shard {raw_name}, which is there already, beside the compressed one: take one of them out"
            );
            return Err(self.refused(why));
        }
        Ok(path)
    }

    /// The index in which every shard is raw.
    fn rewrite(&self, scan: &mut Scan, spool: &Path) -> Result<(), DatasetError> {
        let Some(file) = scan.file(self.id) else {
            return Ok(());
        };
        let failed = |error| DatasetError::format(&file.path, error);
        let presented = self.index.present(&vec![None; self.index.shards().len()]);
        let presented = presented.map_err(failed)?;
        let source = fs::read(&file.path);
        let source = source.map_err(|error| DatasetError::io("reading", &file.path, error))?;
        let origin = Origin {
            path: self.path_of("index.json"),
            bytes: source.len() as u64,
            sha256: Sha256::digest(&source).into(),
        };
        let spooled = spooled(spool, &self.path_of("index.json"))?;
        let text = presented.parts().iter().find_map(|part| match part {
            Part::New(text) => Some(text.as_slice()),
            _ => None,
        });
        fs::write(&spooled, text.unwrap_or(&source))
            .map_err(|error| DatasetError::io("writing", &spooled, error))?;
        replace(scan, self.id, &spooled, origin)
    }
}

/// The compressed shards of all indexes, by the places of their names, each once: a merged index names those of others.
struct Shards<'a> {
    list: BTreeMap<usize, Shard<'a>>,
}

struct Shard<'a> {
    id: FileId,
    raw_path: Vec<u8>,
    entry: &'a mds::ShardEntry,
}

impl<'a> Shards<'a> {
    fn of(scan: &Scan, indexes: &'a [Zipped]) -> Result<Shards<'a>, DatasetError> {
        let paths = Paths::new(scan);
        let mut list: BTreeMap<usize, Shard<'a>> = BTreeMap::new();
        let mut raw_paths = HashSet::new();
        for index in indexes {
            for entry in index.index.shards() {
                let Some(zip) = &entry.zip else { continue };
                let (place, id) = index.zip_file(scan, &paths, &zip.basename)?;
                let zip_path = scan.entries.get(place).map(|it| it.path.as_slice());
                let raw_path = index.raw_path(scan, zip_path.unwrap_or_default(), entry)?;
                let shard = Shard {
                    id,
                    raw_path,
                    entry,
                };
                if let Some(before) = list.get(&place) {
                    if !before.is_same(&shard) {
                        let why = format!(
                            "says other things of the shard {} than another index, or says it twice: mend one of them",
                            zip.basename
                        );
                        return Err(index.refused(why));
                    }
                    continue;
                }
                if !raw_paths.insert(shard.raw_path.clone()) {
                    let why = format!(
                        "names the raw shard {} for two compressed ones: mend it",
                        entry.raw.basename
                    );
                    return Err(index.refused(why));
                }
                list.insert(place, shard);
            }
        }
        Ok(Shards { list })
    }

    /// Raw shards have raw names. Those of a directory stand in the order of their bytes.
    fn rename(&self, scan: &mut Scan) {
        for (place, shard) in &self.list {
            if let Some(entry) = scan.entries.get_mut(*place) {
                entry.path.clone_from(&shard.raw_path);
            }
        }
        let is_beside = |a: &Entry, b: &Entry| !a.path.is_empty() && a.parent() == b.parent();
        for siblings in scan.entries.chunk_by_mut(is_beside) {
            siblings.sort_by(|a, b| a.path.cmp(&b.path));
        }
    }
}

impl Shard<'_> {
    /// Whether two indexes say the same of it.
    fn is_same(&self, other: &Shard<'_>) -> bool {
        let said = |it: &Shard<'_>| {
            let raw = &it.entry.raw;
            (raw.bytes, raw.hashes.clone(), it.entry.compression.clone())
        };
        self.raw_path == other.raw_path && said(self) == said(other)
    }

    fn unzip(
        &self,
        scan: &mut Scan,
        place: usize,
        spool: &Path,
        done: &mut Unzipped,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<(), DatasetError> {
        let zip_path = scan.entries.get(place).map(|it| it.path.clone());
        let Some((file, zip_path)) = scan.file(self.id).zip(zip_path) else {
            return Ok(());
        };
        let spooled = spooled(spool, &self.raw_path)?;
        let origin = Unzip {
            file,
            path: zip_path,
            shard: self.entry,
            spooled: &spooled,
        }
        .run(&mut |bytes| on_progress(done.raw_bytes + bytes))?;
        done.shards += 1;
        done.zip_bytes += origin.bytes;
        done.raw_bytes += self.entry.raw.bytes;
        replace(scan, self.id, &spooled, origin)
    }
}

/// Where a file of this path is put in the spool. Its folder is made.
fn spooled(spool: &Path, path: &[u8]) -> Result<PathBuf, DatasetError> {
    let spooled = spool.join(OsStr::from_bytes(path));
    let folder = spooled.parent().unwrap_or(spool);
    fs::create_dir_all(folder).map_err(|error| DatasetError::io("making", folder, error))?;
    Ok(spooled)
}

fn replace(scan: &mut Scan, id: FileId, by: &Path, origin: Origin) -> Result<(), DatasetError> {
    let unzipped = SourceFile::unzipped(by, origin)?;
    if let Some(file) = scan.files.get_mut(id.0 as usize) {
        *file = unzipped;
    }
    Ok(())
}

/// Of a name in a directory (`NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;
/// What is decompressed at a time.
const PIECE_BYTES: usize = 1 << 20;

/// One shard on its way.
struct Unzip<'a> {
    /// The compressed file, and what the scan calls it.
    file: &'a SourceFile,
    path: Vec<u8>,
    shard: &'a mds::ShardEntry,
    spooled: &'a Path,
}

impl Unzip<'_> {
    /// Writes the raw shard; says what it was made of.
    fn run(self, on_bytes: &mut dyn FnMut(u64)) -> Result<Origin, DatasetError> {
        let open = self.file.open()?;
        let mut zip = Counted::new(&open.file);
        let raw = &self.shard.raw;
        let mut hashes: Vec<_> = raw
            .hashes
            .iter()
            .filter_map(|(name, wanted)| Some((NamedHash::new(name)?, name, wanted)))
            .collect();
        let writing = |error| DatasetError::io("writing", self.spooled, error);
        let mut spool = BufWriter::new(File::create_new(self.spooled).map_err(writing)?);
        let mut decoder = self.decoder(&mut zip)?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut bytes = 0;
        loop {
            let read = decoder.read(&mut piece);
            let read =
                read.map_err(|error| self.damaged(format!("cannot be decompressed: {error}")))?;
            let Some(piece) = piece.get(..read).filter(|piece| !piece.is_empty()) else {
                break;
            };
            bytes += read as u64;
            if bytes > raw.bytes {
                return Err(self.damaged(format!(
                    "becomes longer than the {} bytes that the index says",
                    raw.bytes
                )));
            }
            hashes.iter_mut().for_each(|(hash, ..)| hash.update(piece));
            spool.write_all(piece).map_err(writing)?;
            on_bytes(bytes);
        }
        drop(decoder);
        spool
            .into_inner()
            .map_err(|error| writing(error.into_error()))?;
        if bytes != raw.bytes {
            return Err(self.damaged(format!(
                "becomes {bytes} bytes; the index says {}",
                raw.bytes
            )));
        }
        for (hash, name, wanted) in hashes {
            let found = hash.finish();
            if found != *wanted {
                return Err(self.damaged(format!(
                    "becomes bytes whose {name} is {found}; the index says {wanted}"
                )));
            }
        }
        open.check()?;
        let (bytes, sha256) = zip
            .finish()
            .map_err(|error| DatasetError::io("reading", &self.file.path, error))?;
        Ok(Origin {
            path: self.path,
            bytes,
            sha256,
        })
    }

    fn decoder<'r>(&self, zip: &'r mut Counted<'_>) -> Result<Box<dyn Read + 'r>, DatasetError> {
        let said = self.shard.compression.as_deref().unwrap_or_default();
        let algorithm = said.split_once(':').map_or(said, |(name, _)| name);
        Ok(match algorithm {
            "zstd" => {
                Box::new(ZstdReader::new(zip).map_err(|error| self.damaged(error.to_string()))?)
            }
            "gz" => Box::new(MultiGzDecoder::new(zip)),
            "bz2" => Box::new(MultiBzDecoder::new(zip)),
            _ => {
                let why = format!(
                    "is compressed with {said:?}; zstd, gz and bz2 can be unzipped here: decompress it with streaming, or leave out --unzip"
                );
                return Err(DatasetError::refused(self.file.path.display(), why));
            }
        })
    }

    fn damaged(&self, why: String) -> DatasetError {
        DatasetError::data(self.file.path.display(), why)
    }
}

/// The compressed file, counted and digested as it is read.
struct Counted<'a> {
    file: BufReader<&'a File>,
    bytes: u64,
    hash: Sha256,
}

impl<'a> Counted<'a> {
    fn new(file: &'a File) -> Counted<'a> {
        Counted {
            file: BufReader::new(file),
            bytes: 0,
            hash: Sha256::new(),
        }
    }

    /// Length and SHA-256, to the file's end.
    fn finish(mut self) -> io::Result<(u64, [u8; 32])> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((self.bytes, self.hash.finalize().into()))
    }
}

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.hash.update(into.get(..read).unwrap_or_default());
        self.bytes += read as u64;
        Ok(read)
    }
}
