//! The manifest: one document, whoever writes it (docs/format.md, *The manifest*). And what programs that print JSON say in the same words.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use transforms::{Chain, ElementType, Loss, Packing, Step, ValueRange};
use volume::identity::sha256;
use volume::limits::BLOB_BYTES_MAX;
use volume::write::Written;

use crate::Origin;

/// The version of a manifest.
pub const VERSION: u32 = 1;

/// Where a disk has its manifest, from the root on.
pub const ON_DISK: &str = "/.xio/manifest.json";

/// Of a manifest that is too long for a blob, lists of up to so many are kept; where that is still too long, none.
const LISTED_MAX: [usize; 2] = [1_000, 0];

/// A manifest: every member is there, whoever writes it.
#[derive(Debug)]
pub struct Manifest<'a> {
    /// The program.
    pub writer: &'a str,
    /// Whether any of the presented values are rounded.
    pub is_lossy: bool,
    /// The files that the disk was made of.
    pub sources: Vec<Source<'a>>,
    /// Of [`stream`], by their index in the volume.
    pub streams: Vec<Value>,
    /// Of [`view`].
    pub views: Vec<Value>,
    /// Other volumes that are presented, each with its manifests.
    pub volumes: Vec<Value>,
}

impl Manifest<'_> {
    /// The text, with an end of line.
    #[must_use]
    pub fn into_json(self) -> Vec<u8> {
        text(&Document {
            lossy: self.is_lossy,
            on_disk: None,
            sources: &self.sources,
            streams: &self.streams,
            views: &self.views,
            volumes: &self.volumes,
            writer: self.writer,
            xio_manifest: VERSION,
        })
    }
}

/// The members in the order of their names, as those of values are.
#[derive(Serialize)]
struct Document<'a> {
    lossy: bool,
    on_disk: Option<Value>,
    sources: &'a [Source<'a>],
    streams: &'a [Value],
    views: &'a [Value],
    volumes: &'a [Value],
    writer: &'a str,
    xio_manifest: u32,
}

/// Whether a document is one of these.
#[must_use]
pub fn is_manifest(document: &Value) -> bool {
    document["xio_manifest"] == VERSION
}

/// What the volume holds of a manifest, for whoever does not mount the disk: all of it, or where that is too long for a blob, how many there are of
/// what fills it, and where the disk has the whole, if it has.
#[must_use]
pub fn for_a_blob(manifest: &[u8], is_on_disk: bool) -> Vec<u8> {
    let bytes_max = usize::try_from(BLOB_BYTES_MAX).unwrap_or(usize::MAX);
    shortened(manifest, is_on_disk, bytes_max)
}

fn shortened(manifest: &[u8], is_on_disk: bool, bytes_max: usize) -> Vec<u8> {
    let mut short = manifest.to_vec();
    for listed_max in LISTED_MAX {
        if short.len() <= bytes_max {
            break;
        }
        let mut document: Value = serde_json::from_slice(manifest).unwrap_or_default();
        if let Some(members) = document.as_object_mut() {
            shorten_lists(members, listed_max);
            let whole = json!({
                "path": ON_DISK,
                "bytes": manifest.len(),
                "sha256": hex(&Sha256::digest(manifest)),
            });
            let whole = if is_on_disk { whole } else { Value::Null };
            members.insert("on_disk".to_owned(), whole);
        }
        short = text(&document);
    }
    short
}

fn shorten_lists(members: &mut Map<String, Value>, listed_max: usize) {
    let views_of = |holder: &mut Value| holder.get_mut("views").map(Value::take);
    for volume in list_mut(members.get_mut("volumes")) {
        // Of these, the digests remain.
        if let Some(mut views) = views_of(volume) {
            for view in list_mut(Some(&mut views)) {
                view["manifest"] = Value::Null;
            }
            volume["views"] = views;
        }
    }
    for view in list_mut(members.get_mut("views")) {
        shorten(view.get_mut("changed_files"), listed_max);
    }
    for list in ["sources", "streams", "volumes"] {
        shorten(members.get_mut(list), listed_max);
    }
}

fn list_mut(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    let list = list.and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

/// A long list becomes how many there are.
fn shorten(list: Option<&mut Value>, listed_max: usize) {
    if let Some(list) = list
        && let Some(count) = list.as_array().map(Vec::len)
        && count > listed_max
    {
        *list = json!({"count": count});
    }
}

/// A document for people too, with an end of line.
fn text(document: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(document).unwrap_or_default();
    text.push(b'\n');
    text
}

/// A file that the disk was made of.
#[derive(Debug)]
pub struct Source<'a> {
    /// Its name, from the root of the inputs on.
    pub path: &'a [u8],
    /// Its length.
    pub bytes: u64,
    /// Of its content.
    pub sha256: &'a [u8; 32],
    /// What it was recognised as.
    pub format: &'a str,
    /// The streams that hold its bytes, ascending.
    pub streams: Vec<usize>,
    /// The input that it was decompressed from, where it is none itself.
    pub unzipped_from: Option<&'a Origin>,
}

/// A disk has as many as files: a value of each would take ten times what it says.
impl Serialize for Source<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // In the order of their names.
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("bytes", &self.bytes)?;
        members.serialize_entry("format", self.format)?;
        members.serialize_entry("path", &String::from_utf8_lossy(self.path))?;
        if std::str::from_utf8(self.path).is_err() {
            members.serialize_entry("path_bytes", &hex(self.path))?;
        }
        members.serialize_entry("sha256", &hex(self.sha256))?;
        members.serialize_entry("streams", &self.streams)?;
        members.serialize_entry("unzipped_from", &self.unzipped_from.map(unzipped_from))?;
        members.end()
    }
}

fn unzipped_from(origin: &Origin) -> Value {
    let members = json!({
        "bytes": origin.bytes,
        "sha256": hex(&origin.sha256),
    });
    named(members, "path", &origin.path)
}

/// A name from a file system as a member. What is not UTF-8 is replaced in it, and then its bytes stand beside it: two names are never one.
#[must_use]
pub(crate) fn named(mut members: Value, name: &str, bytes: &[u8]) -> Value {
    members[name] = String::from_utf8_lossy(bytes).into();
    if std::str::from_utf8(bytes).is_err() {
        members[format!("{name}_bytes")] = hex(bytes).into();
    }
    members
}

/// A stream; `lost` where its chain rounds.
#[must_use]
pub fn stream(chain: &Chain, written: &Written, lost: Option<&Loss>) -> Value {
    json!({
        "elements": written.elements,
        "type": chain.source().name(),
        "stored_chain": chain.to_string(),
        "steps": chain.steps().iter().map(|it| stored_step(chain, it)).collect::<Vec<_>>(),
        "stored_bytes": written.stored_bytes,
        "sha256": hex(&written.elements_sha256),
        "range": range(written.proven),
        "loss": lost.map(loss),
    })
}

/// A step of a stored chain: that of a table, or of scales, names its blob by the SHA-256.
fn stored_step(chain: &Chain, of: &Step) -> Value {
    let mut members = step(of);
    let table = of.id.table_kind().and_then(|kind| chain.table(kind));
    if let Some(table) = table {
        members["table"] = hex(&sha256(&table.to_bytes())).into();
    }
    members
}

fn step(step: &Step) -> Value {
    json!({
        "transform": step.id.0,
        "version": step.version,
        "parameter": step.parameter,
    })
}

/// What a precision presents that the sources do not hold.
#[must_use]
pub fn view(name: &str, changes: Vec<Value>, changed_files: Vec<Value>) -> Value {
    // Moved: `json!` copies what it is given, and there may be as many as files.
    let mut members = Map::new();
    members.insert("name".to_owned(), name.into());
    members.insert("changes".to_owned(), changes.into());
    members.insert("changed_files".to_owned(), changed_files.into());
    members.into()
}

/// Elements that are presented as others.
#[derive(Debug)]
pub struct Change<'a> {
    /// Their type in the sources.
    pub from: ElementType,
    /// The type, or the groups of `q8_0`, whose values they get.
    pub to: Packing,
    /// What they are presented as: `to`, or where the store has rounded them, `from`.
    pub presented_as: Packing,
    /// What made it.
    pub step: Option<&'a Step>,
    /// How many bytes they are in the sources.
    pub source_bytes: u64,
    /// Of floating point.
    pub loss: Option<&'a Loss>,
}

impl Change<'_> {
    /// As a member of the manifest.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "from": self.from.name(),
            "to": self.to.to_string(),
            "presented_as": self.presented_as.to_string(),
            "step": self.step.map(step),
            "source_bytes": self.source_bytes,
            "loss": self.loss.map(loss),
        })
    }
}

/// A file that is not its source's bytes.
#[derive(Debug)]
pub struct ChangedFile<'a> {
    /// Its name, from the root of the view on.
    pub path: &'a [u8],
    /// Which of the sources it was made of.
    pub source: usize,
    /// Presented bytes.
    pub bytes: u64,
    /// Of these.
    pub sha256: &'a [u8; 32],
    /// By the types before and behind it.
    pub losses: Vec<((ElementType, Packing), &'a Loss)>,
}

impl ChangedFile<'_> {
    /// As a member of the manifest.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let losses = self.losses.iter().map(|((from, to), lost)| {
            json!({
                "from": from.name(),
                "to": to.to_string(),
                "loss": loss(lost),
            })
        });
        let members = json!({
            "source": self.source,
            "bytes": self.bytes,
            "sha256": hex(self.sha256),
            "losses": losses.collect::<Vec<_>>(),
        });
        named(members, "path", self.path)
    }
}

/// `{"min": "0", "max": "50256"}`, as text: 64 bits are more than JSON's readers take.
#[must_use]
pub fn range(range: Option<ValueRange>) -> Value {
    let shown = range.map(|range| {
        json!({
            "min": range.min.to_string(),
            "max": range.max.to_string(),
        })
    });
    shown.into()
}

/// What rounding did to values. Errors are absolute, of numbers that are finite before and behind it; null where there is none.
#[must_use]
pub fn loss(loss: &Loss) -> Value {
    json!({
        "elements": loss.elements,
        "largest_error": loss.largest_error(),
        "rms_error": loss.rms_error(),
        "worst": loss.worst.map(|worst| json!({
            "source": worst.source,
            "presented": worst.presented,
        })),
        "saturated": loss.saturated,
        "vanished": loss.vanished,
        "nans": loss.nans,
        "infinities": loss.infinities,
    })
}

/// Hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source<'static> {
        Source {
            path: b"a",
            bytes: 1,
            sha256: &[7; 32],
            format: "unknown",
            streams: vec![0],
            unzipped_from: None,
        }
    }

    fn document(sources: usize) -> Vec<u8> {
        let view = view("source", Vec::new(), vec![json!({}); 2]);
        let nested = json!({ "views": [{ "manifest_sha256": "ab", "manifest": {} }] });
        let manifest = Manifest {
            writer: "test",
            is_lossy: false,
            sources: (0..sources).map(|_| source()).collect(),
            streams: vec![json!({})],
            views: vec![view],
            volumes: vec![nested],
        };
        manifest.into_json()
    }

    /// What is written member by member is what a value would be, so that a manifest is the same whether it was cut or not.
    #[test]
    fn a_source_is_written_as_a_value_is() {
        let origin = Origin {
            path: b"z".to_vec(),
            bytes: 9,
            sha256: [8; 32],
        };
        let odd = Source {
            path: b"a\xff\"",
            unzipped_from: Some(&origin),
            ..source()
        };
        for source in [source(), odd] {
            let written = text(&source);
            let value: Value = serde_json::from_slice(&written).unwrap();
            assert_eq!(text(&value), written);
        }
    }

    #[test]
    fn what_fits_a_blob_is_there_as_it_is_on_the_disk() {
        let whole = document(2_000);
        assert_eq!(shortened(&whole, true, whole.len()), whole);
        assert_eq!(for_a_blob(&whole, false), whole);
    }

    /// Errors are read and written again where a manifest is cut, shown, or becomes part of another one.
    #[test]
    fn every_number_is_the_same_to_the_last_bit() {
        let spread = (1..20_000u64).map(|n| f64::from_bits(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        let numbers: Vec<f64> = spread.filter(|number| number.is_finite()).collect();
        let manifest = Manifest {
            writer: "test",
            is_lossy: true,
            sources: (0..2_000).map(|_| source()).collect(),
            streams: vec![json!(numbers)],
            views: Vec::new(),
            volumes: Vec::new(),
        };
        let whole = manifest.into_json();
        let cut = shortened(&whole, true, whole.len() - 1);
        let cut: Value = serde_json::from_slice(&cut).unwrap();
        assert_eq!(cut["sources"], json!({ "count": 2_000 }));
        let list = cut["streams"][0].as_array().unwrap().iter();
        let kept: Vec<f64> = list.map(|number| number.as_f64().unwrap()).collect();
        assert!(
            kept.iter()
                .map(|it| it.to_bits())
                .eq(numbers.iter().map(|it| it.to_bits()))
        );
    }

    #[test]
    fn of_what_is_too_long_the_counts_remain_and_where_the_whole_is() {
        let whole = document(2_000);
        let first = shortened(&whole, true, whole.len() - 1).len();
        for (is_on_disk, bytes_max, listed) in [
            (true, whole.len() - 1, true),
            (false, whole.len() - 1, true),
            (true, first - 1, false),
        ] {
            let short = shortened(&whole, is_on_disk, bytes_max);
            assert!(short.len() <= bytes_max, "{}", short.len());
            let short: Value = serde_json::from_slice(&short).unwrap();
            assert_eq!(short["sources"], json!({ "count": 2_000 }));
            let on_disk = json!({
                "path": "/.xio/manifest.json",
                "bytes": whole.len(),
                "sha256": hex(&Sha256::digest(&whole)),
            });
            let on_disk = if is_on_disk { on_disk } else { Value::Null };
            assert_eq!(short["on_disk"], on_disk);
            let (streams, changed) = (&short["streams"], &short["views"][0]["changed_files"]);
            if listed {
                assert_eq!((streams, changed), (&json!([{}]), &json!([{}, {}])));
                let nested = &short["volumes"][0]["views"][0];
                assert_eq!(nested["manifest_sha256"], "ab");
                assert_eq!(nested["manifest"], Value::Null);
            } else {
                assert_eq!(streams, &json!({ "count": 1 }));
                assert_eq!(changed, &json!({ "count": 2 }));
            }
        }
    }

    #[test]
    fn names_that_look_alike_are_told_apart() {
        let [a, b, plain] =
            [&b"a\xff"[..], b"a\xfe", "ä".as_bytes()].map(|name| named(json!({}), "path", name));
        assert_eq!(a, json!({ "path": "a\u{fffd}", "path_bytes": "61ff" }));
        assert_eq!(b["path_bytes"], "61fe");
        assert_eq!(plain, json!({ "path": "ä" }));
    }
}
