//! The handles of a store, and what they are told.

use std::collections::BTreeMap;

use reactor::Sender;

use crate::lending::Lending;
use crate::message::{HandleId, ToHandle};

/// A handle's end of the messages.
#[derive(Debug)]
pub(super) struct Member {
    pub id: HandleId,
    pub sender: Sender<ToHandle>,
    /// Where it is asked for its queues.
    pub lending: Sender<Lending>,
    /// Whose queues it uses.
    pub lender: Option<HandleId>,
}

/// Gives every handle without a way one that has a way, and takes it back from who has one again. Says how many use others' queues.
pub(super) fn arrange(members: &mut [Member], has_way: impl Fn(HandleId) -> bool) -> usize {
    let ways: Vec<HandleId> = members
        .iter()
        .map(|it| it.id)
        .filter(|id| has_way(*id))
        .collect();
    for index in 0..members.len() {
        let Some(member) = members.get(index) else {
            break;
        };
        let wanted = if ways.contains(&member.id) {
            None
        } else {
            let kept = member.lender.filter(|lender| ways.contains(lender));
            let borrowers = |lender: &HandleId| {
                members
                    .iter()
                    .filter(|it| it.lender == Some(*lender))
                    .count()
            };
            kept.or_else(|| ways.iter().copied().min_by_key(borrowers))
        };
        if wanted == member.lender {
            continue;
        }
        let of = |id: HandleId| members.iter().find(|it| it.id == id);
        let lending = wanted.and_then(of).map(|lender| lender.lending.clone());
        let is_told = member.sender.send(ToHandle::Lender(lending)).is_ok();
        if is_told && let Some(member) = members.get_mut(index) {
            member.lender = wanted;
        }
    }
    members.iter().filter(|it| it.lender.is_some()).count()
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

    fn member(id: u64, sender: Sender<ToHandle>, ring: &Ring) -> Member {
        Member {
            id: HandleId(id),
            sender,
            lending: channel(ring, 4).0,
            lender: None,
        }
    }

    /// Lenders share the load, are kept while they can lend, and are taken back when they need not or cannot.
    #[test]
    fn whoever_has_no_way_is_given_one_who_has() {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let (mut members, inboxes): (Vec<_>, Vec<_>) = (0..5)
            .map(|id| {
                let (sender, inbox) = channel(&ring, 4);
                (member(id, sender, &ring), inbox)
            })
            .unzip();
        let mut arranged = |ways: &[u64]| {
            let count = arrange(&mut members, |id| ways.contains(&id.0));
            let lenders: Vec<_> = members.iter().map(|it| it.lender.map(|id| id.0)).collect();
            let heard: Vec<_> = (inboxes.iter())
                .map(|inbox| match inbox.try_recv() {
                    Some(ToHandle::Lender(lender)) => Some(lender.is_some()),
                    _ => None,
                })
                .collect();
            (count, lenders, heard)
        };
        let (given, taken) = (Some(true), Some(false));
        let all = vec![None; 5];
        assert_eq!(arranged(&[]), (0, all.clone(), vec![None; 5]));
        let (count, lenders, heard) = arranged(&[0, 1]);
        assert_eq!(
            (count, lenders),
            (3, vec![None, None, Some(0), Some(1), Some(0)])
        );
        assert_eq!(heard, [None, None, given, given, given]);
        assert_eq!(arranged(&[0, 1]).2, [None; 5], "nothing is new");
        let (count, lenders, heard) = arranged(&[1, 2]);
        assert_eq!(
            (count, lenders),
            (3, vec![Some(2), None, None, Some(1), Some(1)])
        );
        assert_eq!(heard, [given, None, taken, None, given]);
        let (count, lenders, heard) = arranged(&[]);
        assert_eq!((count, lenders), (0, all));
        assert_eq!(heard, [taken, None, None, taken, taken]);
    }

    #[test]
    fn only_those_who_have_a_queue_hear_of_its_association() {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let (members, mut inboxes): (Vec<_>, Vec<_>) = (0..3)
            .map(|id| {
                let (sender, inbox) = channel(&ring, 4);
                (member(id, sender, &ring), inbox)
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
