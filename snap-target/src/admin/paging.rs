//! Lists in pages.

use std::net::SocketAddr;

use admin_proto::limits::{PAGE_BYTES_MAX, PAGE_SIZE_MAX};
use admin_proto::v1::Reason;
use prost::Message;

use crate::config::FunctionName;
use crate::manage::ManageError;
use crate::text::{bytes_of_hex, hex};

/// Bytes of an answer besides its rows: the token, and what the list is true of.
const OVERHEAD_BYTES: usize = 8 << 10;
/// Bytes of a row besides its own: its tag and its length.
const ROW_OVERHEAD_BYTES: usize = 8;

/// What orders the rows of a list, and where a page ends.
pub trait Key: Ord + Sized {
    /// For a token.
    fn to_text(&self) -> String;
    /// Of a token.
    fn of_text(text: &str) -> Option<Self>;
}

impl Key for String {
    fn to_text(&self) -> String {
        self.clone()
    }

    fn of_text(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl Key for FunctionName {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn of_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Key for u16 {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn of_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Key for u32 {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn of_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Key for u64 {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn of_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Key for SocketAddr {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn of_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// The parts of a key are apart by a byte that no NQN, number, UUID or address has. The first of them is a single one; the second may have parts itself.
impl<A: Key, B: Key> Key for (A, B) {
    fn to_text(&self) -> String {
        format!("{}\0{}", self.0.to_text(), self.1.to_text())
    }

    fn of_text(text: &str) -> Option<Self> {
        let (a, b) = text.split_once('\0')?;
        Some((A::of_text(a)?, B::of_text(b)?))
    }
}

/// Which page is asked for.
#[derive(Debug)]
pub struct Page<K> {
    /// Which list it is of.
    list: &'static str,
    rows_max: usize,
    after: Option<K>,
}

impl<K: Key> Page<K> {
    /// As a request says it; `list` tells the tokens of one list from those of others.
    ///
    /// # Errors
    /// A size that is too large, or a token that was not given for this list.
    pub fn of(list: &'static str, size: u32, token: &str) -> Result<Self, ManageError> {
        let rows_max = match usize::try_from(size) {
            Ok(0) => usize::MAX,
            Ok(size) if size <= PAGE_SIZE_MAX => size,
            _ => {
                let why = format!("{size}; it is at most {PAGE_SIZE_MAX}");
                return Err(ManageError::field("page_size", why));
            }
        };
        let after = if token.is_empty() {
            None
        } else {
            let key = key_of(list, token);
            Some(key.ok_or_else(|| {
                let text = "page_token: it was not given for this list; begin without one";
                ManageError::new(Reason::PageToken, text)
            })?)
        };
        Ok(Self {
            list,
            rows_max,
            after,
        })
    }

    /// The rows of this page, and the token of the next one; empty: it is the last. `rows` come by their keys.
    pub fn take<R: Message>(&self, rows: impl IntoIterator<Item = (K, R)>) -> (Vec<R>, String) {
        let (mut page, mut last) = (Vec::new(), None);
        let mut left = PAGE_BYTES_MAX - OVERHEAD_BYTES;
        for (key, row) in rows {
            if self.after.as_ref().is_some_and(|after| key <= *after) {
                continue;
            }
            let bytes = row.encoded_len() + ROW_OVERHEAD_BYTES;
            if page.len() >= self.rows_max || bytes > left {
                let token = last.map(|key| self.token(&key));
                return (page, token.unwrap_or_default());
            }
            left -= bytes;
            page.push(row);
            last = Some(key);
        }
        (page, String::new())
    }

    fn token(&self, key: &K) -> String {
        hex(format!("{}\0{}", self.list, key.to_text()).as_bytes())
    }
}

fn key_of<K: Key>(list: &str, token: &str) -> Option<K> {
    let text = String::from_utf8(bytes_of_hex(token)?).ok()?;
    let (of, key) = text.split_once('\0')?;
    (of == list).then(|| K::of_text(key)).flatten()
}

#[cfg(test)]
mod tests {
    use admin_proto::v1;

    use super::*;

    /// Subsystem, number, UUID.
    type Disk = (String, (u32, String));

    fn rows(nsids: std::ops::Range<u32>, bytes: usize) -> Vec<(Disk, v1::Namespace)> {
        let row = |nsid| {
            let row = v1::Namespace {
                nsid,
                state_detail: "x".repeat(bytes),
                ..v1::Namespace::default()
            };
            let disk = (nsid, format!("0f0e0d0c-{nsid}"));
            (("nqn.a".to_owned(), disk), row)
        };
        nsids.map(row).collect()
    }

    /// The NSIDs of each page.
    fn pages(size: u32, rows: &[(Disk, v1::Namespace)]) -> Vec<Vec<u32>> {
        let (mut pages, mut token) = (Vec::new(), String::new());
        loop {
            let page = Page::of("namespaces", size, &token).unwrap();
            let (found, next) = page.take(rows.to_vec());
            pages.push(found.iter().map(|row| row.nsid).collect());
            if next.is_empty() {
                return pages;
            }
            token = next;
        }
    }

    #[test]
    fn pages_have_all_rows_once() {
        let rows = rows(1..8, 0);
        assert_eq!(pages(3, &rows), [vec![1, 2, 3], vec![4, 5, 6], vec![7]]);
        assert_eq!(pages(7, &rows), [vec![1, 2, 3, 4, 5, 6, 7]]);
        assert_eq!(pages(0, &rows), [vec![1, 2, 3, 4, 5, 6, 7]]);
        assert_eq!(pages(5, &[]), [vec![0; 0]]);
    }

    #[test]
    fn a_page_fits_an_answer() {
        let all = pages(0, &rows(1..40, 1 << 20));
        assert_eq!(all.len(), 3, "{all:?}");
        assert_eq!(all.concat(), (1..40).collect::<Vec<u32>>());
        let answer = v1::ListNamespacesResponse {
            namespaces: rows(1..16, 1 << 20)
                .into_iter()
                .map(|(_, row)| row)
                .collect(),
            ..v1::ListNamespacesResponse::default()
        };
        assert_eq!(all[0].len(), 15);
        assert!(answer.encoded_len() < PAGE_BYTES_MAX);
    }

    #[test]
    fn a_row_that_went_meanwhile_ends_no_page() {
        let (_, token) = Page::of("namespaces", 2, "").unwrap().take(rows(1..8, 0));
        let mut left = rows(1..8, 0);
        left.remove(1);
        let page = Page::of("namespaces", 2, &token).unwrap();
        let (found, _) = page.take(left);
        assert_eq!(found.iter().map(|row| row.nsid).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn what_this_daemon_did_not_give_is_refused() {
        let (_, token) = Page::of("namespaces", 1, "").unwrap().take(rows(1..3, 0));
        let refused =
            |list, size, token: &str| Page::<Disk>::of(list, size, token).unwrap_err().reason;
        assert_eq!(refused("controllers", 0, &token), Reason::PageToken);
        assert_eq!(refused("namespaces", 0, "xyz"), Reason::PageToken);
        assert_eq!(refused("namespaces", 0, &token[2..]), Reason::PageToken);
        let cut = hex(b"namespaces\0nqn.a\0one\0");
        assert_eq!(refused("namespaces", 0, &cut), Reason::PageToken);
        assert_eq!(refused("namespaces", 1001, ""), Reason::Field);
    }
}
