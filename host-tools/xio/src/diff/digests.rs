//! What two disks say of their files, for those who trust them.

use std::collections::HashMap;

use dataset::document::hex;
use dataset::own;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::side::{Side, Tree};
use crate::failure::Failure;
use crate::medium::Source;

/// The version of the document that is understood; another one is not trusted.
const VERSION: u64 = 1;
/// Bytes of a manifest that is read.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// SHA-256 and length of files, by path.
type Known = HashMap<Vec<u8>, (String, u64)>;

/// The digests of both sides.
pub struct Digests {
    a: Known,
    b: Known,
}

impl Digests {
    /// Those of both, or `None` where one has none that can be trusted, which a person is told.
    pub fn of_both(a: &Tree<'_>, b: &Tree<'_>) -> Result<Option<Digests>, Failure> {
        match (of(a)?, of(b)?) {
            (Ok(a), Ok(b)) => Ok(Some(Digests { a, b })),
            (in_a, in_b) => {
                for (tree, found) in [(a, in_a), (b, in_b)] {
                    if let Err(why) = found {
                        let name = tree.side.name();
                        let what = "--trust-digests: all bytes are read, for there are no digests to trust";
                        printout::stderr::note(format_args!("{what}: {name}: {why}"));
                    }
                }
                Ok(None)
            }
        }
    }

    /// Whether the file of this path and of these lengths is the same, where both say what it is.
    pub fn same(&self, path: &[u8], (in_a, in_b): (u64, u64)) -> Option<bool> {
        let (a, b) = (self.a.get(path)?, self.b.get(path)?);
        // A manifest that is wrong about lengths is not one of these files.
        (a.1 == in_a && b.1 == in_b).then_some(a.0 == b.0)
    }
}

/// What a tree says of its files, or why that is not to be trusted. A folder may be a copy that was changed; a file on a disk may have come from another
/// disk: it is trusted where it is what the volume says of itself.
fn of(tree: &Tree<'_>) -> Result<Result<Known, &'static str>, Failure> {
    let Side::Source(_, source) = tree.side else {
        return Ok(Err("a folder has none of its own"));
    };
    let Source::Volume(volume) = source else {
        return Ok(Err(
            "those of a namespace cannot be held against its volume",
        ));
    };
    let item = tree.manifest.as_ref();
    let Some(item) = item.filter(|item| item.bytes <= MANIFEST_BYTES_MAX) else {
        return Ok(Err("it has no manifest"));
    };
    let mut text = vec![0; usize::try_from(item.bytes).unwrap_or(0)];
    tree.open(own::MANIFEST, item)?.read(0, &mut text)?;
    let said = volume
        .manifest()
        .map_err(|failure| failure.about(tree.side.name()))?;
    if !said.is_some_and(|said| is_of(&text, &said)) {
        return Ok(Err(
            "its manifest is not the one that the volume was made with",
        ));
    }
    let document: Value = serde_json::from_slice(&text).unwrap_or_default();
    Ok(known(&document).ok_or("its manifest has none that this program understands"))
}

/// Whether the file is what the volume says, or what it says a digest of.
fn is_of(text: &[u8], said: &[u8]) -> bool {
    let digest = || {
        let document: Value = serde_json::from_slice(said).ok()?;
        Some(document["on_disk"]["sha256"].as_str()?.to_owned())
    };
    text == said || digest().is_some_and(|digest| digest == hex(&Sha256::digest(text)))
}

/// The files of every view, as the disk names them.
fn known(document: &Value) -> Option<Known> {
    let mut known = Known::new();
    add(document, b"", &mut known)?;
    Some(known)
}

/// Those of a document whose disk, or directory of one, is at `place`: readers of JSON have bounded how deep documents go.
fn add(document: &Value, place: &[u8], known: &mut Known) -> Option<()> {
    if document["xio_manifest"] != VERSION {
        return None;
    }
    let sources = files(&document["sources"])?;
    let views = document["views"].as_array()?;
    for view in views {
        // One view is the root; several have a folder each.
        let folder = match views.as_slice() {
            [_] => String::new(),
            _ => format!("{}/", view["name"].as_str()?),
        };
        let changed = files(&view["changed_files"])?;
        for (path, of) in sources.iter().chain(&changed) {
            known.insert([place, folder.as_bytes(), path].concat(), of.clone());
        }
    }
    for volume in document["volumes"].as_array()? {
        for view in volume["views"].as_array()? {
            let mut below = [place, &bytes_of(view, "path")?].concat();
            // Of others, what is presented is no file that the document knows.
            if view["is_filesystem"] != true || !view["manifest"].is_object() {
                continue;
            }
            if !below.is_empty() && !below.ends_with(b"/") {
                below.push(b'/');
            }
            add(&view["manifest"], &below, known)?;
        }
    }
    Some(())
}

fn files(list: &Value) -> Option<Known> {
    let one = |file: &Value| {
        let digest = file["sha256"].as_str()?.to_owned();
        Some((bytes_of(file, "path")?, (digest, file["bytes"].as_u64()?)))
    };
    list.as_array()?.iter().map(one).collect()
}

/// A name, whose bytes stand beside it where it is no text.
fn bytes_of(holder: &Value, name: &str) -> Option<Vec<u8>> {
    match holder.get(format!("{name}_bytes")) {
        None => Some(holder[name].as_str()?.as_bytes().to_vec()),
        Some(hex) => {
            let (pairs, []) = hex.as_str()?.as_bytes().as_chunks::<2>() else {
                return None;
            };
            let byte =
                |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
            pairs.iter().map(byte).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(path: &str, sha256: &str, bytes: u64) -> Value {
        json!({ "path": path, "sha256": sha256, "bytes": bytes })
    }

    #[test]
    fn a_changed_file_has_the_digest_of_what_is_presented() {
        let sources = [file("a", "1", 8), file("b", "2", 9)];
        let bf16 = json!({ "name": "bf16", "changed_files": [file("a", "3", 4)] });
        let source = json!({ "name": "source", "changed_files": [] });
        let one = json!({ "xio_manifest": 1, "sources": sources, "views": [bf16], "volumes": [] });
        let one = known(&one).unwrap();
        assert_eq!(one[&b"a"[..]], ("3".to_owned(), 4));
        assert_eq!(one[&b"b"[..]], ("2".to_owned(), 9));
        let two = json!({ "xio_manifest": 1, "sources": sources, "views": [source, bf16], "volumes": [] });
        let two = known(&two).unwrap();
        assert_eq!(two[&b"source/a"[..]], ("1".to_owned(), 8));
        assert_eq!(two[&b"bf16/a"[..]], ("3".to_owned(), 4));
        assert_eq!(two.len(), 4);

        let both = Digests { a: one, b: two };
        assert_eq!(both.same(b"a", (4, 4)), None);
        let same = Digests {
            a: both.a.clone(),
            b: both.a,
        };
        assert_eq!(same.same(b"a", (4, 4)), Some(true));
        assert_eq!(same.same(b"a", (4, 5)), None);
    }

    #[test]
    fn the_manifests_of_volumes_are_known_by_the_places_of_their_views() {
        let names = [("a", json!(null)), ("b\u{fffd}", json!("62ff"))];
        let sources = names.map(|(path, bytes)| {
            let mut file = file(path, "1", 8);
            if !bytes.is_null() {
                file["path_bytes"] = bytes;
            }
            file
        });
        let view = json!({ "name": "source", "changed_files": [] });
        let of_volume =
            json!({ "xio_manifest": 1, "sources": sources, "views": [view], "volumes": [] });
        let view = |path, is_filesystem| json!({ "path": path, "is_filesystem": is_filesystem, "manifest": of_volume });
        let all = json!({ "xio_manifest": 1, "sources": [], "views": [], "volumes": [
            { "views": [view("x", true), view("elements", false)] },
            { "views": [view("", true), { "path": "y", "is_filesystem": true, "manifest": null }] },
        ]});
        let known = known(&all).unwrap();
        let mut names: Vec<&[u8]> = known.keys().map(Vec::as_slice).collect();
        names.sort_unstable();
        assert_eq!(names, [&b"a"[..], b"b\xff", b"x/a", b"x/b\xff"]);
    }

    #[test]
    fn a_manifest_is_the_volumes_own_or_another() {
        let text = b"what a disk says of itself";
        let digest = "d71e05ea37ea54cd8ffa75cf4a4d9bd7c8ccbf1ad7d1bcf0cb8d2fae6ee6ee3e";
        let recorded = |digest: &str| json!({ "on_disk": { "sha256": digest } }).to_string();
        assert!(is_of(text, text));
        assert!(is_of(
            text,
            recorded(&hex(&Sha256::digest(text))).as_bytes()
        ));
        for other in ["", "what another says", "{}", &recorded(digest)] {
            assert!(!is_of(text, other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn what_is_no_manifest_is_not_trusted() {
        for document in [
            json!(null),
            json!({ "xio_manifest": 2, "sources": [], "views": [] }),
            json!({ "xio_manifest": 1, "sources": { "count": 5 }, "views": [], "volumes": [] }),
            json!({ "xio_manifest": 1, "sources": [{ "path": 5 }], "views": [], "volumes": [] }),
            json!({ "xio_manifest": 1, "sources": [], "views": [] }),
        ] {
            assert!(known(&document).is_none(), "{document}");
        }
    }
}
