//! The handles of a store, and what they are told.

use std::collections::BTreeMap;

use reactor::Sender;

use crate::message::{HandleId, ToHandle};

/// A handle's end of the messages.
#[derive(Debug)]
pub(super) struct Member {
    pub id: HandleId,
    pub sender: Sender<ToHandle>,
}

/// Tells the handles that have a queue.
pub(super) fn tell(
    members: &[Member],
    dealt: &BTreeMap<HandleId, u16>,
    message: impl Fn(&Member) -> ToHandle,
) {
    let has_queue = |member: &&Member| dealt.contains_key(&member.id);
    for member in members.iter().filter(has_queue) {
        if member.sender.send(message(member)).is_err() {
            tracing::error!(handle = ?member.id, "a reactor takes no messages of the store's paths");
        }
    }
}

#[cfg(test)]
mod tests {
    use reactor::{Ring, RingConfig, channel};

    use super::*;
    use crate::shared::{AssociationId, PathIndex};

    #[test]
    fn only_those_who_have_a_queue_hear_of_its_association() {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let (members, mut inboxes): (Vec<_>, Vec<_>) = (0..3)
            .map(|id| {
                let (sender, inbox) = channel(&ring, 4);
                let id = HandleId(id);
                (Member { id, sender }, inbox)
            })
            .unzip();
        let dealt = BTreeMap::from([(HandleId(1), 7)]);
        let association = AssociationId {
            path: PathIndex(0),
            generation: 1,
        };
        tell(&members, &dealt, |_| ToHandle::Lost { association });
        let heard: Vec<usize> = (inboxes.iter_mut())
            .map(|inbox| std::iter::from_fn(|| inbox.try_recv()).count())
            .collect();
        assert_eq!(heard, [0, 1, 0]);
    }
}
