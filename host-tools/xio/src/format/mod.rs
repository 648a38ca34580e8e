//! `xio format`: a folder as a disk that any Linux mounts.
//!
//! The files of one rule are one stream, end to end; the filesystem's metadata are another; the view lays both out as the disk.

mod folder;
pub mod rule;

use std::path::Path;
use std::time::Instant;

use anyhow::anyhow;
use erofs::{Label, Layout, Tree};
use serde_json::json;
use sha2::{Digest, Sha256};
use transforms::{Chain, ElementType, ViewChain};
use volume::identity::{uuid_text, version_8};
use volume::write::{
    ExtentSpec, FileOutput, Finished, Integrity, Options, StreamSpec, WriteError, Writer, Written,
};

use crate::cli;
use crate::failure::Failure;
use crate::figures::ratio;
use crate::pack::{WRITER, available_threads, hex};
use crate::progress::Progress;
use crate::stdout::print_line;
use folder::{Found, Kind, Source, Sources};
use printout::size::grouped;
use rule::Rule;

const BLOCK: u64 = erofs::limits::BLOCK_BYTES as u64;

/// Runs the command.
pub fn run(arguments: &cli::Format) -> Result<(), Failure> {
    let started = Instant::now();
    let plan = Plan::new(arguments)?;
    let disk = plan.write()?;
    if arguments.json {
        return print_line(plan.to_json(&disk));
    }
    let seconds = started.elapsed().as_secs_f64();
    let files = grouped(plan.files.len() as u64);
    print_line(format_args!(
        "{}: {files} files of {} bytes, a disk of {} bytes, stored in {} bytes (ratio {}), in {seconds:.1} s",
        arguments.output.display(),
        grouped(plan.source_bytes()),
        grouped(u64::from(disk.blocks) * BLOCK),
        grouped(disk.finished.volume_bytes),
        ratio(plan.source_bytes(), disk.finished.volume_bytes),
    ))
}

/// What is in the folder, and how it is stored.
struct Plan<'a> {
    arguments: &'a cli::Format,
    found: Vec<Found>,
    /// The last fits everything.
    rules: Vec<Rule>,
    /// In the order of `found`.
    files: Vec<PlannedFile>,
    /// By rule.
    sources: Vec<Vec<Source>>,
}

/// A file's place in the stream of its rule.
struct PlannedFile {
    rule: usize,
    first_byte: u64,
}

/// What was made.
struct Disk {
    finished: Finished,
    uuid: [u8; 16],
    blocks: u32,
    metadata_blocks: u32,
}

impl Plan<'_> {
    fn new(arguments: &cli::Format) -> Result<Plan<'_>, Failure> {
        let rest = Rule::rest().map_err(|why| Failure::usage(anyhow!(why)))?;
        let rules: Vec<Rule> = arguments.rules.iter().cloned().chain([rest]).collect();
        let mut plan = Plan {
            arguments,
            found: folder::scan(&arguments.folder)?,
            sources: rules.iter().map(|_| Vec::new()).collect(),
            rules,
            files: Vec::new(),
        };
        for rule in &plan.rules {
            let checked = plan.spec(rule).check();
            checked.map_err(|error| Failure::from(error).about(&rule.text))?;
        }
        let mut ends = vec![0; plan.rules.len()];
        for one in &plan.found {
            let Kind::File(bytes) = one.kind else {
                continue;
            };
            let fits = plan.rules.iter().position(|rule| rule.fits(&one.path));
            let rule = fits.ok_or_else(|| Failure::usage(anyhow!("no rule fits")))?;
            let path = folder::full(&arguments.folder, &one.path);
            let element_type = plan.rules[rule].chain.source();
            if !bytes.is_multiple_of(element_type.bytes() as u64) {
                let error = WriteError::PartialElement {
                    bytes,
                    element_type,
                };
                return Err(Failure::from(error).about(path.display()));
            }
            let first_byte = ends[rule];
            ends[rule] += bytes;
            plan.files.push(PlannedFile { rule, first_byte });
            let modified = one.attributes.modified;
            plan.sources[rule].push(Source {
                path,
                bytes,
                modified,
            });
        }
        Ok(plan)
    }

    fn spec(&self, rule: &Rule) -> StreamSpec {
        StreamSpec {
            chain: rule.chain.clone(),
            frame_bytes: self.arguments.frame.0,
            integrity: Integrity::Crc32c,
        }
    }

    fn source_bytes(&self) -> u64 {
        let sources = self.sources.iter().flatten();
        sources.map(|source| source.bytes).sum()
    }

    fn write(&self) -> Result<Disk, Failure> {
        let arguments = self.arguments;
        let lba_bytes = cli::lba_bytes(arguments.lba)?;
        let name = match &arguments.name {
            Some(name) => name.clone(),
            None => default_name(&arguments.folder)?,
        };
        let output = FileOutput::create(&arguments.output, arguments.force)?;
        let options = Options {
            lba_bytes,
            threads: arguments
                .threads
                .map_or_else(available_threads, |n| n.get()),
            volume_uuid: None,
            writer: WRITER.to_owned(),
        };
        let mut writer = Writer::new(output, options)?;
        let streams = self.add_streams(&mut writer)?;
        let uuid = self.uuid(&streams);
        let layout = self.lay_out(uuid)?;
        let spec = StreamSpec::new(metadata_chain()?);
        let metadata = writer.add_stream(&spec, &mut layout.metadata(), &mut |_| {})?;
        writer.add_view(&name, self.extents(&layout, &metadata, &streams)?)?;
        Ok(Disk {
            finished: writer.finish()?,
            uuid,
            blocks: layout.blocks(),
            metadata_blocks: layout.metadata_blocks(),
        })
    }

    /// One for each rule that fits something.
    fn add_streams(
        &self,
        writer: &mut Writer<FileOutput>,
    ) -> Result<Vec<Option<Written>>, Failure> {
        let progress = Progress::start("packing", Some(self.source_bytes()));
        let mut done_bytes = 0;
        let mut streams = Vec::new();
        for (rule, sources) in self.rules.iter().zip(&self.sources) {
            if sources.is_empty() {
                streams.push(None);
                continue;
            }
            let mut input = Sources::new(sources);
            let mut on_progress =
                |now: volume::write::Progress| progress.set(done_bytes + now.source_bytes);
            let written = writer.add_stream(&self.spec(rule), &mut input, &mut on_progress);
            let written =
                written.map_err(|error| in_its_file(error, sources, rule.chain.source()))?;
            done_bytes += written.source_bytes;
            streams.push(Some(written));
        }
        Ok(streams)
    }

    fn lay_out(&self, uuid: [u8; 16]) -> Result<Layout, Failure> {
        let refused = |error: erofs::ErofsError| Failure::usage(anyhow!("{error}"));
        let newest = self.found.iter().map(|one| one.attributes.modified).max();
        let label = Label {
            uuid,
            built: newest.unwrap_or_default(),
            volume_name: self
                .arguments
                .label
                .clone()
                .unwrap_or_default()
                .into_bytes(),
        };
        tree(&self.found)
            .and_then(|tree| tree.lay_out(label))
            .map_err(refused)
    }

    /// Metadata, then each file and the zeros up to the next block.
    fn extents(
        &self,
        layout: &Layout,
        metadata: &Written,
        streams: &[Option<Written>],
    ) -> Result<Vec<ExtentSpec>, Failure> {
        let mut extents = vec![linear(metadata, 0, metadata.elements)];
        let mut position = metadata.source_bytes;
        for (place, file) in layout.files().zip(&self.files) {
            if place.bytes == 0 {
                continue;
            }
            let at = u64::from(place.first_block) * BLOCK;
            extents.push(ExtentSpec::Zero {
                bytes: at - position,
            });
            let stream = streams.get(file.rule).and_then(Option::as_ref);
            let stream = stream.ok_or_else(|| Failure::system(anyhow!("a file has no stream")))?;
            let element_bytes = self.rules[file.rule].chain.source().bytes() as u64;
            extents.push(linear(
                stream,
                file.first_byte / element_bytes,
                place.bytes / element_bytes,
            ));
            position = at + place.bytes;
        }
        let end = u64::from(layout.blocks()) * BLOCK;
        extents.push(ExtentSpec::Zero {
            bytes: end - position,
        });
        Ok(extents)
    }

    /// A function of all that the disk presents.
    fn uuid(&self, streams: &[Option<Written>]) -> [u8; 16] {
        let mut hash = Sha256::new();
        hash.update(b"xio erofs uuid 1");
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        for one in &self.found {
            let attributes = &one.attributes;
            add(&one.path);
            add(&attributes.permissions.to_le_bytes());
            add(&attributes.uid.to_le_bytes());
            add(&attributes.gid.to_le_bytes());
            add(&attributes.modified.seconds.to_le_bytes());
            add(&attributes.modified.nanoseconds.to_le_bytes());
            match &one.kind {
                Kind::Directory => add(b"directory"),
                Kind::File(bytes) => add(&bytes.to_le_bytes()),
                Kind::Symlink(target) => add(target),
            }
        }
        add(self
            .arguments
            .label
            .as_deref()
            .unwrap_or_default()
            .as_bytes());
        // Which file is in which stream decides what their digests mean.
        for file in &self.files {
            add(&(file.rule as u64).to_le_bytes());
        }
        for stream in streams.iter().flatten() {
            add(&stream.sha256);
        }
        version_8(hash.finalize().into())
    }

    fn to_json(&self, disk: &Disk) -> serde_json::Value {
        let finished = &disk.finished;
        let stored = self.rules.iter().zip(&self.sources);
        let mut written = finished.streams.iter();
        let streams = stored
            .filter(|(_, sources)| !sources.is_empty())
            .map(|(rule, sources)| {
                let stream = written.next();
                json!({
                    "rule": rule.text,
                    "files": sources.len(),
                    "source_bytes": stream.map(|stream| stream.source_bytes),
                    "stored_bytes": stream.map(|stream| stream.stored_bytes),
                    "sha256": stream.map(|stream| hex(&stream.sha256)),
                })
            });
        json!({
            "volume": self.arguments.output,
            "volume_uuid": uuid_text(&finished.volume_uuid),
            "volume_bytes": finished.volume_bytes,
            "filesystem_uuid": uuid_text(&disk.uuid),
            "disk_bytes": u64::from(disk.blocks) * BLOCK,
            "metadata_bytes": u64::from(disk.metadata_blocks) * BLOCK,
            "files": self.files.len(),
            "streams": streams.collect::<Vec<_>>(),
        })
    }
}

fn linear(stream: &Written, first_element: u64, elements: u64) -> ExtentSpec {
    ExtentSpec::Linear {
        stream: stream.stream,
        first_element,
        elements,
        view: ViewChain::identity(),
    }
}

/// Metadata are mostly zeros and names.
fn metadata_chain() -> Result<Chain, Failure> {
    Chain::parse("lz4", ElementType::U8).map_err(|error| Failure::system(anyhow!("{error}")))
}

fn tree(found: &[Found]) -> Result<Tree, erofs::ErofsError> {
    let mut directories = std::collections::HashMap::new();
    let mut tree = Tree::new(
        found
            .first()
            .map_or_else(|| erofs::Attributes::new(0o755), |root| root.attributes),
    )?;
    directories.insert(&b""[..], tree.root());
    for one in found.iter().skip(1) {
        let slash = one.path.iter().rposition(|&byte| byte == b'/');
        let parent = &one.path[..slash.unwrap_or(0)];
        let name = &one.path[slash.map_or(0, |at| at + 1)..];
        let parent = directories.get(parent).copied().unwrap_or(tree.root());
        match &one.kind {
            Kind::Directory => {
                let directory = tree.add_directory(parent, name, one.attributes)?;
                directories.insert(&one.path, directory);
            }
            Kind::File(bytes) => {
                tree.add_file(parent, name, *bytes, one.attributes)?;
            }
            Kind::Symlink(target) => tree.add_symlink(parent, name, target, one.attributes)?,
        }
    }
    Ok(tree)
}

/// The writer counts from the beginning of the stream; a person looks in a file.
fn in_its_file(error: WriteError, sources: &[Source], element_type: ElementType) -> Failure {
    let WriteError::Encode {
        element,
        byte,
        error,
    } = error
    else {
        return error.into();
    };
    let mut start = 0;
    for source in sources {
        if byte < start + source.bytes {
            let inside = WriteError::Encode {
                element: element - start / element_type.bytes() as u64,
                byte: byte - start,
                error,
            };
            return Failure::from(inside).about(source.path.display());
        }
        start += source.bytes;
    }
    let whole = WriteError::Encode {
        element,
        byte,
        error,
    };
    whole.into()
}

fn default_name(folder: &Path) -> Result<String, Failure> {
    let whole = folder
        .canonicalize()
        .map_err(|error| Failure::io("reading", folder, error))?;
    let name = whole.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| {
        let why = "the folder has no name to call the view by; give one with --name";
        Failure::usage(anyhow!(why))
    })
}
