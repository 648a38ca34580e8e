//! Which bytes of the stripe are where.

use std::ops::Range;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    unit_bytes: u64,
    members: u64,
}

/// A run of bytes of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub member: usize,
    /// There.
    pub offset: u64,
    pub len: u64,
    /// Where it begins in the operation.
    pub at: u64,
}

impl Geometry {
    pub fn new(unit_bytes: u32, members: usize) -> Self {
        Self {
            unit_bytes: unit_bytes.into(),
            members: members as u64,
        }
    }

    pub fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }

    /// A unit of each member.
    pub fn row_bytes(&self) -> u64 {
        self.unit_bytes * self.members
    }

    /// Units that a range touches.
    pub fn units(&self, range: &Range<u64>) -> usize {
        let units = range.end.div_ceil(self.unit_bytes) - range.start / self.unit_bytes;
        // Of an operation, a few.
        usize::try_from(units).unwrap_or(usize::MAX)
    }

    /// What of a range is in one of the units that it touches.
    pub fn piece(&self, range: &Range<u64>, number: usize) -> Piece {
        let unit = range.start / self.unit_bytes + number as u64;
        let start = range.start.max(unit * self.unit_bytes);
        let end = range.end.min((unit + 1) * self.unit_bytes);
        Piece {
            // Fewer than 2^16.
            member: usize::try_from(unit % self.members).unwrap_or(0),
            offset: unit / self.members * self.unit_bytes + start % self.unit_bytes,
            len: end - start,
            at: start - range.start,
        }
    }

    /// What of a range is on a member: its units there lie one behind the other.
    pub fn share(&self, range: &Range<u64>, member: usize) -> Option<Range<u64>> {
        let member = member as u64;
        // Bytes of the member before the stripe's byte `at`.
        let before = |at: u64| {
            let (row, inside) = (at / self.row_bytes(), at % self.row_bytes());
            let of_row = inside
                .saturating_sub(member * self.unit_bytes)
                .min(self.unit_bytes);
            row * self.unit_bytes + of_row
        };
        let share = before(range.start)..before(range.end);
        (!share.is_empty()).then_some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte of the stripe has one place, and the places of a member are its first bytes without a gap: byte by byte, in small.
    #[test]
    fn every_byte_has_one_place() {
        for members in 2..=5_usize {
            let geometry = Geometry {
                unit_bytes: 4,
                members: members as u64,
            };
            let bytes = geometry.row_bytes() * 3;
            let mut places = vec![Vec::new(); members];
            for at in 0..bytes {
                let piece = geometry.piece(&(at..bytes), 0);
                let unit = usize::try_from(at / 4).unwrap();
                let of_all = geometry.piece(&(0..bytes), unit);
                let inside = at % 4;
                assert_eq!(
                    (piece.member, piece.offset),
                    (of_all.member, of_all.offset + inside)
                );
                assert_eq!(places[piece.member].len() as u64, piece.offset, "byte {at}");
                places[piece.member].push(at);
            }
            for start in 0..bytes {
                for end in start..=bytes {
                    for (member, places) in places.iter().enumerate() {
                        let found = geometry.share(&(start..end), member).unwrap_or(0..0);
                        let expected = places.iter().filter(|at| (start..end).contains(at)).count();
                        assert_eq!(found.end - found.start, expected as u64);
                        if let Some(first) = places.iter().position(|at| (start..end).contains(at))
                        {
                            assert_eq!(found.start, first as u64);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn pieces_end_with_their_units() {
        let geometry = Geometry::new(64 << 10, 3);
        let range = (60 << 10)..(200 << 10);
        let pieces = (0..geometry.units(&range)).map(|number| {
            let piece = geometry.piece(&range, number);
            (
                piece.member,
                piece.offset >> 10,
                piece.len >> 10,
                piece.at >> 10,
            )
        });
        assert_eq!(
            pieces.collect::<Vec<_>>(),
            [
                (0, 60, 4, 0),
                (1, 0, 64, 4),
                (2, 0, 64, 68),
                (0, 64, 8, 132)
            ]
        );
    }
}
