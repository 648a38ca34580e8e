//! What is said of reads that failed: once for each place, whatever a reader tries.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::limits::COMPLAINTS_MAX;

type Say = Box<dyn Fn(&str) + Send + Sync>;

/// Says each thing once.
pub(crate) struct Complaints {
    say: Say,
    said: Mutex<HashSet<String>>,
    places: Mutex<Vec<Place>>,
}

/// Bytes of a file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The file's inode.
    pub(crate) file: u64,
    pub(crate) bytes: Range<u64>,
    /// They are damaged; otherwise nobody answered.
    pub(crate) is_damage: bool,
}

impl Place {
    /// Whether one goes over into the other: damage does not end where a request does.
    fn touches(&self, other: &Place) -> bool {
        (self.file, self.is_damage) == (other.file, other.is_damage)
            && self.bytes.start <= other.bytes.end
            && other.bytes.start <= self.bytes.end
    }
}

impl Complaints {
    pub(crate) fn new(say: Say) -> Complaints {
        Complaints {
            say,
            said: Mutex::default(),
            places: Mutex::default(),
        }
    }

    /// Whether it is the first time that something is told of this place. What touches a place is a part of it from then on: the kernel asks for a page again, alone,
    /// where it could not be had with others.
    pub(crate) fn is_new(&self, place: &Place) -> bool {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = places.iter_mut().find(|known| known.touches(place)) {
            let (old, new) = (&known.bytes, &place.bytes);
            known.bytes = old.start.min(new.start)..old.end.max(new.end);
            return false;
        }
        // Beyond, nothing is said anyway.
        if places.len() < COMPLAINTS_MAX {
            places.push(place.clone());
        }
        true
    }

    pub(crate) fn about(&self, text: String) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= COMPLAINTS_MAX || said.contains(&text) {
            return;
        }
        (self.say)(&text);
        said.insert(text);
        if said.len() == COMPLAINTS_MAX {
            (self.say)("more reads fail than are named here");
        }
    }
}

impl std::fmt::Debug for Complaints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Complaints")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_touches_a_place_is_of_it() {
        let complaints = Complaints::new(Box::new(|_| {}));
        let is_new = |file, bytes, is_damage| {
            complaints.is_new(&Place {
                file,
                bytes,
                is_damage,
            })
        };
        assert!(is_new(7, 4096..12_288, true));
        assert!(!is_new(7, 8192..12_288, true));
        assert!(!is_new(7, 12_288..16_384, true));
        assert!(!is_new(7, 16_384..16_385, true));
        assert!(!is_new(7, 0..4096, true));
        assert!(is_new(7, 16_386..16_387, true));
        assert!(is_new(7, 0..4096, false));
        assert!(is_new(8, 0..4096, true));
    }

    #[test]
    fn each_place_is_named_once_and_not_without_end() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = heard.clone();
        let complaints = Complaints::new(Box::new(move |text| {
            ear.lock().unwrap().push(text.to_owned());
        }));
        for turn in 0..2 * COMPLAINTS_MAX {
            complaints.about(format!("place {}", turn / 2));
        }
        complaints.about("another".to_owned());
        let heard = heard.lock().unwrap();
        assert_eq!(heard.len(), COMPLAINTS_MAX + 1);
        assert_eq!(heard[0..2], ["place 0", "place 1"]);
        assert_eq!(heard[COMPLAINTS_MAX], "more reads fail than are named here");
    }
}
