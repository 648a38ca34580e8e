//! The orderly end: who waits for whom.

use std::cell::Cell;
use std::time::{Duration, Instant};

use frontend_nvme::ControllerReport;
use nvme::controller::ControllerId;
use telemetry::{CommandKind, Ended, Telemetry, TelemetryConfig};

use super::{Rig, nqn};

fn connected(id: u16, host: &str) -> ControllerReport {
    ControllerReport {
        id: ControllerId(id),
        subsystem: Some(nqn("nqn.a")),
        host: nqn(host),
        host_id: [0; 16],
        transport: None,
        peer: None,
        port_id: None,
        local: None,
        io_queues: vec![1],
        kato_ms: 0,
        connected_at: None,
        ready: true,
    }
}

/// Two hosts have a command in flight, and that of one hangs until the others are gone.
#[test]
fn a_host_whose_command_hangs_holds_up_no_other() {
    let rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    let all = [(1, "nqn.hangs"), (2, "nqn.idle"), (3, "nqn.ends")];
    *rig.fake.connected.lock().unwrap() = all.map(|(id, host)| connected(id, host)).to_vec();
    rig.fake.take();
    let telemetry = Telemetry::new(&TelemetryConfig::default());
    let reactor = telemetry.reactor(0).unwrap();
    let row = |host| reactor.host("nqn.a", host, 1, [1; 16]);
    let (hangs, ends) = (row("nqn.hangs"), row("nqn.ends"));
    hangs.begun();
    ends.begun();
    let ended = Ended {
        kind: CommandKind::Read,
        error: None,
        bytes: 4096,
        ns: 1,
        at_ns: 1,
    };
    let (is_ended, is_let_go) = (Cell::new(false), Cell::new(false));
    let by = Instant::now() + Duration::from_secs(20);
    manager.drain(&telemetry, &|| {
        // Called at every look: each command ends once the controller before it is gone.
        let calls = rig.fake.calls.lock().unwrap();
        let is_gone = |call: &str| calls.iter().any(|it| it == call);
        if is_gone("end 2") && !is_ended.replace(true) {
            ends.ended(&ended);
        }
        if is_gone("end 3") && !is_let_go.replace(true) {
            hangs.ended(&ended);
        }
        by
    });
    assert_eq!(rig.fake.take(), ["silence 1", "end 2", "end 3", "end 1"]);
    assert!(Instant::now() < by, "nobody was cut off");
}
