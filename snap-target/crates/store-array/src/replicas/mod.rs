//! Several stores with the same bytes: a read goes to the one that has the fewest outstanding, and to another where that fails or does not answer. Nothing is written.

mod doubts;
mod handle;
mod member;
mod read;
mod standing;

use std::sync::Arc;
use std::time::Duration;

use reactor::buf::{Pool, PoolConfig};
use reactor::{ReactorError, Ring};
use store::{Backend, BlockingStore, Limits, Problem, SharedStore, Store, StoreError};

use crate::error::ArrayError;
use crate::limits::{HEAD_BYTES, LABEL_BYTES, LOAN_SLOTS, MEMBERS_MAX, QUEUE_DEPTH_MAX};
use handle::ReplicaHandle;
use standing::Standing;

/// A read that is not answered for so long is given to another replica; it is looked at twice in that time.
pub const PATIENCE: Duration = Duration::from_millis(500);

const MEND_MISSING: &str =
    "bring the replica back, then `snapctl namespace detach` and `attach`: it is used from then on";
const MEND_WRONG: &str = "bring the replica back from a copy of one that is right (`xio verify` says what is damaged), then `snapctl namespace detach` and `attach`";
const MEND_FAILING: &str = "see to the replica's disk, or to the machine and the network behind it; the others serve meanwhile, and it is asked again";

/// A replica as the caller found it.
#[derive(Debug)]
pub struct Member {
    /// As it is named.
    pub name: String,
    /// Opened, or why not: one that cannot be opened is left out, and said to be a problem.
    pub store: Result<SharedStore, String>,
}

/// Opens the replicas that are there.
///
/// # Errors
/// One of them has another size, beginning or end than the first; none is there.
pub fn open(members: Vec<Member>, patience: Duration) -> Result<SharedStore, ArrayError> {
    if !(2..=MEMBERS_MAX).contains(&members.len()) {
        let count = members.len();
        return Err(ArrayError::Members { count });
    }
    let names: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    for Member { name, store } in members {
        match store {
            Ok(store) => there.push(store),
            Err(why) => missing.push(format!(
                "replica {name} is not used until the namespace is attached anew: {why}"
            )),
        }
    }
    let Some((first, others)) = there.split_first() else {
        let why = missing.join("; ");
        return Err(ArrayError::NoneThere { why });
    };
    let ends = Ends::of(first)?;
    for other in others {
        ends.compare(first, other)?;
    }
    Ok(SharedStore::new(ReplicaBackend {
        name: format!("replicas {}", names.join(" and ")),
        limits: limits(&there),
        standing: Arc::new(Standing::new(there.len())),
        missing,
        members: there,
        patience,
    }))
}

/// What tells replicas from other things. Of a volume, beginning and end are its superblocks: UUID, generation, digests of what they refer to.
struct Ends {
    bytes: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Ends {
    fn of(member: &SharedStore) -> Result<Ends, ArrayError> {
        let bytes = member.bytes();
        let read = |at: u64, most: u32| {
            // At most `most`.
            let len = usize::try_from((bytes - at).min(most.into())).unwrap_or(0);
            let mut part = vec![0; len];
            BlockingStore::new(member)?.read(at, &mut part)?;
            Ok::<_, ArrayError>(part)
        };
        Ok(Ends {
            bytes,
            head: read(0, HEAD_BYTES)?,
            tail: read(bytes.saturating_sub(LABEL_BYTES.into()), LABEL_BYTES)?,
        })
    }

    fn compare(&self, first: &SharedStore, member: &SharedStore) -> Result<(), ArrayError> {
        let why = if member.bytes() == self.bytes {
            match self.first_difference(&Ends::of(member)?) {
                None => return Ok(()),
                Some(at) => format!("they differ from byte {at} on"),
            }
        } else {
            format!("it has {} bytes in place of {}", member.bytes(), self.bytes)
        };
        Err(ArrayError::NoReplica {
            member: member.name().to_owned(),
            first: first.name().to_owned(),
            why,
        })
    }

    /// Of ends of the same size.
    fn first_difference(&self, other: &Ends) -> Option<u64> {
        let differ = |ours: &[u8], theirs: &[u8], from: u64| {
            let at = ours.iter().zip(theirs).position(|(a, b)| a != b)?;
            Some(from + at as u64)
        };
        let tail_at = self.bytes.saturating_sub(LABEL_BYTES.into());
        differ(&self.head, &other.head, 0).or_else(|| differ(&self.tail, &other.tail, tail_at))
    }
}

/// What every replica can do. Nothing is written, so nothing is promised of writes.
fn limits(members: &[SharedStore]) -> Limits {
    let of: Vec<Limits> = members.iter().map(SharedStore::limits).collect();
    let least = |number: fn(&Limits) -> u32| of.iter().map(number).min().unwrap_or(1);
    let mut limits = Limits::new(of.first().map_or(0, |it| it.bytes));
    limits.alignment_bytes = of.iter().map(|it| it.alignment_bytes).max().unwrap_or(1);
    limits.transfer_bytes_max = least(|it| it.transfer_bytes_max);
    limits.segments_max = least(|it| it.segments_max);
    limits.queue_depth_max = QUEUE_DEPTH_MAX;
    limits.guest_memory = of.iter().all(|it| it.guest_memory);
    // One that promises nothing has no buffer of a read.
    limits.cancel_bound_ms = of.iter().map(|it| it.cancel_bound_ms.unwrap_or(0)).max();
    limits.polled_when_idle = of.iter().any(|it| it.polled_when_idle);
    limits
}

fn loans() -> PoolConfig {
    let [slots_4k, slots_16k, slots_64k, slots_128k, slots_1m] = LOAN_SLOTS;
    PoolConfig {
        slots_4k,
        slots_16k,
        slots_64k,
        slots_128k,
        slots_1m,
        register: false,
    }
}

#[derive(Debug)]
struct ReplicaBackend {
    name: String,
    limits: Limits,
    members: Vec<SharedStore>,
    standing: Arc<Standing>,
    /// What to say of those that could not be opened.
    missing: Vec<String>,
    patience: Duration,
}

impl Backend for ReplicaBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        let members: Vec<String> = self.members.iter().map(SharedStore::describe).collect();
        format!("{} replicas: {}", members.len(), members.join("; "))
    }

    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn problems(&self) -> Vec<Problem> {
        let missing = self.missing.iter().map(|text| Problem {
            text: text.clone(),
            mend: MEND_MISSING,
        });
        let mut problems: Vec<_> = missing.collect();
        for (index, member) in self.members.iter().enumerate() {
            let name = member.name();
            problems.extend(member.problems().into_iter().map(|own| Problem {
                text: format!("replica {name}: {}", own.text),
                ..own
            }));
            problems.extend(self.standing.wrong(index).map(|wrong| Problem {
                text: format!("replica {name} {wrong}"),
                mend: MEND_WRONG,
            }));
            problems.extend(self.standing.failure(index).map(|why| Problem {
                text: format!("replica {name} is asked after the others: {why}"),
                mend: MEND_FAILING,
            }));
        }
        problems
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        let resources = |error: ReactorError| StoreError::Resources {
            store: self.name.clone(),
            why: error.to_string(),
        };
        let members = self.members.iter().map(|member| {
            let store = member.open_handle(ring)?;
            let keeps = store.limits().cancel_bound_ms.is_none();
            let loans = keeps.then(|| Pool::new(ring, &loans())).transpose();
            Ok::<_, StoreError>((store, loans.map_err(resources)?))
        });
        let members = members.collect::<Result<Vec<_>, _>>()?;
        let owner = ring.register().map_err(resources)?;
        let with = (self.standing.clone(), owner, self.patience);
        let handle = ReplicaHandle::new(&self.name, self.limits.clone(), members, with);
        Ok(Box::new(handle))
    }
}
