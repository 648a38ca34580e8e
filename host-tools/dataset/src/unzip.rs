//! MDS datasets whose shards are compressed, as they would be without: raw shards, and an index that says so.
//!
//! MosaicML streaming writes `shard.00000.mds.zstd` where its writer is told to compress, and its readers decompress each shard to a file of their own before they read
//! it (`streaming/base/stream.py`). What lies in that file is put into the scan in the place of the compressed shard, so that everything that comes after takes the dataset for
//! one that was never compressed. Size and hashes of each raw shard have to be those that the index names.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use bzip2::read::MultiBzDecoder;
use flate2::read::MultiGzDecoder;
use formats::{Format, Part, mds};
use sha2::{Digest, Sha256};

use crate::DatasetError;
use crate::hash::NamedHash;
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
    let indexes: Vec<(Vec<u8>, FileId)> = scan
        .entries
        .iter()
        .filter(|entry| entry.name() == INDEX_NAME)
        .filter_map(|entry| Some((entry.parent().to_owned(), regular(entry)?)))
        .collect();
    for (number, (folder, id)) in indexes.into_iter().enumerate() {
        let Some(index) = zipped_index(scan, id)? else {
            continue;
        };
        let spool = spool.join(number.to_string());
        fs::create_dir(&spool).map_err(|error| DatasetError::io("making", &spool, error))?;
        let mut dataset = Dataset {
            scan,
            folder,
            spool,
        };
        for shard in index.shards() {
            dataset.shard(shard, &mut done, on_progress)?;
        }
        dataset.index(id, &index)?;
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
struct Dataset<'a> {
    scan: &'a mut Scan,
    folder: Vec<u8>,
    spool: PathBuf,
}

impl Dataset<'_> {
    fn shard(
        &mut self,
        shard: &mds::ShardEntry,
        done: &mut Unzipped,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<(), DatasetError> {
        let Some(zip) = &shard.zip else {
            return Ok(());
        };
        let (id, place) = self.zip_file(&zip.basename)?;
        let raw_path = self.raw_path(&shard.raw.basename)?;
        let Some(file) = self.scan.file(id) else {
            return Ok(());
        };
        let spooled = self.spool.join(&shard.raw.basename);
        let origin = Unzip {
            file,
            name: &zip.basename,
            shard,
            spooled: &spooled,
        }
        .run(&mut |bytes| on_progress(done.raw_bytes + bytes))?;
        done.shards += 1;
        done.zip_bytes += origin.bytes;
        done.raw_bytes += shard.raw.bytes;
        self.replace(id, &spooled, origin)?;
        if let Some(entry) = self.scan.entries.get_mut(place) {
            entry.path = raw_path;
        }
        // Names of a directory stand in the order of their bytes.
        let siblings = self.siblings();
        if let Some(siblings) = self.scan.entries.get_mut(siblings) {
            siblings.sort_by(|a, b| a.path.cmp(&b.path));
        }
        Ok(())
    }

    /// The compressed file of that name, and where its entry is.
    fn zip_file(&self, name: &str) -> Result<(FileId, usize), DatasetError> {
        let place = self.place_of(name);
        let id = place.and_then(|place| regular(self.scan.entries.get(place)?));
        let (Some(place), Some(id)) = (place, id) else {
            let why = format!("names the shard {name}, which is not there as a file");
            return Err(self.refused(why));
        };
        let names = self.scan.entries.iter().filter(|it| it.file() == Some(id));
        if names.count() > 1 {
            let why = format!(
                "names the shard {name}, which has other names too: a link to a compressed shard leads to none when the shard is presented raw"
            );
            return Err(self.refused(why));
        }
        Ok((id, place))
    }

    /// The path that a raw shard gets.
    fn raw_path(&self, name: &str) -> Result<Vec<u8>, DatasetError> {
        let is_plain = !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']);
        if !is_plain || name.len() > NAME_BYTES_MAX {
            return Err(self.refused(format!("names a raw shard {name:?}, which is no file name")));
        }
        if self.place_of(name).is_some() {
            let why = format!(
                "names the raw shard {name}, which is there already, beside the compressed one: take one of them out"
            );
            return Err(self.refused(why));
        }
        Ok(self.path_of(name))
    }

    fn path_of(&self, name: &str) -> Vec<u8> {
        let mut path = self.folder.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        path
    }

    fn place_of(&self, name: &str) -> Option<usize> {
        let path = self.path_of(name);
        self.scan.entries.iter().position(|it| it.path == path)
    }

    /// Where the names of this folder stand: one behind another.
    fn siblings(&self) -> std::ops::Range<usize> {
        let is_here = |entry: &Entry| !entry.path.is_empty() && entry.parent() == self.folder;
        let entries = &self.scan.entries;
        let begin = entries.iter().position(is_here).unwrap_or(entries.len());
        let count = entries
            .iter()
            .skip(begin)
            .take_while(|it| is_here(it))
            .count();
        begin..begin + count
    }

    fn refused(&self, why: String) -> DatasetError {
        let index = self.path_of("index.json");
        DatasetError::refused(String::from_utf8_lossy(&index), why)
    }

    /// The index in which every shard is raw.
    fn index(&mut self, id: FileId, index: &mds::Index) -> Result<(), DatasetError> {
        let Some(file) = self.scan.file(id) else {
            return Ok(());
        };
        let failed = |error| DatasetError::format(&file.path, error);
        let presented = index.present(&vec![None; index.shards().len()]);
        let presented = presented.map_err(failed)?;
        let source = fs::read(&file.path);
        let source = source.map_err(|error| DatasetError::io("reading", &file.path, error))?;
        let origin = Origin {
            name: "index.json".to_owned(),
            bytes: source.len() as u64,
            sha256: Sha256::digest(&source).into(),
        };
        let spooled = self.spool.join("index.json");
        let text = presented.parts().iter().find_map(|part| match part {
            Part::New(text) => Some(text.as_slice()),
            _ => None,
        });
        fs::write(&spooled, text.unwrap_or(&source))
            .map_err(|error| DatasetError::io("writing", &spooled, error))?;
        self.replace(id, &spooled, origin)
    }

    fn replace(&mut self, id: FileId, by: &Path, origin: Origin) -> Result<(), DatasetError> {
        let unzipped = SourceFile::unzipped(by, origin)?;
        if let Some(file) = self.scan.files.get_mut(id.0 as usize) {
            *file = unzipped;
        }
        Ok(())
    }
}

/// Of a name in a directory (`NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;
/// What is decompressed at a time.
const PIECE_BYTES: usize = 1 << 20;

/// One shard on its way.
struct Unzip<'a> {
    /// The compressed file, and what the index calls it.
    file: &'a SourceFile,
    name: &'a str,
    shard: &'a mds::ShardEntry,
    spooled: &'a Path,
}

impl Unzip<'_> {
    /// Writes the raw shard; says what it was made of.
    fn run(&self, on_bytes: &mut dyn FnMut(u64)) -> Result<Origin, DatasetError> {
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
            name: self.name.to_owned(),
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
