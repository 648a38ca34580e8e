//! MDS: shards of samples, each a row of columns (MosaicML streaming 0.13, `format/mds/writer.py`, `reader.py`, `encodings.py`).
//!
//! ```text
//!  0         4                        4 + 4 (n + 1)   offset 0     offset 1            offset n = the file's end
//!  +---------+------------------------+---------------+------------+-------------+---- - - --+
//!  | n, u32  | n + 1 offsets, u32     | config, JSON  | sample 0   | sample 1    |           |
//!  +---------+------------------------+---------------+------------+-------------+---- - - --+
//!  sample: a u32 length for each column without a fixed size, then the columns' bytes
//!  ndarray: [type code] [rank << 2 | width of a dimension, dimensions] values; the type and the dimensions are there unless the
//!  column's encoding says them (`ndarray`, `ndarray:float32`, `ndarray:float32:3,4`)
//! ```
//! Only the values of ndarray columns change type. The shard's sizes and hashes stand in `index.json`: [`Index`].

mod array;
mod index;

use std::fmt::Write as _;

use serde::Deserialize;

pub use index::{ChangedShard, Columns, Index, ShardEntry};
pub(crate) use index::{cut_off, is_index, listed};

use self::array::{Array, Encoding};
use crate::description::{Companion, Contents, Description, Details, Payload};
use crate::limits::{HEADER_BYTES_MAX, MDS_COLUMNS_MAX, MDS_PAYLOADS_MAX, MDS_SAMPLES_MAX};
use crate::presentation::{self, AllWanted, Change, Presentation, Targets, Wanted};
use crate::source::{self, Buffered, u32_at};
use crate::{ByteSource, Dtype, Format, FormatError, json};

/// A shard's layout.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shard {
    columns: Vec<Column>,
    /// The JSON of the shard as it is written.
    config: String,
    /// Where each sample begins, and where the last ends.
    offsets: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq)]
struct Column {
    name: String,
    encoding: Encoding,
    /// `None` where each sample says it.
    bytes: Option<u32>,
}

/// The part of a shard's JSON that says how samples are read.
#[derive(Deserialize)]
struct Config {
    format: String,
    column_names: Vec<String>,
    column_encodings: Vec<String>,
    column_sizes: Vec<Option<u32>>,
}

/// A column of one sample.
struct Field {
    column: usize,
    offset: u64,
    bytes: u64,
    array: Option<Array>,
}

fn malformed(offset: u64, why: impl Into<String>) -> FormatError {
    FormatError::malformed(Format::MdsShard, offset, why)
}

/// Describes a shard; `None` where this is none: the format has no magic number, so its offsets and its JSON have to be right.
pub(crate) fn describe(source: &dyn ByteSource) -> Result<Option<Description>, FormatError> {
    let Some((offsets, config)) = read_head(source)? else {
        return Ok(None);
    };
    let Some(columns) = columns(&config) else {
        return Ok(None);
    };
    let shard = Shard {
        columns: columns?,
        config,
        offsets,
    };
    let arrays = shard.columns.iter().filter(|c| c.encoding.is_array());
    let count = arrays.count() as u64 * shard.offsets.len() as u64;
    if count > MDS_PAYLOADS_MAX {
        return Err(FormatError::Limit {
            format: Format::MdsShard,
            what: "arrays",
            found: count,
            max: MDS_PAYLOADS_MAX,
        });
    }
    let mut payloads = Vec::new();
    shard.each_sample(source, |_, fields| {
        for field in fields {
            let Some(array) = field.array else { continue };
            let name = shard.columns.get(field.column).map(|c| c.name.clone());
            payloads.push(Payload {
                name: name.unwrap_or_default(),
                offset: field.offset + array.prefix_bytes,
                bytes: field.bytes - array.prefix_bytes,
                contents: Contents::Elements(array.dtype),
                shape: array.shape,
            });
        }
        Ok(())
    })?;
    let mut description = Description::typed(
        Format::MdsShard,
        source.bytes(),
        payloads,
        Details::Mds(shard),
    );
    description.companions.push(Companion::Name("index.json"));
    description
        .notes
        .push("its size and hashes stand in the index".to_owned());
    Ok(Some(description))
}

/// The offsets and the JSON; `None` where the file's beginning cannot be theirs.
fn read_head(source: &dyn ByteSource) -> Result<Option<(Vec<u32>, String)>, FormatError> {
    let (head, len) = source::head::<8>(source)?;
    let samples = u64::from(u32_at(&head, 0));
    let first = u64::from(u32_at(&head, 4));
    let table_end = 4 + 4 * (samples + 1);
    if len < 8 || first <= table_end || first > source.bytes() || first > HEADER_BYTES_MAX {
        return Ok(None);
    }
    let brace = source::range(source, Format::MdsShard, table_end, 1, 1)?;
    if brace != b"{" {
        return Ok(None);
    }
    let config = source::range(
        source,
        Format::MdsShard,
        table_end,
        first - table_end,
        HEADER_BYTES_MAX,
    )?;
    let Ok(config) = String::from_utf8(config) else {
        return Ok(None);
    };
    let table = source::range(source, Format::MdsShard, 4, table_end - 4, HEADER_BYTES_MAX)?;
    let offsets = table.chunks_exact(4).map(|o| u32_at(o, 0)).collect();
    Ok(Some((offsets, config)))
}

/// The columns; `None` where the JSON is not that of a shard.
fn columns(config: &str) -> Option<Result<Vec<Column>, FormatError>> {
    let config: Config = serde_json::from_str(config).ok()?;
    if config.format != "mds" {
        return None;
    }
    let count = config.column_names.len();
    if count > MDS_COLUMNS_MAX {
        return Some(Err(FormatError::Limit {
            format: Format::MdsShard,
            what: "columns",
            found: count as u64,
            max: MDS_COLUMNS_MAX as u64,
        }));
    }
    if config.column_encodings.len() != count || config.column_sizes.len() != count {
        return Some(Err(malformed(
            0,
            "columns, encodings and sizes differ in number",
        )));
    }
    let encodings = config.column_encodings.iter().map(|e| Encoding::parse(e));
    let mut columns = Vec::with_capacity(count);
    for ((name, encoding), bytes) in config
        .column_names
        .into_iter()
        .zip(encodings)
        .zip(config.column_sizes)
    {
        if bytes == Some(0)
            || encoding
                .fixed_bytes()
                .is_some_and(|f| Some(f) != bytes.map(u64::from))
        {
            let why = format!("column {name:?} cannot have {bytes:?} bytes");
            return Some(Err(malformed(0, why)));
        }
        columns.push(Column {
            name,
            encoding,
            bytes,
        });
    }
    Some(Ok(columns))
}

impl Shard {
    /// Calls `each` with every sample's number and fields, all inside the sample.
    fn each_sample(
        &self,
        source: &dyn ByteSource,
        mut each: impl FnMut(usize, Vec<Field>) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        let samples = self.offsets.len().saturating_sub(1) as u64;
        if samples > MDS_SAMPLES_MAX {
            return Err(FormatError::Limit {
                format: Format::MdsShard,
                what: "samples",
                found: samples,
                max: MDS_SAMPLES_MAX,
            });
        }
        if self.offsets.last().copied().map(u64::from) != Some(source.bytes()) {
            return Err(malformed(4, "the last offset is not the file's end"));
        }
        let source = &Buffered::new(source);
        for (sample, pair) in self.offsets.windows(2).enumerate() {
            let [begin, end] = *pair else { continue };
            if begin > end {
                let why = format!("sample {sample} ends before it begins");
                return Err(malformed(4 + 4 * sample as u64, why));
            }
            each(
                sample,
                self.fields(source, u64::from(begin), u64::from(end))?,
            )?;
        }
        Ok(())
    }

    /// The columns of the sample at bytes `begin..end`.
    fn fields(
        &self,
        source: &dyn ByteSource,
        begin: u64,
        end: u64,
    ) -> Result<Vec<Field>, FormatError> {
        let variable = self.columns.iter().filter(|c| c.bytes.is_none()).count();
        let head_bytes = 4 * variable as u64;
        if end - begin < head_bytes {
            return Err(malformed(begin, "a sample shorter than its lengths"));
        }
        let head = source::range(source, Format::MdsShard, begin, head_bytes, head_bytes)?;
        let mut lengths = head.chunks_exact(4).map(|length| u32_at(length, 0));
        let mut offset = begin + head_bytes;
        let mut fields = Vec::with_capacity(self.columns.len());
        for (index, column) in self.columns.iter().enumerate() {
            let bytes = column.bytes.or_else(|| lengths.next()).map(u64::from);
            let bytes = bytes
                .filter(|bytes| *bytes <= end - offset)
                .ok_or_else(|| {
                    let why = format!("column {:?} ends behind its sample", column.name);
                    malformed(offset, why)
                })?;
            let array = column.encoding.read(source, offset, bytes)?;
            fields.push(Field {
                column: index,
                offset,
                bytes,
                array,
            });
            offset += bytes;
        }
        if offset != end {
            return Err(malformed(offset, "bytes behind the sample's columns"));
        }
        Ok(fields)
    }

    /// The shard as streaming's own writer would have written it from converted arrays.
    pub(crate) fn present(
        &self,
        source: &dyn ByteSource,
        description: &Description,
        wanted: &AllWanted<'_>,
    ) -> Result<Presentation, FormatError> {
        let changes = self.changes(wanted)?;
        let columns = self.presented_columns(&changes);
        let config = index::with_columns(&self.config, &columns)
            .ok_or_else(|| malformed(0, "the shard's JSON has no columns"))?;
        let mut samples = Vec::with_capacity(self.offsets.len());
        let mut arrays = wanted.0.iter();
        self.each_sample(source, |_, fields| {
            samples.push(self.sample(source, fields, &mut arrays)?);
            Ok(())
        })?;
        let samples_count = self.offsets.len().saturating_sub(1) as u64;
        let mut position = 4 + 4 * (samples_count + 1) + config.len() as u64;
        let mut offsets = Vec::with_capacity(self.offsets.len() * 4);
        let too_long = || {
            let why = format!(
                "widened, the shard of {} bytes would be over 4 GiB, which its offsets cannot say",
                description.file_bytes
            );
            FormatError::refused("MDS", why)
        };
        for bytes in samples.iter().map(Presentation::bytes).chain([0]) {
            let offset = u32::try_from(position).map_err(|_| too_long())?;
            offsets.extend(offset.to_le_bytes());
            position = position.saturating_add(bytes);
        }
        let mut view = Presentation::default();
        view.push_source(0, 4);
        view.push_new(&offsets);
        view.push_new(config.as_bytes());
        for sample in samples {
            view.append(sample);
        }
        Ok(view)
    }

    /// One sample: its lengths, then its columns.
    fn sample<'a>(
        &self,
        source: &dyn ByteSource,
        fields: Vec<Field>,
        arrays: &mut impl Iterator<Item = &'a Wanted<'a>>,
    ) -> Result<Presentation, FormatError> {
        let (mut lengths, mut body) = (Vec::new(), Presentation::default());
        for field in fields {
            let column = self.columns.get(field.column);
            let before = body.bytes();
            match field.array {
                None => body.push_source(field.offset, field.bytes),
                Some(array) => {
                    let start = field.offset + array.prefix_bytes;
                    let wanted = arrays
                        .next()
                        .filter(|w| {
                            (w.payload.offset, w.payload.bytes)
                                == (start, field.bytes - array.prefix_bytes)
                        })
                        .ok_or_else(|| malformed(field.offset, "changed since it was read"))?;
                    let prefix = array.presented_prefix(source, field.offset, wanted)?;
                    body.push_new(&prefix);
                    body.push(wanted);
                }
            }
            if column.is_some_and(|column| column.bytes.is_none()) {
                let bytes = u32::try_from(body.bytes() - before)
                    .map_err(|_| FormatError::refused("MDS", "a column would be over 4 GiB"))?;
                lengths.extend(bytes.to_le_bytes());
            }
        }
        let mut sample = Presentation::default();
        sample.push_new(&lengths);
        sample.append(body);
        Ok(sample)
    }

    /// What becomes of each column. A column whose encoding says the type is changed in every sample or in none.
    fn changes(&self, wanted: &AllWanted<'_>) -> Result<Vec<Option<Change>>, FormatError> {
        let mut changes = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let mut of_column = wanted.0.iter().filter(|w| w.payload.name == column.name);
            let first = of_column.next().and_then(|w| w.change);
            for wanted in wanted.0.iter().filter(|w| w.payload.name == column.name) {
                check_has_code(wanted)?;
                if column.encoding.dtype().is_some() && wanted.change != first {
                    let why = "its encoding says one type for all samples";
                    return Err(FormatError::refused(&column.name, why));
                }
            }
            changes.push(first);
        }
        Ok(changes)
    }

    fn presented_columns(&self, changes: &[Option<Change>]) -> Columns {
        let mut columns = Columns::default();
        for (column, change) in self.columns.iter().zip(changes) {
            let presented = change.and_then(|change| Dtype::of(change.presented));
            columns.encodings.push(column.encoding.presented(presented));
            let bytes = match (change, column.encoding.dtype()) {
                (Some(change), Some(_)) => column.bytes.map(|bytes| {
                    let elements = u64::from(bytes) / change.stored.bytes() as u64;
                    change.presented.bytes_of(elements)
                }),
                _ => column.bytes.map(u64::from),
            };
            columns.bytes.push(bytes);
        }
        columns
    }
}

/// The encodings and sizes of a shard's columns in the view that `targets` wants: for [`Index::present`].
///
/// # Errors
/// [`FormatError::Refused`] where the description is of something else, or the types cannot be presented.
pub fn presented_columns(
    description: &Description,
    targets: &Targets<'_>,
) -> Result<Columns, FormatError> {
    let Details::Mds(shard) = &description.details else {
        return Err(FormatError::refused("MDS", "this is no shard"));
    };
    let wanted = presentation::wanted(&description.payloads, targets)?;
    Ok(shard.presented_columns(&shard.changes(&wanted)?))
}

fn check_has_code(wanted: &Wanted<'_>) -> Result<(), FormatError> {
    let dtype = wanted.dtype();
    if dtype.is_none_or(|dtype| dtype.row().mds.is_some()) {
        return Ok(());
    }
    let why = format!(
        "an MDS ndarray has numpy's types only, so no {}; present f16 or f32",
        dtype.unwrap_or(Dtype::Bf16)
    );
    Err(FormatError::refused(&wanted.payload.name, why))
}

/// A list as Python's `json.dumps` writes it.
fn json_list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    let mut text = String::new();
    let _ = write!(text, "[{}]", items.join(", "));
    text
}

fn json_strings(items: &[String]) -> String {
    json_list(items.iter().map(|item| json::quoted(item)))
}
