//! The named limits of the daemon, in one place and checked against each other.

use std::time::Duration;

/// Namespaces of one subsystem.
pub const NAMESPACES_MAX: usize = nvme::controller::NAMESPACES_MAX as usize;
/// Subsystems, made by the configuration and by the admin plane.
pub const SUBSYSTEMS_MAX: usize = 256;
/// Listeners.
pub const LISTENERS_MAX: usize = 64;
/// Referrals to other discovery services.
pub const REFERRALS_MAX: usize = 64;
/// Host names in one list: of a subsystem, or of a namespace.
pub const HOSTS_MAX: usize = 1024;
/// Reactor threads.
pub const REACTORS_MAX: u16 = 64;
/// Decoding threads.
pub const WORKERS_MAX: usize = namespace::limits::WORKERS_MAX;
/// Smallest frame and table cache of a reactor.
pub const CACHE_BYTES_MIN: u64 = 1 << 20;
/// A configuration file.
pub const CONFIG_BYTES_MAX: u64 = 4 << 20;
/// How long SIGTERM lets what is in flight end, unless the configuration says otherwise.
pub const DRAIN_DEFAULT: Duration = Duration::from_secs(10);
/// The longest that it may say.
pub const DRAIN_MAX: Duration = Duration::from_secs(600);
/// A record of the state folder.
pub const RECORD_BYTES_MAX: u64 = 64 << 20;
/// Records of namespaces that wait to be written.
pub const SAVES_MAX: usize = 1024;
/// Events that are kept for those who ask later.
pub const EVENTS_KEPT: usize = 4096;
/// Requests of the admin plane that wait for the manager.
pub const REQUESTS_MAX: usize = 64;
/// Events of the target that wait to be told; more are counted and lost.
pub const TARGET_EVENTS_MAX: usize = 4096;
