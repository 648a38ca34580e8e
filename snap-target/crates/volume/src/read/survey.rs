//! Surveys: what a read would want, said without carrying it out.
//!
//! A survey waits for as little as it can, so that what it names is asked for at once: for the blocks that say where frames are, and for no checksums. Those
//! whoever reads will look for, so they are named beside the rest ([`Want::Table`]).

use std::ops::Range;

use super::{Context, ReadOp};
use crate::VolumeError;
use crate::fetch::{TableBlock, Want};
use crate::format::Table;
use crate::volume::Volume;

/// Whether anything is known of what will be read behind a survey's range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Nothing is.
    Range,
    /// What follows it: the block of each table behind those of the range is named too, so that the next surveys find it there.
    Onward,
}

impl ReadOp {
    /// Begins a survey of the presented bytes `range`, which end within the view: what a read of them wants comes from [`next_want`](Self::next_want),
    /// and is not to be handed over, but for the blocks of tables that it waits for ([`Want::Fetch`]). Bytes of streams without frames are named as
    /// [`Want::Stored`], blocks that it does not wait for as [`Want::Table`]. The destination of every call is empty.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_survey(
        &mut self,
        volume: &Volume,
        range: Range<u64>,
        reach: Reach,
    ) -> Result<(), VolumeError> {
        self.start(volume, range)?;
        self.survey = Some(reach);
        Ok(())
    }

    /// What a survey names counts as handed over.
    pub(super) fn surveyed(&mut self, want: Want) -> Option<Want> {
        match want {
            Want::Frame(want) => {
                self.window.taken_frame(want.id).ok()?;
                Some(Want::Frame(want))
            }
            Want::Fetch(fetch) | Want::Stored(fetch) => {
                self.window.taken(fetch.id).ok()?;
                Some(Want::Stored(fetch))
            }
            Want::Table(block) => Some(Want::Table(block)),
        }
    }

    /// Names the blocks that hold these entries, where they are missing.
    pub(super) fn name_blocks(
        &mut self,
        context: &Context<'_>,
        table: &Table,
        entries: &Range<u64>,
    ) {
        if entries.is_empty() {
            return;
        }
        let (first, last) = (
            table.locate(entries.start).0,
            table.locate(entries.end - 1).0,
        );
        for block in first..=last {
            self.name_block(context, table, block);
        }
        self.name_onward(context, table, last);
    }

    /// Names the block behind one, in a survey that is of a stream of reads.
    pub(super) fn name_onward(&mut self, context: &Context<'_>, table: &Table, block: u64) {
        if self.survey == Some(Reach::Onward) && block + 1 < table.level_blocks(0) {
            self.name_block(context, table, block + 1);
        }
    }

    fn name_block(&mut self, context: &Context<'_>, table: &Table, block: u64) {
        let block = TableBlock::new(table, block);
        if !context.cache.has(block.key(context.volume)) && !self.tables.contains(&block) {
            self.tables.push(block);
        }
    }
}
