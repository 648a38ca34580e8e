//! `xio inspect`: what a volume holds, from its directory, its manifests, and some blocks of its frame tables.

mod manifest;
mod raw_frames;

use std::path::Path;

use anyhow::anyhow;
use dataset::document;
use serde_json::{Value, json};
use transforms::{Packing, Scales, Table as ChainTable, TableKind as ChainTableKind};
use volume::format::{ChainIndex, ChainUse, Extent, Layout, Mapping, Stream, Table, TableKind};
use volume::identity::uuid_text;
use volume::{Item, SuperblockCopy, Volume};
use volume::{SourceId, ViewIndex};

use crate::cli;
use crate::failure::Failure;
use crate::figures::{bits_per_value, ratio, share};
use crate::local::LocalVolume;
use crate::stdout::{print, print_line};
use manifest::Manifest;
use printout::size::{Size, grouped, rounded};
use printout::text_table::{Align, TextTable};
use raw_frames::RawShares;

/// Runs the command.
pub fn run(arguments: &cli::Inspect) -> Result<(), Failure> {
    let path = &arguments.volume;
    let mut local = LocalVolume::open_alone(path)?;
    let mut views = Vec::new();
    for index in (0..).map(ViewIndex).take(local.volume.views().len()) {
        local.volume = local.volume.with_view(index)?;
        let extents = local.reader().extents(0, arguments.extents);
        views.push(ShownView {
            volume: local.volume.clone(),
            extents: extents.map_err(|error| Failure::from(error).about(path.display()))?,
            manifest: Manifest::read(&local),
        });
    }
    let raw = RawShares::of(&local);
    if arguments.json {
        print_line(to_json(path, &local.volume, &views, &raw))?;
    } else {
        print(&to_text(path, &local.volume, &views, &raw))?;
    }
    note_tail_alone(path, &local.volume);
    let of_manifests = views.into_iter().find_map(ShownView::into_damage);
    let of_frames = of_manifests.or_else(|| raw.into_damage());
    match of_frames.or_else(|| of_superblocks(&local.volume)) {
        Some(damage) => Err(damage.about(path.display())),
        None => Ok(()),
    }
}

/// What is damaged of the superblocks: the one that is whole shows the volume all the same.
fn of_superblocks(volume: &Volume) -> Option<Failure> {
    let notices = volume.notices();
    let said: Vec<String> = notices
        .iter()
        .map(|notice| format!("{}: {}", notice.place, notice.why))
        .collect();
    (!said.is_empty()).then(|| {
        Failure::data(anyhow!(
            "damaged, and can be read: restore it from a copy, or pack it again: {}",
            said.join("; ")
        ))
    })
}

/// What is no damage in an object that was streamed, and may be in another file.
pub fn note_tail_alone(path: &Path, volume: &Volume) {
    if volume.has_tail_alone() {
        printout::stderr::note(format_args!(
            "{}: the front superblocks are empty: it was written as a stream, or they were lost",
            path.display()
        ));
    }
}

/// A view, and the first of its extents.
struct ShownView {
    volume: Volume,
    extents: Vec<Extent>,
    manifest: Manifest,
}

impl ShownView {
    /// What keeps its manifest from being shown: the rest is.
    fn into_damage(self) -> Option<Failure> {
        let name = self.volume.name().to_owned();
        match self.manifest {
            Manifest::Damaged(failure) => {
                Some(failure.about(format_args!("the manifest of {name}")))
            }
            Manifest::None | Manifest::Read(_) => None,
        }
    }

    fn extent_count(&self) -> u64 {
        self.volume.view().extents.entry_count()
    }
}

/// Where the bytes of a volume went.
struct Sizes {
    payload_bytes: u64,
    table_bytes: u64,
    /// Superblocks, blobs, and zeros up to the next block.
    other_bytes: u64,
    /// Stored bytes, mapped ones included.
    stored_bytes: u64,
    /// Of these, what no checksum vouches for.
    uncovered_bytes: u64,
}

impl Sizes {
    fn of(volume: &Volume) -> Sizes {
        let superblock = volume.superblock();
        let own = |stream: &&Stream| stream.source == SourceId::OWN;
        let stream_tables = volume.streams().iter().filter_map(table_of);
        let extents = volume.views().iter().map(|view| view.extents);
        let tables = superblock
            .directory
            .iter()
            .copied()
            .chain(stream_tables)
            .chain(extents);
        let table_bytes = tables.map(|table| table.bytes()).sum();
        let payload_bytes = volume
            .streams()
            .iter()
            .filter(own)
            .map(|stream| stream.stored_bytes)
            .sum();
        Sizes {
            payload_bytes,
            table_bytes,
            other_bytes: superblock.volume_bytes - payload_bytes - table_bytes,
            stored_bytes: volume.streams().iter().map(stored_bytes).sum(),
            uncovered_bytes: volume
                .streams()
                .iter()
                .filter(|stream| !stream.is_covered())
                .map(stored_bytes)
                .sum(),
        }
    }
}

fn table_of(stream: &Stream) -> Option<Table> {
    match stream.layout {
        Layout::Framed { frames, .. } => Some(frames),
        Layout::Unframed { checksums, .. } => checksums,
    }
}

/// Bytes before element 0, which are of the file that is mapped and not of the stream.
fn skip_bytes(stream: &Stream) -> u64 {
    match stream.layout {
        Layout::Unframed { skip_bytes, .. } => u64::from(skip_bytes),
        Layout::Framed { .. } => 0,
    }
}

fn stored_bytes(stream: &Stream) -> u64 {
    stream.stored_bytes - skip_bytes(stream)
}

fn source_bytes(stream: &Stream) -> u64 {
    stream.elements * stream.element_type().bytes() as u64
}

fn integrity(stream: &Stream) -> &'static str {
    if stream.is_covered() {
        "crc32c"
    } else {
        "none"
    }
}

fn to_text(path: &Path, volume: &Volume, views: &[ShownView], raw: &RawShares) -> String {
    let superblock = volume.superblock();
    let sizes = Sizes::of(volume);
    let mut text = format!(
        "{}: volume {}, generation {}, written by {}\n{} bytes ({}): payload {}, tables {}, other {}; logical blocks of {} bytes\n",
        path.display(),
        uuid_text(&superblock.volume_uuid),
        superblock.generation,
        superblock.writer,
        grouped(superblock.volume_bytes),
        rounded(superblock.volume_bytes),
        grouped(sizes.payload_bytes),
        grouped(sizes.table_bytes),
        grouped(sizes.other_bytes),
        superblock.lba_bytes,
    );
    text.push_str(&format!("superblocks: {}\n", superblocks(volume)));
    for notice in volume.notices() {
        text.push_str(&format!("damaged: {}: {}\n", notice.place, notice.why));
    }
    text.push_str("\nviews\n");
    text.push_str(&indented(&views_table(views).render()));
    for manifest in views.iter().filter_map(manifest::to_text) {
        text.push_str(&manifest);
    }
    text.push_str("\nstreams\n");
    text.push_str(&indented(&streams_table(volume, raw).render()));
    text.push_str("\nchains\n");
    text.push_str(&indented(&chains_table(volume).render()));
    for line in chain_tables(volume) {
        text.push_str(&indented(&line));
    }
    for view in views.iter().filter(|view| !view.extents.is_empty()) {
        text.push_str(&format!("\nextents of {}\n", view.volume.name()));
        text.push_str(&indented(&extents_table(view).render()));
        let more = view.extent_count() - view.extents.len() as u64;
        if more > 0 {
            text.push_str(&format!(
                "  and {} more: --extents N shows N\n",
                grouped(more)
            ));
        }
    }
    if volume.sources().len() > 1 {
        text.push_str("\nsources\n");
        text.push_str(&indented(&sources_table(volume).render()));
    }
    text.push_str(&format!(
        "\nintegrity: {} of {} stored bytes are covered by crc32c, {} ({}) by nothing\n",
        grouped(sizes.stored_bytes - sizes.uncovered_bytes),
        grouped(sizes.stored_bytes),
        grouped(sizes.uncovered_bytes),
        share(sizes.uncovered_bytes, sizes.stored_bytes),
    ));
    text
}

/// What lies at each place of a superblock.
pub fn superblocks(volume: &Volume) -> String {
    let copies = volume.superblock_copies().iter();
    let said: Vec<String> = copies
        .map(|copy| format!("{} {}", copy_name(copy), copy.state))
        .collect();
    said.join(", ")
}

/// The same, for programs.
pub fn superblocks_json(volume: &Volume) -> Value {
    let copies = volume.superblock_copies().iter();
    let said = copies.map(|copy| {
        json!({
            "copy": copy_name(copy),
            "offset": copy.place.offset,
            "state": copy.state.to_string(),
        })
    });
    Value::Array(said.collect())
}

fn copy_name(copy: &SuperblockCopy) -> String {
    match copy.place.item {
        Item::Superblock(slot @ 0..=1) => format!("slot {slot}"),
        _ => "tail".to_owned(),
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

fn views_table(views: &[ShownView]) -> TextTable {
    let mut table = TextTable::new(&[
        ("#", Align::Right),
        ("name", Align::Left),
        ("presented bytes", Align::Right),
        ("blocks", Align::Right),
        ("extents", Align::Right),
        ("namespace uuid", Align::Left),
    ]);
    for (index, view) in views.iter().enumerate() {
        table.row([
            index.to_string(),
            view.volume.name().to_owned(),
            grouped(view.volume.presented_bytes()),
            grouped(view.volume.block_count()),
            grouped(view.extent_count()),
            uuid_text(&view.volume.namespace_uuid()),
        ]);
    }
    table
}

fn extents_table(view: &ShownView) -> TextTable {
    let mut table = TextTable::new(&[
        ("#", Align::Right),
        ("start", Align::Right),
        ("bytes", Align::Right),
        ("mapping", Align::Left),
        ("stream", Align::Right),
        ("first element", Align::Right),
        ("presented as", Align::Left),
    ]);
    for (index, extent) in view.extents.iter().enumerate() {
        let dash = || "-".to_owned();
        let (mapping, stream, first_element, presented_as) = match extent.mapping {
            Mapping::Zero => ("zero", dash(), dash(), dash()),
            Mapping::Inline(_) => ("inline", dash(), dash(), dash()),
            Mapping::Linear {
                stream,
                first_element,
                view_chain,
            } => (
                "linear",
                stream.0.to_string(),
                grouped(first_element),
                view_chain.map_or_else(dash, |chain| view_chain_text(&view.volume, chain)),
            ),
        };
        table.row([
            index.to_string(),
            grouped(extent.start),
            grouped(extent.bytes),
            mapping.to_owned(),
            stream,
            first_element,
            presented_as,
        ]);
    }
    table
}

fn view_chain_text(volume: &Volume, chain: ChainIndex) -> String {
    match volume.chains().get(chain.0 as usize) {
        Some(ChainUse::View(_, view)) => view.to_string(),
        _ => format!("chain {}", chain.0),
    }
}

fn streams_table(volume: &Volume, raw: &RawShares) -> TextTable {
    let mut table = TextTable::new(&[
        ("#", Align::Right),
        ("type", Align::Left),
        ("stored as", Align::Left),
        ("elements", Align::Right),
        ("source bytes", Align::Right),
        ("stored bytes", Align::Right),
        ("bits/value", Align::Right),
        ("ratio", Align::Right),
        ("frames", Align::Right),
        ("frame", Align::Right),
        ("raw", Align::Right),
        ("integrity", Align::Left),
        ("range", Align::Left),
    ]);
    for (index, stream) in volume.streams().iter().enumerate() {
        let (frames, frame) = match stream.layout {
            Layout::Framed {
                frame_elements,
                frames,
            } => {
                let frame_bytes = frame_elements * stream.element_type().bytes() as u64;
                (grouped(frames.entry_count()), Size(frame_bytes).to_string())
            }
            Layout::Unframed { .. } => ("-".to_owned(), "-".to_owned()),
        };
        table.row([
            index.to_string(),
            stream.element_type().to_string(),
            stream.chain.to_string(),
            grouped(stream.elements),
            grouped(source_bytes(stream)),
            grouped(stored_bytes(stream)),
            bits_per_value(stored_bytes(stream), stream.elements),
            ratio(source_bytes(stream), stored_bytes(stream)),
            frames,
            frame,
            raw.text(index),
            integrity(stream).to_owned(),
            stream
                .proven
                .map_or("-".to_owned(), |range| range.to_string()),
        ]);
    }
    table
}

/// Of an element: `17`, `8.5`.
fn packed_bits(packing: Packing) -> String {
    let (bits, elements) = (packing.unit_bits(), packing.unit_elements());
    #[allow(clippy::cast_precision_loss)] // a few bits
    let each = f64::from(bits) / elements as f64;
    each.to_string()
}

fn chains_table(volume: &Volume) -> TextTable {
    let mut table = TextTable::new(&[
        ("#", Align::Right),
        ("use", Align::Left),
        ("from", Align::Left),
        ("chain", Align::Left),
        ("packed bits", Align::Right),
    ]);
    for (index, chain) in volume.chains().iter().enumerate() {
        let (role, from, text, bits) = match chain {
            ChainUse::Stored(chain) => (
                "stored",
                chain.source(),
                chain.to_string(),
                packed_bits(chain.packing()),
            ),
            ChainUse::View(from, view) => ("view", *from, view.to_string(), "-".to_owned()),
        };
        table.row([
            index.to_string(),
            role.to_owned(),
            from.to_string(),
            text,
            bits,
        ]);
    }
    table
}

/// What chains with `rank`, `int8` and `zstd-dict` need beside their streams.
fn chain_tables(volume: &Volume) -> impl Iterator<Item = String> {
    let chains = (0..).zip(volume.chains());
    let tables = chains.flat_map(|(index, chain)| chain.tables().map(move |it| (index, it)));
    tables.filter_map(|(index, table)| {
        let blob = volume.table_blob(ChainIndex(index), table.kind())?.0;
        let bytes = grouped(table.stored_bytes());
        Some(match table {
            ChainTable::Ranks(table) => format!(
                "chain {index} has a rank table: blob {blob}, {bytes} bytes, {} ids, {} of them in one byte\n",
                grouped(table.ids().len() as u64),
                grouped(u64::from(table.stoppers()).min(table.ids().len() as u64)),
            ),
            ChainTable::Scales(scales) => format!(
                "chain {index} has scales: blob {blob}, {bytes} bytes, {} rows\n",
                grouped(scales.values().len() as u64),
            ),
            ChainTable::Dictionary(_) => {
                format!("chain {index} has a dictionary: blob {blob}, {bytes} bytes\n")
            }
        })
    })
}

/// The scales of rows, where the stream is stored so.
fn scales(stream: &Stream) -> Option<&Scales> {
    match stream.chain.table(ChainTableKind::Scales) {
        Some(ChainTable::Scales(scales)) => Some(scales),
        _ => None,
    }
}

fn sources_table(volume: &Volume) -> TextTable {
    let mut table = TextTable::new(&[
        ("#", Align::Right),
        ("where", Align::Left),
        ("bytes", Align::Right),
    ]);
    for (index, source) in (0..).zip(volume.sources()) {
        let locator = volume.locator(SourceId(index));
        let place = locator.map_or("this file".to_owned(), |locator| locator.to_string());
        table.row([index.to_string(), place, grouped(source.bytes)]);
    }
    table
}

fn to_json(path: &Path, volume: &Volume, shown: &[ShownView], raw: &RawShares) -> Value {
    let superblock = volume.superblock();
    let sizes = Sizes::of(volume);
    json!({
        "volume": path.display().to_string(),
        "volume_uuid": uuid_text(&superblock.volume_uuid),
        "generation": superblock.generation,
        "writer": superblock.writer,
        "lba_bytes": superblock.lba_bytes,
        "volume_bytes": superblock.volume_bytes,
        "payload_bytes": sizes.payload_bytes,
        "table_bytes": sizes.table_bytes,
        "other_bytes": sizes.other_bytes,
        "integrity": {
            "stored_bytes": sizes.stored_bytes,
            "covered_bytes": sizes.stored_bytes - sizes.uncovered_bytes,
            "uncovered_bytes": sizes.uncovered_bytes,
        },
        "superblocks": superblocks_json(volume),
        "damaged": volume.notices().iter().map(|notice| json!({
            "place": notice.place.to_string(),
            "why": notice.why,
        })).collect::<Vec<_>>(),
        "views": shown.iter().map(view_json).collect::<Vec<_>>(),
        "streams": volume.streams().iter().enumerate().map(|(index, stream)| stream_json(volume, stream, raw.json(index))).collect::<Vec<_>>(),
        "sources": (0..).zip(volume.sources()).map(|(index, source)| json!({
            "locator": volume.locator(SourceId(index)).map(|locator| locator.to_string()),
            "bytes": source.bytes,
        })).collect::<Vec<_>>(),
    })
}

fn view_json(view: &ShownView) -> Value {
    json!({
        "name": view.volume.name(),
        "namespace_uuid": uuid_text(&view.volume.namespace_uuid()),
        "presented_bytes": view.volume.presented_bytes(),
        "blocks": view.volume.block_count(),
        "extent_count": view.extent_count(),
        "extents": view.extents.iter().map(|extent| extent_json(&view.volume, extent)).collect::<Vec<_>>(),
        "lossy": view.volume.view().lossy,
        "manifest": view.manifest.document(),
        "manifest_error": view.manifest.damage().map(Failure::to_string),
    })
}

fn extent_json(volume: &Volume, extent: &Extent) -> Value {
    let (start, bytes) = (extent.start, extent.bytes);
    match extent.mapping {
        Mapping::Zero => json!({ "start": start, "bytes": bytes, "mapping": "zero" }),
        Mapping::Inline(_) => json!({ "start": start, "bytes": bytes, "mapping": "inline" }),
        Mapping::Linear {
            stream,
            first_element,
            view_chain,
        } => json!({
            "start": start,
            "bytes": bytes,
            "mapping": "linear",
            "stream": stream.0,
            "first_element": first_element,
            "view_chain": view_chain.map(|chain| view_chain_text(volume, chain)),
        }),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people and plots")]
fn stream_json(volume: &Volume, stream: &Stream, raw_frames: Value) -> Value {
    let (source_bytes, stored_bytes) = (source_bytes(stream), stored_bytes(stream));
    let per = |numerator: u64, denominator: u64| {
        (denominator > 0).then(|| numerator as f64 / denominator as f64)
    };
    let table = table_of(stream);
    let entries = |kind| {
        table
            .filter(|table| table.kind() == kind)
            .map(|table| table.entry_count())
    };
    json!({
        "dtype": stream.element_type().name(),
        "stored_chain": stream.chain.to_string(),
        "elements": stream.elements,
        "source_bytes": source_bytes,
        "stored_bytes": stored_bytes,
        "stored_offset": stream.stored_offset + skip_bytes(stream),
        "bits_per_value": per(stored_bytes * 8, stream.elements),
        "ratio": per(source_bytes, stored_bytes),
        "frames": entries(TableKind::Frames),
        "raw_frames": raw_frames,
        "checksums": entries(TableKind::Checksums),
        "frame_elements": match stream.layout {
            Layout::Framed { frame_elements, .. } => Some(frame_elements),
            Layout::Unframed { .. } => None,
        },
        "integrity": integrity(stream),
        "rank_table": stream.chain.rank_table().map(|table| json!({
            "ids": table.ids().len(),
            "bytes": table.stored_bytes(),
            "stoppers": table.stoppers(),
            "blob": volume.table_blob(stream.chain_index, ChainTableKind::Ranks).map(|blob| blob.0),
        })),
        "scales": scales(stream).map(|scales| json!({
            "rows": scales.values().len(),
            "bytes": scales.stored_bytes(),
            "blob": volume.table_blob(stream.chain_index, ChainTableKind::Scales).map(|blob| blob.0),
        })),
        "dictionary": stream.chain.dictionary().map(|dictionary| json!({
            "bytes": dictionary.stored_bytes(),
            "blob": volume.table_blob(stream.chain_index, ChainTableKind::Dictionary).map(|blob| blob.0),
        })),
        "range": document::range(stream.proven),
        "sha256": stream.digest.map(|digest| document::hex(&digest)),
    })
}
