use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use nvme_spec::Status;

use super::{DumpFormat, Event, EventKind, FlightRecorder, HostName, Recorded};

/// An event every field of which follows from its number.
fn numbered(number: u64) -> Event {
    let low = u16::try_from(number % 0x8000).unwrap();
    Event {
        kind: EventKind::CommandFailed,
        cntlid: low,
        sqid: low ^ 1,
        cid: low ^ 2,
        opcode: u8::try_from(number % 251).unwrap(),
        status: low << 1,
        nsid: u32::from(low) ^ 0x7000_0000,
        lba: number ^ 0xFFFF_0000_0000_0000,
        blocks: u32::from(low) ^ 0x6000_0000,
        value: !number,
        host: HostName::new(&format!("nqn.{number:0219}")),
    }
}

#[test]
fn the_last_events_are_kept_whole_and_in_order() {
    let recorder = FlightRecorder::new(5);
    for number in 0..21 {
        recorder.record(number * 10, &numbered(number));
    }
    let expected: Vec<Recorded> = (13..21)
        .map(|number| Recorded {
            reactor: Some(3),
            at_ns: number * 10,
            event: numbered(number),
        })
        .collect();
    // Five are rounded up to eight.
    assert_eq!(recorder.events(Some(3)), expected);
}

#[test]
fn a_reader_sees_no_torn_event_while_another_thread_writes() {
    let recorder = FlightRecorder::new(2);
    let stop = AtomicBool::new(false);
    // Enough for a reader without the second look at the number to fail: with records a fifth as long it failed two times in five within 200,000.
    let wanted = 1_000_000;
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                recorder.record(number, &numbered(number));
                number += 1;
            }
        });
        let mut torn = None;
        let mut seen = 0_u64;
        while seen < wanted && torn.is_none() {
            for recorded in recorder.events(None) {
                let expected = numbered(recorded.at_ns);
                torn = torn.or((recorded.event != expected).then_some(recorded));
                seen += 1;
            }
        }
        // Before anything can panic, or the writer would write for ever.
        stop.store(true, Ordering::Relaxed);
        assert_eq!(torn, None);
        seen
    });
    assert!(seen >= wanted);
}

fn failed() -> (Recorded, std::time::SystemTime) {
    let event = Event {
        kind: EventKind::CommandFailed,
        cntlid: 1,
        sqid: 2,
        cid: 3,
        opcode: 2,
        nsid: 4,
        lba: 5,
        blocks: 6,
        value: 7_654_321,
        host: HostName::new("nqn.h\" status=\\"),
        ..Event::new(EventKind::CommandFailed)
    };
    let recorded = Recorded {
        reactor: Some(0),
        at_ns: 12_345_678_901,
        event: event.with_status(Status::LBA_OUT_OF_RANGE.dnr()),
    };
    (
        recorded,
        UNIX_EPOCH + Duration::from_micros(1_000_000_000_123_456),
    )
}

#[test]
fn a_line_for_people_names_what_its_kind_has() {
    let (recorded, utc) = failed();
    assert_eq!(
        recorded.line(DumpFormat::Text, utc),
        format!(
            "2001-09-09T01:46:40.123456Z +12.345678 reactor=0 command failed cntlid=1 sqid=2 cid=3 opcode=02h nsid=4 lba=5 blocks=6 status=\"{}\" latency_us=7654 host=\"nqn.h\\\" status=\\\\\"",
            Status::LBA_OUT_OF_RANGE.dnr()
        )
    );
}

#[test]
fn a_json_line_is_one_object_with_the_same_numbers() {
    let (recorded, utc) = failed();
    let line = recorded.line(DumpFormat::JsonLines, utc);
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        value,
        serde_json::json!({
            "time": "2001-09-09T01:46:40.123456Z", "since_start_ns": 12_345_678_901_u64, "reactor": 0, "event": "command failed",
            "cntlid": 1, "sqid": 2, "cid": 3, "opcode": 2, "nsid": 4, "lba": 5, "blocks": 6,
            "status": 0x080, "status_name": "LBA Out of Range", "latency_us": 7654,
            "host": "nqn.h\" status=\\",
        })
    );
}

/// A name has its place whatever its length; what is longer than any NQN is none. Without a name nothing is said of it.
#[test]
fn names_of_hosts_are_whole_or_not_there() {
    for bytes in [0, 1, 7, 8, 9, 222, 223] {
        let name = "n".repeat(bytes);
        assert_eq!(HostName::new(&name).as_str(), name);
    }
    assert_eq!(HostName::new(&"n".repeat(224)), HostName::NONE);
    let recorded = |host| Recorded {
        reactor: None,
        at_ns: 0,
        event: Event::of_queue(EventKind::Reset, 7, 0, host),
    };
    assert_eq!(recorded(HostName::NONE).what_happened(), "reset cntlid=7");
    assert_eq!(
        recorded(HostName::new("nqn.h")).what_happened(),
        "reset cntlid=7 host=\"nqn.h\""
    );
    let json = recorded(HostName::NONE).line(DumpFormat::JsonLines, UNIX_EPOCH);
    assert!(json.ends_with("\"cntlid\":7}"), "{json}");
}

#[test]
fn every_kind_has_a_line_of_its_own() {
    let mut names: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), EventKind::ALL.len());
    for (number, kind) in EventKind::ALL.iter().enumerate() {
        assert_eq!(*kind as usize, number);
        let recorder = FlightRecorder::new(1);
        recorder.record(1, &Event::new(*kind));
        let line = recorder.events(None)[0].line(DumpFormat::JsonLines, UNIX_EPOCH);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["event"], kind.name());
    }
}
