//! What two disks say of their files, for those who trust them.

use std::collections::HashMap;

use serde_json::Value;

use super::side::Tree;
use crate::failure::Failure;

/// The version of the document that is understood; another one is not trusted.
const VERSION: u64 = 1;
/// Bytes of a manifest that is read.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// SHA-256 and length of files, by path.
type Known = HashMap<String, (String, u64)>;

/// The digests of both sides.
pub struct Digests {
    a: Known,
    b: Known,
}

impl Digests {
    /// Those of both, or `None` where one has none.
    pub fn of_both(a: &Tree<'_>, b: &Tree<'_>) -> Result<Option<Digests>, Failure> {
        let (Some(a), Some(b)) = (of(a)?, of(b)?) else {
            return Ok(None);
        };
        Ok(Some(Digests { a, b }))
    }

    /// Whether the file of this path and of these lengths is the same, where both say what it is.
    pub fn same(&self, path: &[u8], (in_a, in_b): (u64, u64)) -> Option<bool> {
        // The manifest writes other names in a way that two names may share.
        let plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'\\';
        let path = std::str::from_utf8(path).ok()?;
        if !path.as_bytes().iter().all(plain) {
            return None;
        }
        let (a, b) = (self.a.get(path)?, self.b.get(path)?);
        // A manifest that is wrong about lengths is not one of these files.
        (a.1 == in_a && b.1 == in_b).then_some(a.0 == b.0)
    }
}

fn of(tree: &Tree<'_>) -> Result<Option<Known>, Failure> {
    let Some(item) = &tree.manifest else {
        return Ok(None);
    };
    if item.bytes > MANIFEST_BYTES_MAX {
        return Ok(None);
    }
    let mut text = vec![0; usize::try_from(item.bytes).unwrap_or(0)];
    tree.open(b".xio/manifest.json", item)?.read(0, &mut text)?;
    let document: Value = serde_json::from_slice(&text).unwrap_or_default();
    Ok(known(&document))
}

/// The files of every view, as the disk names them.
fn known(document: &Value) -> Option<Known> {
    if document["xio_manifest"] != VERSION {
        return None;
    }
    let sources = files(&document["sources"])?;
    let views = document["views"].as_array()?;
    let mut known = Known::new();
    for view in views {
        // One view is the root; several have a folder each.
        let prefix = match views.as_slice() {
            [_] => String::new(),
            _ => format!("{}/", view["name"].as_str()?),
        };
        let changed = files(&view["changed_files"])?;
        for (path, of) in sources.iter().chain(&changed) {
            known.insert(format!("{prefix}{path}"), of.clone());
        }
    }
    Some(known)
}

fn files(list: &Value) -> Option<Vec<(String, (String, u64))>> {
    let one = |file: &Value| {
        let path = file["path"].as_str()?.to_owned();
        let digest = file["sha256"].as_str()?.to_owned();
        Some((path, (digest, file["bytes"].as_u64()?)))
    };
    list.as_array()?.iter().map(one).collect()
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
        let one = json!({ "xio_manifest": 1, "sources": sources, "views": [bf16] });
        let one = known(&one).unwrap();
        assert_eq!(one["a"], ("3".to_owned(), 4));
        assert_eq!(one["b"], ("2".to_owned(), 9));
        let two = json!({ "xio_manifest": 1, "sources": sources, "views": [source, bf16] });
        let two = known(&two).unwrap();
        assert_eq!(two["source/a"], ("1".to_owned(), 8));
        assert_eq!(two["bf16/a"], ("3".to_owned(), 4));
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
    fn what_is_no_manifest_is_not_trusted() {
        for document in [
            json!(null),
            json!({ "xio_manifest": 2, "sources": [], "views": [] }),
            json!({ "xio_manifest": 1, "sources": { "count": 5 }, "views": [] }),
            json!({ "xio_manifest": 1, "sources": [{ "path": 5 }], "views": [] }),
        ] {
            assert!(known(&document).is_none(), "{document}");
        }
    }
}
