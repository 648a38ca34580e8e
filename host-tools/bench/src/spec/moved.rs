//! How many bytes a job moves before it ends by itself.

use super::{JobSpec, Mix};

impl JobSpec {
    /// Bytes of the order, where there is one.
    pub fn ordered_bytes(&self) -> Option<u64> {
        let order = self.order.as_ref()?;
        Some(order.iter().map(|range| range.bytes).sum())
    }

    /// Bytes that the job moves on a part of `part_bytes`; none where only time ends it.
    ///
    /// As fio 3.33 has it: a pass over the part for each of `loops`; with `io_size` at most that much for each of them, and passes go on until that much was moved
    /// once. Where nothing but bytes makes a pass (`norandommap`, or a sequential mix, whose directions each go their own way), it is `io_size` for each of `loops`.
    pub fn bytes_in_all(&self, part_bytes: u64) -> Option<u64> {
        if self.time_based {
            return None;
        }
        let Some(io_size) = self.io_size else {
            return Some(part_bytes.saturating_mul(self.loops));
        };
        let most = io_size.saturating_mul(self.loops);
        let has_no_passes = if self.rw.random {
            self.norandommap
        } else {
            self.rw.mix == Mix::ReadWrite
        };
        if has_no_passes {
            return Some(most);
        }
        // A further pass begins where a block at least is missing.
        let block = u64::from(self.bs_max());
        let missing = io_size.checked_sub(block);
        let needed = missing.and_then(|missing| missing.checked_div(part_bytes));
        let passes = needed.map_or(1, |whole| whole + 1).max(self.loops);
        Some(most.min(part_bytes.saturating_mul(passes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// fio 3.33, `--ioengine=null --size=1m --bs=4k`, in KiB.
    #[test]
    fn io_size_and_loops_move_what_they_move_in_fio() {
        const PASS: &[(&str, &str)] = &[("rw", "read")];
        const MAPPED: &[(&str, &str)] = &[("rw", "randrw")];
        const ANYWHERE: &[(&str, &str)] = &[("rw", "randread"), ("norandommap", "1")];
        const MIXED: &[(&str, &str)] = &[("rw", "rw")];
        for (settings, io_size, loops, expected) in [
            (PASS, "0", "3", 3072),
            (PASS, "512k", "1", 512),
            (PASS, "512k", "3", 1536),
            (PASS, "1m", "3", 3072),
            (PASS, "1026k", "1", 1024),
            (PASS, "1536k", "1", 1536),
            (PASS, "1536k", "2", 2048),
            (PASS, "1536k", "3", 3072),
            (PASS, "2560k", "2", 3072),
            (PASS, "3m", "2", 3072),
            (PASS, "5000k", "3", 5120),
            (MAPPED, "512k", "2", 1024),
            (MAPPED, "2560k", "1", 2560),
            (MAPPED, "2560k", "2", 3072),
            (ANYWHERE, "1536k", "2", 3072),
            (ANYWHERE, "5000k", "3", 15_000),
            (MIXED, "512k", "2", 1024),
            (MIXED, "1536k", "2", 3072),
        ] {
            let settings = [settings, &[("io_size", io_size), ("loops", loops)]].concat();
            let moved = JobSpec::of(&settings).bytes_in_all(1 << 20);
            assert_eq!(moved, Some(expected << 10), "{settings:?}");
        }
    }

    #[test]
    fn a_job_that_only_time_ends_moves_what_it_can() {
        let spec = JobSpec::of(&[("time_based", "1"), ("runtime", "1"), ("io_size", "4k")]);
        assert_eq!(spec.bytes_in_all(1 << 20), None);
    }
}
