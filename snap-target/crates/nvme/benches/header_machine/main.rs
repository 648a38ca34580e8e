//! What the bare machines cost: nanoseconds per 4 KiB read, without sockets and without payload.
//!
//! Target's end over TCP: capsule header in, event, checks of the command, answer, header bytes of C2HData (and CapsuleResp) out; over RDMA: RDMA WRITE and response posted, completed in batches. Host's end over RDMA: submission, entry with a window's key, Send done, response that took the key. Both
//! ends: the same, and the host's submission, its capsule, and its reading of the answer. Cases alternate within one run,
//! so that what else the computer does meets all of them; what is counted is this thread's CPU time; medians and the
//! spread of the middle half are printed. Data digests are the driver's work and not in these figures: `header digest`
//! is all that the machines compute. It fails where the target's end costs more than the design allows.
//!
//! `cargo bench -p nvme`

mod host;
mod rdma;
mod target;

use nix::time::{ClockId, clock_gettime};
use std::process::ExitCode;
use std::time::Duration;

/// Reads of one measurement.
const READS: u32 = 32 * 4096;
/// Measurements of each case, alternating.
const ROUNDS: usize = 15;
/// Commands in flight.
const DEPTH: u16 = 32;
/// What the design asks of the target's end, digests off.
const TARGET_NANOS_MAX: f64 = 150.0;
/// The cases that it is asked of.
const BOUNDED: [&str; 2] = [WITHOUT_DIGEST, OVER_RDMA];
const WITHOUT_DIGEST: &str = "target, no digest, flow control";
const OVER_RDMA: &str = "target over RDMA";

struct Case {
    name: &'static str,
    run: Box<dyn FnMut()>,
    nanos_per_read: Vec<f64>,
}

fn main() -> ExitCode {
    let mut cases = vec![
        case(
            WITHOUT_DIGEST,
            target::reads(target::Options {
                digest: false,
                flow_control: true,
            }),
        ),
        case(
            "target, no digest, SUCCESS flag",
            target::reads(target::Options {
                digest: false,
                flow_control: false,
            }),
        ),
        case(
            "target, header digest, flow control",
            target::reads(target::Options {
                digest: true,
                flow_control: true,
            }),
        ),
        case(
            "target, header digest, SUCCESS flag",
            target::reads(target::Options {
                digest: true,
                flow_control: false,
            }),
        ),
        case("both ends, no digest", host::reads(false)),
        case("both ends, header digest", host::reads(true)),
        case(OVER_RDMA, rdma::reads()),
        case("host over RDMA", rdma::host_reads()),
    ];
    for _ in 0..ROUNDS {
        for case in &mut cases {
            let start = thread_cpu();
            (case.run)();
            let spent = thread_cpu() - start;
            case.nanos_per_read
                .push(spent.as_secs_f64() * 1e9 / f64::from(READS));
        }
    }
    println!(
        "{:<40} {:>8} {:>16}   ns per 4 KiB read, depth {DEPTH}",
        "case", "median", "middle half"
    );
    for case in &mut cases {
        case.nanos_per_read.sort_by(f64::total_cmp);
        let at = |share: usize| case.nanos_per_read[ROUNDS * share / 4];
        println!(
            "{:<40} {:>8.1} {:>7.1} .. {:>5.1}",
            case.name,
            at(2),
            at(1),
            at(3)
        );
    }
    let mut code = ExitCode::SUCCESS;
    for case in cases.iter().filter(|case| BOUNDED.contains(&case.name)) {
        let median = case.nanos_per_read[ROUNDS / 2];
        let verdict = if median <= TARGET_NANOS_MAX {
            "within"
        } else {
            code = ExitCode::FAILURE;
            "above"
        };
        println!(
            "{}: {median:.0} ns, {verdict} the {TARGET_NANOS_MAX:.0} ns that the design allows",
            case.name
        );
    }
    code
}

/// CPU time of this thread: waiting for a core that others use costs nothing.
fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn case(name: &'static str, run: impl FnMut() + 'static) -> Case {
    Case {
        name,
        run: Box::new(run),
        nanos_per_read: Vec::with_capacity(ROUNDS),
    }
}
