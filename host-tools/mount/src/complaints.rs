//! What is said of reads that failed: once for each place, whatever a reader tries.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::limits::COMPLAINTS_MAX;

type Say = Box<dyn Fn(&str) + Send + Sync>;

/// Says each thing once.
pub(crate) struct Complaints {
    say: Say,
    said: Mutex<HashSet<String>>,
}

impl Complaints {
    pub(crate) fn new(say: Say) -> Complaints {
        Complaints {
            say,
            said: Mutex::new(HashSet::new()),
        }
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
