//! What a process may use: locked memory, files, memory.

use std::fs;

use printout::size::{Size, rounded};

use super::finding::Finding;

/// Memory that a reactor registers with io_uring: its first pool (docs/operating.md, "Limits").
const REGISTERED_BYTES: u64 = 47 << 20;
/// Memory of a reactor: three pools, and the default cache (docs/operating.md, "Limits").
const REACTOR_BYTES: u64 = 3 * REGISTERED_BYTES + (64 << 20);
/// Memory of the daemon besides its reactors: tables, threads, the admin plane.
const DAEMON_BYTES: u64 = 64 << 20;
/// Open files of a reactor: 1,024 connections, and as many handles of stores.
const REACTOR_FILES: u64 = 2048;
/// Open files of the daemon besides: connections that have not finished Connect, rings, the admin plane.
const DAEMON_FILES: u64 = 512;
/// CAP_IPC_LOCK: locked memory is not counted.
const CAP_IPC_LOCK: u64 = 1 << 14;

/// What /proc says of a process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Soft limit on locked memory in bytes; none: unlimited, or not told.
    pub memlock: Option<u64>,
    /// Hard limit on open files: the daemon raises the soft one to it.
    pub nofile: Option<u64>,
    /// Effective capabilities.
    pub capabilities: u64,
    /// Limit of its control group, in bytes.
    pub memory_max: Option<u64>,
    /// Memory of the machine that can be had, in bytes.
    pub memory_available: Option<u64>,
}

impl Process {
    /// Reads what /proc has of a process: "self", or its number.
    pub fn read(pid: &str) -> Result<Process, String> {
        let file = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            fs::read_to_string(&path).map_err(|error| format!("reading {path}: {error}"))
        };
        let limits = file("limits")?;
        let status = file("status")?;
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Ok(Process {
            memlock: soft_limit(&limits, "Max locked memory"),
            nofile: hard_limit(&limits, "Max open files"),
            capabilities: effective_capabilities(&status),
            memory_max: file("cgroup")
                .ok()
                .and_then(|groups| memory_limit(&groups, |path| fs::read_to_string(path).ok())),
            memory_available: kib_field(&meminfo, "MemAvailable:"),
        })
    }
}

/// `Max open files            1024                 4096                 files`
fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    limit(limits, name, 0)
}

/// The second of its numbers.
fn hard_limit(limits: &str, name: &str) -> Option<u64> {
    limit(limits, name, 1)
}

fn limit(limits: &str, name: &str, column: usize) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(column)?.parse().ok()
}

/// `CapEff: 000001ffffffffff`
fn effective_capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .unwrap_or(0)
}

/// `MemAvailable:   12345 kB`
fn kib_field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The smallest limit of the process's control group and of those above it; none where nothing limits it.
fn memory_limit(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let mut smallest: Option<u64> = None;
    for line in groups.lines() {
        // Version 2 is `0::/PATH`, version 1 is `4:memory:/PATH`.
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            controllers if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            let limit: Option<u64> =
                read(&format!("{root}{path}/{file}")).and_then(|text| text.trim().parse().ok());
            // "max" is no number; version 1 writes a number near 2^63 instead.
            if let Some(limit) = limit.filter(|limit| *limit < 1 << 60) {
                smallest = Some(smallest.map_or(limit, |other| other.min(limit)));
            }
            match path.rfind('/') {
                Some(above) => path = path.get(..above).unwrap_or(""),
                None => break,
            }
        }
    }
    smallest
}

/// Whether the buffers of so many reactors can be registered.
pub fn memlock(process: &Process, reactors: u64) -> Finding {
    let need = REGISTERED_BYTES * reactors;
    match process.memlock {
        _ if process.capabilities & CAP_IPC_LOCK != 0 => {
            Finding::ok("memlock", "no limit for this user (CAP_IPC_LOCK)")
        }
        None => Finding::ok("memlock", "unlimited"),
        Some(bytes) if bytes >= need => Finding::ok("memlock", Size(bytes).to_string()),
        Some(bytes) => Finding::warn(
            "memlock",
            format!(
                "{}, less than the {} that the buffers of {} need",
                Size(bytes),
                Size(need),
                reactors_text(reactors)
            ),
            "buffers stay unregistered: the kernel pins and unpins their pages for every read and write",
            memlock_lines(need),
        ),
    }
}

/// The lines that allow so much memory to be locked.
pub fn memlock_lines(bytes: u64) -> String {
    format!(
        "systemd: LimitMEMLOCK={}M   shell: ulimit -l {}   container: --ulimit memlock={bytes}",
        bytes >> 20,
        bytes >> 10
    )
}

fn reactors_text(reactors: u64) -> String {
    crate::text::count(reactors, "reactor")
}

/// Whether all connections of so many reactors can be open.
pub fn nofile(process: &Process, reactors: u64) -> Finding {
    let need = REACTOR_FILES * reactors + DAEMON_FILES;
    let mend = format!(
        "systemd: LimitNOFILE={need}   shell: ulimit -n {need}   container: --ulimit nofile={need}"
    );
    match process.nofile {
        None => Finding::ok("open files", "unlimited"),
        Some(files) if files >= need => Finding::ok("open files", format!("{files}")),
        Some(files) if files < DAEMON_FILES => Finding::fail(
            "open files",
            format!("{files}"),
            "the daemon may not even start",
            mend,
        ),
        Some(files) => Finding::warn(
            "open files",
            format!(
                "{files}, less than the {need} of {}",
                reactors_text(reactors)
            ),
            format!(
                "hosts beyond about {} queues are refused",
                (files - DAEMON_FILES) / 2
            ),
            mend,
        ),
    }
}

/// Whether so many reactors fit into memory.
pub fn memory(process: &Process, reactors: u64) -> Finding {
    let need = REACTOR_BYTES * reactors + DAEMON_BYTES;
    let available = process.memory_available.unwrap_or(u64::MAX);
    let limit = process.memory_max.unwrap_or(u64::MAX);
    let found = match (process.memory_max, process.memory_available) {
        (Some(limit), _) => format!("control group: {}", Size(limit)),
        (None, Some(available)) => format!(
            "{} available, no control group limits it",
            rounded(available)
        ),
        (None, None) => "not told".to_owned(),
    };
    let (text, needed) = (reactors_text(reactors), rounded(need));
    if limit < need {
        Finding::fail(
            "memory",
            found,
            format!(
                "{text} with the default cache use up to {needed}: the kernel ends the daemon when it gets there"
            ),
            format!(
                "systemd: MemoryMax={}M   container: --memory {}m   or a smaller cache and fewer reactors",
                need.div_ceil(1 << 20),
                need.div_ceil(1 << 20)
            ),
        )
    } else if available < need {
        Finding::warn(
            "memory",
            format!("{} available", rounded(available)),
            format!(
                "{text} with the default cache use up to {needed}: the system swaps, or ends something"
            ),
            "a smaller cache, or fewer reactors",
        )
    } else {
        Finding::ok("memory", found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 524288               files
Max locked memory         8388608              unlimited            bytes
Max address space         unlimited            unlimited            bytes
";

    #[test]
    fn proc_is_read_by_name() {
        assert_eq!(soft_limit(LIMITS, "Max open files"), Some(1024));
        assert_eq!(hard_limit(LIMITS, "Max open files"), Some(524_288));
        assert_eq!(soft_limit(LIMITS, "Max locked memory"), Some(8 << 20));
        assert_eq!(soft_limit(LIMITS, "Max address space"), None);
        assert_eq!(soft_limit(LIMITS, "Max something else"), None);
        assert_eq!(
            effective_capabilities("CapPrm:\t1\nCapEff:\t0000000000004000\n"),
            CAP_IPC_LOCK
        );
        assert_eq!(effective_capabilities("nothing"), 0);
        assert_eq!(
            kib_field("MemTotal: 9 kB\nMemAvailable:    12 kB\n", "MemAvailable:"),
            Some(12_288)
        );
    }

    #[test]
    fn the_smallest_limit_of_the_groups_above_counts() {
        let files = |path: &str| {
            let text = match path {
                "/sys/fs/cgroup/a/b/memory.max" => "max\n",
                "/sys/fs/cgroup/a/memory.max" => "1000\n",
                "/sys/fs/cgroup/memory/x/memory.limit_in_bytes" => "900\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes" => "9223372036854771712\n",
                _ => return None,
            };
            Some(text.to_owned())
        };
        assert_eq!(memory_limit("0::/a/b\n", files), Some(1000));
        assert_eq!(memory_limit("4:cpu,memory:/x\n0::/\n", files), Some(900));
        assert_eq!(memory_limit("4:cpu:/x\n0::/\nnonsense\n", files), None);
    }

    #[test]
    fn memlock_counts_the_reactors_and_not_for_the_privileged() {
        let of = |memlock, capabilities| Process {
            memlock,
            capabilities,
            ..Process::default()
        };
        assert_eq!(memlock(&of(None, 0), 64).verdict, Verdict::Ok);
        assert_eq!(memlock(&of(Some(0), CAP_IPC_LOCK), 64).verdict, Verdict::Ok);
        assert_eq!(memlock(&of(Some(94 << 20), 0), 2).verdict, Verdict::Ok);
        let short = memlock(&of(Some(8 << 20), 0), 2);
        assert_eq!(short.verdict, Verdict::Warn);
        assert_eq!(
            (short.found.as_str(), short.mend.as_deref()),
            (
                "8MiB, less than the 94MiB that the buffers of 2 reactors need",
                Some(
                    "systemd: LimitMEMLOCK=94M   shell: ulimit -l 96256   container: --ulimit memlock=98566144"
                )
            )
        );
    }

    #[test]
    fn open_files_warn_before_they_fail() {
        let verdict = |nofile| {
            let process = Process {
                nofile,
                ..Process::default()
            };
            self::nofile(&process, 1).verdict
        };
        assert_eq!(verdict(None), Verdict::Ok);
        assert_eq!(verdict(Some(2560)), Verdict::Ok);
        assert_eq!(verdict(Some(2559)), Verdict::Warn);
        assert_eq!(verdict(Some(512)), Verdict::Warn);
        assert_eq!(verdict(Some(511)), Verdict::Fail);
    }

    #[test]
    fn a_control_group_that_is_too_small_fails_and_a_full_machine_warns() {
        let verdict = |memory_max, memory_available| {
            let process = Process {
                memory_max,
                memory_available,
                ..Process::default()
            };
            memory(&process, 1).verdict
        };
        assert_eq!(verdict(None, None), Verdict::Ok);
        assert_eq!(verdict(Some(269 << 20), None), Verdict::Ok);
        assert_eq!(verdict(Some((269 << 20) - 1), None), Verdict::Fail);
        assert_eq!(verdict(None, Some(268 << 20)), Verdict::Warn);
        assert_eq!(verdict(Some(1 << 30), Some(268 << 20)), Verdict::Warn);
    }
}
