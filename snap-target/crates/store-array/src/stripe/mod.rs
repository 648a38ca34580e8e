//! Bytes spread over members in units: unit *u* is at `(u div members) * unit` of member `u mod members`, as docs/format.md has it of striped sources. Each member ends
//! in a label; what is left between the last whole row and the label is not used.

mod geometry;
mod handle;
mod label;

use reactor::Ring;
use store::{
    Backend, BlockingStore, Durability, Limits, Op, Problem, SharedStore, Store, StoreError,
    TRANSFER_BYTES_MIN,
};

use crate::error::ArrayError;
use crate::limits::{LABEL_BYTES, MEMBERS_MAX, QUEUE_DEPTH_MAX, UNIT_BYTES_MAX, UNIT_BYTES_MIN};
/// The generation of a stripe that is being made.
const MAKING: u64 = 1;

use geometry::Geometry;
use handle::StripeHandle;
pub use label::{Label, SetId};

/// Opens the stripe over these members, in their order. Where they take writes it is of a new generation from then on, so that a copy of a member from
/// before is told from it.
///
/// # Errors
/// They are not the members of one stripe of this unit, in this order, at one time.
pub fn open(
    members: Vec<SharedStore>,
    unit_bytes: u32,
) -> Result<(SharedStore, SetId), ArrayError> {
    check(&members, unit_bytes)?;
    let labels = read_labels(&members)?;
    let mut found = Vec::with_capacity(members.len());
    for (member, label) in members.iter().zip(labels) {
        found.push(match label {
            Some(label) => label,
            None => return Err(no_label(member)?),
        });
    }
    let set = found[0].set;
    for (index, (member, label)) in members.iter().zip(&found).enumerate() {
        check_label(member, label, set, index, members.len(), unit_bytes)?;
    }
    let last = generation_of(&members, &found)?;
    let is_whole = found
        .iter()
        .all(|label| label.generation == last && label.is_settled);
    if last == MAKING && !is_whole {
        let member = members[0].name().to_owned();
        return Err(ArrayError::Unfinished { member });
    }
    if members.iter().all(|member| member.limits().writable) {
        // Labels that were being written are finished first: never are there more than two generations.
        let next = if is_whole { last + 1 } else { last };
        write_labels(&members, unit_bytes, set, next)?;
    }
    Ok((assembled(members, unit_bytes)?, set))
}

/// The same, where members that are all blank become a new stripe `fresh` first, and one whose making was interrupted is finished. Members with whole labels
/// are opened as they are: what was made stays.
///
/// # Errors
/// As [`open`]; a member that is neither blank nor labelled, or takes no writes.
pub fn open_or_make(
    members: Vec<SharedStore>,
    unit_bytes: u32,
    fresh: SetId,
) -> Result<(SharedStore, SetId), ArrayError> {
    check(&members, unit_bytes)?;
    let labels = read_labels(&members)?;
    if is_to_be_made(&members, &labels)? {
        let set = labels.iter().flatten().next().map_or(fresh, |it| it.set);
        for (index, (member, label)) in members.iter().zip(&labels).enumerate() {
            if let Some(label) = label {
                check_label(member, label, set, index, members.len(), unit_bytes)?;
            }
        }
        write_labels(&members, unit_bytes, set, MAKING)?;
    }
    open(members, unit_bytes).map_err(|error| match error {
        ArrayError::NoLabel {
            member,
            is_blank: false,
        } => ArrayError::NotBlank { member },
        ArrayError::NoLabel { member, .. } => ArrayError::Mismatch {
            member,
            why: "it is blank, and others are members of a stripe that was whole".to_owned(),
        },
        other => other,
    })
}

/// Whether members are all blank, or of a stripe whose making was interrupted: nothing was served with its labels, so nothing is lost on those that are blank.
fn is_to_be_made(members: &[SharedStore], labels: &[Option<Label>]) -> Result<bool, ArrayError> {
    let is_unfinished = |label: &Label| label.generation == MAKING && !label.is_settled;
    let mut there = labels.iter().flatten();
    if labels.iter().all(Option::is_some) {
        let is_first = there.clone().all(|label| label.generation == MAKING);
        return Ok(is_first && there.any(is_unfinished));
    }
    if !there.all(is_unfinished) {
        return Ok(false);
    }
    for (member, label) in members.iter().zip(labels) {
        if label.is_none() && !is_blank(member)? {
            let member = member.name().to_owned();
            return Err(ArrayError::NotBlank { member });
        }
    }
    Ok(true)
}

/// The last generation of which there are labels; a member of an earlier one was put back from another time, unless the labels of the last were just being
/// written, when nothing was served with it.
fn generation_of(members: &[SharedStore], labels: &[Label]) -> Result<u64, ArrayError> {
    let last = labels.iter().map(|label| label.generation).max();
    let last = last.unwrap_or(MAKING);
    let is_last = |label: &Label| label.generation == last;
    let all_had_it = labels
        .iter()
        .any(|label| is_last(label) && label.is_settled);
    for (member, label) in members.iter().zip(labels) {
        let is_before = label.generation + 1 == last && label.is_settled && !all_had_it;
        if !is_last(label) && !is_before {
            return Err(ArrayError::Stale {
                member: member.name().to_owned(),
                generation: label.generation,
                last,
            });
        }
    }
    Ok(last)
}

fn check(members: &[SharedStore], unit_bytes: u32) -> Result<(), ArrayError> {
    if !(2..=MEMBERS_MAX).contains(&members.len()) {
        return Err(ArrayError::Members {
            count: members.len(),
        });
    }
    let is_unit = (UNIT_BYTES_MIN..=UNIT_BYTES_MAX).contains(&unit_bytes)
        && unit_bytes.is_multiple_of(LABEL_BYTES);
    if !is_unit {
        return Err(ArrayError::Unit {
            bytes: unit_bytes.into(),
        });
    }
    for member in members {
        units_of(member, unit_bytes)?;
    }
    Ok(())
}

/// Where a member's label is.
fn label_at(member: &SharedStore) -> Result<u64, ArrayError> {
    let bytes = member.bytes();
    let end = bytes - bytes % u64::from(LABEL_BYTES);
    end.checked_sub(u64::from(LABEL_BYTES))
        .ok_or_else(|| too_small(member))
}

/// Whole units before its label.
fn units_of(member: &SharedStore, unit_bytes: u32) -> Result<u64, ArrayError> {
    match label_at(member)? / u64::from(unit_bytes) {
        0 => Err(too_small(member)),
        units => Ok(units),
    }
}

fn too_small(member: &SharedStore) -> ArrayError {
    ArrayError::TooSmall {
        member: member.name().to_owned(),
        bytes: member.bytes(),
    }
}

fn block(member: &SharedStore, offset: u64) -> Result<Vec<u8>, ArrayError> {
    let mut block = vec![0; LABEL_BYTES as usize];
    BlockingStore::new(member)?.read(offset, &mut block)?;
    Ok(block)
}

fn is_blank(member: &SharedStore) -> Result<bool, ArrayError> {
    for offset in [0, label_at(member)?] {
        if block(member, offset)?.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn read_labels(members: &[SharedStore]) -> Result<Vec<Option<Label>>, ArrayError> {
    let read = |member: &SharedStore| {
        let block = block(member, label_at(member)?)?;
        Label::parse(member.name(), &block)
    };
    members.iter().map(read).collect()
}

fn no_label(member: &SharedStore) -> Result<ArrayError, ArrayError> {
    Ok(ArrayError::NoLabel {
        member: member.name().to_owned(),
        is_blank: is_blank(member)?,
    })
}

/// Whether it is the label of this member, in this place.
fn check_label(
    member: &SharedStore,
    label: &Label,
    set: SetId,
    index_z: usize,
    members: usize,
    unit_bytes: u32,
) -> Result<(), ArrayError> {
    label.check(member.name(), set, index_z, members, unit_bytes)?;
    if label.units == units_of(member, unit_bytes)? {
        return Ok(());
    }
    Err(ArrayError::Mismatch {
        member: member.name().to_owned(),
        why: format!(
            "its label counts {} units, and it has another size now",
            label.units
        ),
    })
}

/// Labels the members with a generation: first all of them as being written, then all as settled. Interrupted, it can be done again, and members of this
/// generation and of the one before go together until the first one is settled.
fn write_labels(
    members: &[SharedStore],
    unit_bytes: u32,
    set: SetId,
    generation: u64,
) -> Result<(), ArrayError> {
    if let Some(member) = members.iter().find(|member| !member.limits().writable) {
        let member = member.name().to_owned();
        return Err(ArrayError::ReadOnly { member });
    }
    for is_settled in [false, true] {
        for (index_z, member) in members.iter().enumerate() {
            let label = Label {
                set,
                unit_bytes,
                index_z,
                members: members.len(),
                units: units_of(member, unit_bytes)?,
                generation,
                is_settled,
            };
            let mut store = BlockingStore::new(member)?;
            store.write(label_at(member)?, &label.to_block())?;
            store.run(Op::Flush)?;
        }
    }
    Ok(())
}

fn assembled(members: Vec<SharedStore>, unit_bytes: u32) -> Result<SharedStore, ArrayError> {
    let mut rows = u64::MAX;
    for member in &members {
        rows = rows.min(units_of(member, unit_bytes)?);
    }
    let geometry = Geometry::new(unit_bytes, members.len());
    let limits = limits(&members, &geometry, rows);
    let names: Vec<&str> = members.iter().map(SharedStore::name).collect();
    Ok(SharedStore::new(StripeBackend {
        name: format!("stripe over {}", names.join(" and ")),
        geometry,
        limits,
        members,
    }))
}

/// What every member can do.
fn limits(members: &[SharedStore], geometry: &Geometry, rows: u64) -> Limits {
    let of: Vec<Limits> = members.iter().map(SharedStore::limits).collect();
    let least = |number: fn(&Limits) -> u32| of.iter().map(number).min().unwrap_or(1);
    let all = |is: fn(&Limits) -> bool| of.iter().all(is);
    let mut limits = Limits::new(rows * geometry.row_bytes());
    limits.alignment_bytes = of.iter().map(|it| it.alignment_bytes).max().unwrap_or(1);
    limits.transfer_bytes_max = TRANSFER_BYTES_MIN;
    limits.range_bytes_max = least(|it| it.range_bytes_max);
    limits.segments_max = least(|it| it.segments_max);
    limits.queue_depth_max = QUEUE_DEPTH_MAX;
    let atomic = least(|it| it.atomic_write_bytes);
    // Never over two units, and so never over two members.
    limits.atomic_write_bytes = if geometry.unit_bytes().is_multiple_of(atomic.into()) {
        atomic
    } else {
        1
    };
    limits.discard_zeroes = all(|it| it.discard_zeroes);
    limits.guest_memory = all(|it| it.guest_memory);
    limits.ends_in_submit = all(|it| it.ends_in_submit);
    limits.writable = all(|it| it.writable);
    limits.polled_when_idle = !all(|it| !it.polled_when_idle);
    limits.lingers_ms = of.iter().map(|it| it.lingers_ms).max().unwrap_or(0);
    let bounds: Option<Vec<u32>> = of.iter().map(|it| it.cancel_bound_ms).collect();
    limits.cancel_bound_ms = bounds.and_then(|bounds| bounds.into_iter().max());
    limits.durability = weakest(of.iter().map(|it| it.durability));
    limits
}

fn weakest(durabilities: impl Iterator<Item = Durability>) -> Durability {
    durabilities.fold(Durability::Always, |weakest, it| match (weakest, it) {
        (Durability::None, _) | (_, Durability::None) => Durability::None,
        (Durability::AfterFlush, _) | (_, Durability::AfterFlush) => Durability::AfterFlush,
        _ => it,
    })
}

#[derive(Debug)]
struct StripeBackend {
    name: String,
    geometry: Geometry,
    limits: Limits,
    members: Vec<SharedStore>,
}

impl Backend for StripeBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        let members: Vec<String> = self.members.iter().map(SharedStore::describe).collect();
        let unit_kib = self.geometry.unit_bytes() >> 10;
        format!(
            "units of {unit_kib} KiB over {} members: {}",
            members.len(),
            members.join("; ")
        )
    }

    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn problems(&self) -> Vec<Problem> {
        let of = |member: &SharedStore| {
            let name = member.name().to_owned();
            let problems = member.problems().into_iter();
            problems.map(move |Problem { text, mend }| Problem {
                text: format!("{name}: {text}"),
                mend,
            })
        };
        self.members.iter().flat_map(of).collect()
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        let members = self.members.iter().map(|member| member.open_handle(ring));
        let members = members.collect::<Result<Vec<_>, _>>()?;
        Ok(Box::new(StripeHandle::new(
            &self.name,
            self.geometry,
            self.limits.clone(),
            members,
        )))
    }
}
