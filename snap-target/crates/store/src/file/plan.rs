//! What the next system operation of a transfer is. No I/O.

use reactor::buf::IoBuf;

/// The next piece of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// `len` bytes between the medium and the buffer itself.
    Direct {
        /// Bytes; a multiple of the alignment.
        len: usize,
    },
    /// Whole blocks `[start, end)` through the bounce buffer, of which `wanted` bytes from the current position on are the transfer's.
    Bounce {
        /// First byte of the window; aligned.
        start: u64,
        /// End of the window; aligned.
        end: u64,
        /// Bytes of the transfer in it.
        wanted: usize,
    },
}

/// The next step of a transfer that stands at byte `position` of the store and `done` of `buf`, with `left > 0` bytes to go.
pub(super) fn next_step(
    position: u64,
    buf: &IoBuf,
    done: usize,
    left: usize,
    alignment: u32,
    bounce_bytes: usize,
) -> Step {
    if alignment <= 1 {
        return Step::Direct { len: left };
    }
    let align = u64::from(alignment);
    if position.is_multiple_of(align) {
        let len = direct_prefix(buf, done, left, alignment as usize);
        if len > 0 {
            return Step::Direct { len };
        }
    }
    let start = position - position % align;
    let into = usize::try_from(position - start).unwrap_or(0);
    // At most one head block if the memory is aligned from there on; else as much as the bounce buffer holds.
    let head = alignment as usize - into;
    let rest_is_direct =
        left > head && direct_prefix(buf, done + head, left - head, alignment as usize) > 0;
    let wanted = if rest_is_direct {
        head
    } else {
        left.min(bounce_bytes - into)
    };
    let end = (position + wanted as u64).next_multiple_of(align);
    Step::Bounce { start, end, wanted }
}

/// How many bytes of `buf` from `done` on are memory-aligned runs of whole blocks.
fn direct_prefix(buf: &IoBuf, done: usize, left: usize, alignment: usize) -> usize {
    let mut len = 0;
    for (ptr, run) in buf.raw_segments(done, left) {
        if !ptr.addr().is_multiple_of(alignment) {
            break;
        }
        len += run - run % alignment;
        if !run.is_multiple_of(alignment) {
            break;
        }
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNCE: usize = 64 << 10;

    fn step(position: u64, skew: usize, left: usize) -> Step {
        let memory = IoBuf::heap(1 << 20).unwrap();
        let buf = memory.slice(skew..skew + left);
        next_step(position, &buf, 0, left, 512, BOUNCE)
    }

    #[test]
    fn aligned_goes_direct() {
        assert_eq!(step(4096, 0, 8192), Step::Direct { len: 8192 });
        assert_eq!(step(4096, 512, 8192), Step::Direct { len: 8192 });
    }

    #[test]
    fn only_edges_bounce_where_memory_allows() {
        assert_eq!(
            step(4096, 0, 8200),
            Step::Direct { len: 8192 },
            "then the tail"
        );
        assert_eq!(
            step(4096, 0, 8),
            Step::Bounce {
                start: 4096,
                end: 4608,
                wanted: 8
            }
        );
        // Memory is skewed as the offset is: after the head block both are aligned.
        assert_eq!(
            step(4096 + 100, 100, 8192),
            Step::Bounce {
                start: 4096,
                end: 4608,
                wanted: 412
            }
        );
    }

    #[test]
    fn skewed_memory_bounces_as_much_as_fits() {
        assert_eq!(
            step(4096, 8, 8192),
            Step::Bounce {
                start: 4096,
                end: 12288,
                wanted: 8192
            }
        );
        assert_eq!(
            step(4096, 8, 1 << 19),
            Step::Bounce {
                start: 4096,
                end: 4096 + BOUNCE as u64,
                wanted: BOUNCE
            }
        );
        assert_eq!(
            step(4097, 8, 1 << 19),
            Step::Bounce {
                start: 4096,
                end: 4096 + BOUNCE as u64,
                wanted: BOUNCE - 1
            }
        );
    }

    #[test]
    fn the_page_cache_takes_anything() {
        let buf = IoBuf::heap(100).unwrap();
        assert_eq!(
            next_step(13, &buf.slice(1..100), 0, 99, 1, BOUNCE),
            Step::Direct { len: 99 }
        );
    }

    #[test]
    fn stops_at_the_first_segment_that_is_not_aligned() {
        let mut buf = IoBuf::heap(1024).unwrap();
        buf.append(IoBuf::heap(700).unwrap());
        buf.append(IoBuf::heap(512).unwrap());
        assert_eq!(
            next_step(0, &buf, 0, buf.len(), 512, BOUNCE),
            Step::Direct { len: 1536 }
        );
    }
}
