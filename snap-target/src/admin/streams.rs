//! Places for streams. Those of this machine's socket and those of TCP are counted apart, and no name of a certificate has all of the latter: whoever may only look
//! cannot keep others from looking.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use admin_proto::v1::Reason;

use super::caller::Caller;
use crate::limits::{ADMIN_STREAMS_MAX, ADMIN_STREAMS_OF_NAME_MAX};
use crate::manage::ManageError;

/// How many are open. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Streams(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    of_socket: usize,
    /// By the name in the certificate; none that has none.
    of_names: BTreeMap<String, usize>,
}

/// A stream's place, until it is dropped.
#[derive(Debug)]
pub struct Place {
    streams: Streams,
    /// Of a certificate; none: of the socket.
    name: Option<String>,
}

impl Streams {
    /// A place for one more stream of whoever asks.
    ///
    /// # Errors
    /// As many as may be are open, and whose they are.
    pub fn place(&self, caller: &Caller) -> Result<Place, ManageError> {
        let name = caller.certificate_name().map(str::to_owned);
        let mut open = self.open();
        let full = |whose: &str, most: usize| {
            let text =
                format!("{most} streams {whose} are open, and no more are possible; end one first");
            Err(ManageError::new(Reason::Limit, text))
        };
        match &name {
            None if open.of_socket >= ADMIN_STREAMS_MAX => {
                return full("of the socket", ADMIN_STREAMS_MAX);
            }
            None => open.of_socket += 1,
            Some(_) if open.of_names.values().sum::<usize>() >= ADMIN_STREAMS_MAX => {
                return full("over TCP", ADMIN_STREAMS_MAX);
            }
            Some(name) => {
                let own = open.of_names.entry(name.clone()).or_default();
                if *own >= ADMIN_STREAMS_OF_NAME_MAX {
                    return full(&format!("of {name:?}"), ADMIN_STREAMS_OF_NAME_MAX);
                }
                *own += 1;
            }
        }
        drop(open);
        Ok(Place {
            streams: self.clone(),
            name,
        })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.streams.open();
        let Some(name) = &self.name else {
            open.of_socket = open.of_socket.saturating_sub(1);
            return;
        };
        if let Some(own) = open.of_names.get_mut(name) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                open.of_names.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many places as somebody gets, and why no more.
    fn all_of(streams: &Streams, caller: &Caller) -> (Vec<Place>, String) {
        let mut places = Vec::new();
        loop {
            match streams.place(caller) {
                Ok(place) => places.push(place),
                Err(refused) => {
                    assert_eq!(refused.reason, Reason::Limit);
                    return (places, refused.to_string());
                }
            }
        }
    }

    #[test]
    fn whoever_takes_all_places_it_can_leaves_others_theirs() {
        let streams = Streams::default();
        let (greedy, why) = all_of(&streams, &Caller::of_name("greedy"));
        assert_eq!(greedy.len(), ADMIN_STREAMS_OF_NAME_MAX);
        assert!(why.contains("of \"greedy\""), "{why}");
        assert!(streams.place(&Caller::of_name("another")).is_ok());
        let names = ["b", "c", "d", "e"].map(Caller::of_name);
        let others = names.each_ref().map(|name| all_of(&streams, name));
        let places: usize = others.iter().map(|(places, _)| places.len()).sum();
        assert_eq!(greedy.len() + places, ADMIN_STREAMS_MAX);
        let [.., (_, why)] = &others;
        assert!(why.contains("over TCP"), "{why}");
        // Root on the machine is not one of them.
        let (local, why) = all_of(&streams, &Caller::default());
        assert_eq!(local.len(), ADMIN_STREAMS_MAX);
        assert!(why.contains("of the socket"), "{why}");
        // What ends gives its place back.
        drop((greedy, others, local));
        assert!(streams.place(&Caller::of_name("d")).is_ok());
        assert!(streams.open().of_names.is_empty());
    }
}
