//! The kernel: its version, io_uring, huge pages, the host's own NVMe/TCP driver.

use std::fs;
use std::path::Path;

use printout::size::rounded;
use reactor::{Features, Ring, RingConfig, SmallRing};

use super::finding::Finding;
use super::process::memlock_lines;

/// The oldest kernel that has everything that is needed.
const OLDEST: (u32, u32) = (5, 15);

/// What a whole ring of the daemon takes of the memory that may be locked, and what is registered with it: 32,768 completions of 16 bytes, 256 submissions
/// of 64, a list of 256 buffers, with room.
const RING_BYTES: u64 = 1 << 20;

/// What the kernel says of itself.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// "6.12.48+deb13-amd64"; empty where it is not told.
    pub release: String,
    /// Memory set aside for huge pages, in bytes.
    pub hugepages_bytes: u64,
    /// The driver with which this machine is a host.
    pub nvme_tcp: Module,
}

/// Where a module of the kernel is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Module {
    /// At work, or built in.
    Loaded,
    /// There to be loaded.
    There,
    /// Not there.
    #[default]
    Absent,
}

impl Kernel {
    /// Reads /proc and /sys.
    pub fn read() -> Kernel {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let release = release.trim().to_owned();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let listed = |file: &str| {
            fs::read_to_string(format!("/lib/modules/{release}/{file}"))
                .is_ok_and(|list| list.contains("/nvme-tcp.ko"))
        };
        let nvme_tcp = if Path::new("/sys/module/nvme_tcp").exists() || listed("modules.builtin") {
            Module::Loaded
        } else if listed("modules.dep") {
            Module::There
        } else {
            Module::Absent
        };
        Kernel {
            hugepages_bytes: hugepages_bytes(&meminfo),
            nvme_tcp,
            release,
        }
    }
}

/// `Hugetlb:  2097152 kB`: all sizes of huge pages together.
fn hugepages_bytes(meminfo: &str) -> u64 {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("Hugetlb:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// Major and minor number of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether the kernel is new enough.
pub fn release(kernel: &Kernel) -> Finding {
    let found = format!("Linux {}", kernel.release);
    match version(&kernel.release) {
        Some(version) if version >= OLDEST => Finding::ok("kernel", found),
        Some(_) => Finding::fail(
            "kernel",
            found,
            "snap-target needs what io_uring has since Linux 5.15",
            "install a newer kernel: Ubuntu 22.04, Debian 12 and RHEL 9 have one",
        ),
        None => Finding::warn(
            "kernel",
            "its version is not told",
            "nothing is known about it",
            "uname -r says it; Linux 5.15 or later is needed",
        ),
    }
}

/// What the rings of a daemon are here.
#[derive(Clone, Copy, Debug)]
pub struct Rings {
    features: Features,
    /// How the smallest is smaller than it should be.
    small: Option<SmallRing>,
}

/// Operations that a reactor of the daemon may have in flight.
const OPS_MAX: u32 = 8576;

/// Makes rings as a daemon of so many reactors does, all at a time: what they are, or why the kernel refuses.
pub fn probe_rings(reactors: u64) -> Result<Rings, String> {
    let config = RingConfig {
        ops_max: OPS_MAX,
        events_max: 2 * OPS_MAX,
        ..RingConfig::default()
    };
    let made: Result<Vec<Ring>, _> = (0..reactors.max(1)).map(|_| Ring::new(&config)).collect();
    let rings = made.map_err(|error| error.to_string())?;
    let small = rings.iter().filter_map(Ring::small);
    Ok(Rings {
        features: rings.first().map_or(Features::ALL, Ring::features),
        small: small.min_by_key(|small| small.completions),
    })
}

/// Whether io_uring is allowed, and what it has.
pub fn ring(probed: &Result<Rings, String>, reactors: u64) -> Finding {
    match probed {
        // Linux 6.14 and later count the ring itself.
        Err(why) if why.contains("ENOMEM") => Finding::fail(
            "io_uring",
            why.clone(),
            "snap-target does not start: the rings themselves count as locked memory",
            format!(
                "{}; where that is allowed already: more memory",
                locked(reactors)
            ),
        ),
        Err(why) => Finding::fail(
            "io_uring",
            why.clone(),
            "snap-target does not start",
            "sysctl -w kernel.io_uring_disabled=0   container: --security-opt seccomp=PROFILE that allows io_uring_setup, io_uring_enter, io_uring_register",
        ),
        Ok(Rings {
            features,
            small: Some(small),
        }) => Finding::warn(
            "io_uring",
            format!("allowed; {features}; {small}"),
            SmallRing::COSTS,
            locked(reactors),
        ),
        Ok(Rings { features, .. }) if *features == Features::ALL => {
            Finding::ok("io_uring", format!("allowed; {features}"))
        }
        Ok(Rings { features, .. }) => Finding::warn(
            "io_uring",
            format!(
                "allowed; {features}; not there: {}",
                Features::ALL - *features
            ),
            "more system calls and interrupts for each command; everything works",
            "Linux 6.1 or later has them all",
        ),
    }
}

/// The lines that allow the memory of whole rings, and what else is locked before them.
fn locked(reactors: u64) -> String {
    memlock_lines(reactors.max(1) * RING_BYTES)
}

/// Huge pages are of no use to the daemon.
pub fn hugepages(kernel: &Kernel) -> Finding {
    match kernel.hugepages_bytes {
        0 => Finding::ok("huge pages", "none, none needed"),
        bytes => Finding::ok(
            "huge pages",
            format!(
                "{} set aside for others: snap-target needs none",
                rounded(bytes)
            ),
        ),
    }
}

/// Whether this machine can be a host itself.
pub fn nvme_tcp(kernel: &Kernel) -> Finding {
    match kernel.nvme_tcp {
        Module::Loaded => Finding::ok("nvme-tcp host", "loaded"),
        Module::There => Finding::ok(
            "nvme-tcp host",
            "there, not loaded (modprobe nvme-tcp); hosts need it, the target does not",
        ),
        Module::Absent => Finding::warn(
            "nvme-tcp host",
            "this kernel has no nvme-tcp module",
            "this machine cannot connect to a target with nvme-cli; serving and xio's own host need no module",
            "only where this is a host: install the distribution's full kernel (Ubuntu: linux-modules-extra-$(uname -r))",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    fn kernel(release: &str) -> Kernel {
        Kernel {
            release: release.to_owned(),
            ..Kernel::default()
        }
    }

    #[test]
    fn kernels_from_5_15_on_are_new_enough() {
        for (text, verdict) in [
            ("5.15.0-25-generic", Verdict::Ok),
            ("6.12.48+deb13-amd64", Verdict::Ok),
            ("10.0", Verdict::Ok),
            ("5.14.21", Verdict::Fail),
            ("4.18.0-553.el8", Verdict::Fail),
            ("", Verdict::Warn),
            ("six", Verdict::Warn),
        ] {
            assert_eq!(release(&kernel(text)).verdict, verdict, "{text}");
        }
    }

    #[test]
    fn io_uring_refused_fails_and_an_old_one_warns_with_what_it_lacks() {
        let rings = |features, small| ring(&Ok(Rings { features, small }), 8);
        assert_eq!(rings(Features::ALL, None).verdict, Verdict::Ok);
        let old = rings(
            Features::ALL - Features::SEND_ZC - Features::DEFER_TASKRUN,
            None,
        );
        assert_eq!(old.verdict, Verdict::Warn);
        assert!(
            old.found.ends_with("; not there: defer_taskrun send_zc"),
            "{}",
            old.found
        );
        let small = SmallRing {
            completions: 1024,
            wanted: 32768,
        };
        let small = rings(Features::ALL, Some(small));
        assert_eq!(small.verdict, Verdict::Warn);
        assert!(
            small.found.contains("1024 completions instead of 32768"),
            "{}",
            small.found
        );
        assert_eq!(
            small.mend.as_deref(),
            Some(
                "systemd: LimitMEMLOCK=8M   shell: ulimit -l 8192   container: --ulimit memlock=8388608"
            )
        );
        let refused = ring(&Err("io_uring is refused (EPERM)".to_owned()), 8);
        assert_eq!(refused.verdict, Verdict::Fail);
        assert_eq!(refused.found, "io_uring is refused (EPERM)");
        let mend = |why: &str| ring(&Err(why.to_owned()), 8).mend.unwrap_or_default();
        assert!(mend("io_uring is refused (EPERM)").contains("io_uring_disabled"));
        let locked = mend("io_uring is refused (ENOMEM: Out of memory)");
        assert!(locked.contains("ulimit -l 8192"), "{locked}");
        assert!(!locked.contains("io_uring_disabled"), "{locked}");
    }

    #[test]
    fn huge_pages_are_never_a_problem() {
        assert_eq!(
            hugepages_bytes("HugePages_Total: 8\nHugetlb:      16384 kB\n"),
            16 << 20
        );
        let set_aside = Kernel {
            hugepages_bytes: 16 << 20,
            ..Kernel::default()
        };
        assert_eq!(hugepages(&set_aside).verdict, Verdict::Ok);
        assert_eq!(
            hugepages(&set_aside).found,
            "16.0 MiB set aside for others: snap-target needs none"
        );
        assert_eq!(hugepages(&Kernel::default()).found, "none, none needed");
    }

    #[test]
    fn a_host_driver_that_is_not_there_only_warns() {
        let verdict = |nvme_tcp| {
            self::nvme_tcp(&Kernel {
                nvme_tcp,
                ..Kernel::default()
            })
            .verdict
        };
        assert_eq!(verdict(Module::Loaded), Verdict::Ok);
        assert_eq!(verdict(Module::There), Verdict::Ok);
        assert_eq!(verdict(Module::Absent), Verdict::Warn);
    }
}
