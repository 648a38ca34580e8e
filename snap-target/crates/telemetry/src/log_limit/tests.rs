use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;

use super::{LogLimit, Site};

/// What was logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn take(&self) -> Vec<String> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

fn with_limit(limit: &LogLimit, run: impl FnOnce(&Lines)) {
    let lines = Lines::default();
    let writer = lines.clone();
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .with_filter(limit.clone());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || run(&lines));
}

#[test]
fn a_call_site_writes_its_burst_and_then_a_summary() {
    // An interval that does not pass while the test runs.
    let limit = LogLimit::new(&["nvme"], 3, Duration::from_secs(3600));
    with_limit(&limit, |lines| {
        for number in 0..10 {
            tracing::warn!(target: "nvme::tcp", number, "provoked");
        }
        tracing::warn!(target: "nvme::tcp", "another call site");
        for _ in 0..10 {
            tracing::warn!(target: "nvmeof", "not bounded");
        }
        let logged = lines.take();
        let of = |text| logged.iter().filter(|line| line.contains(text)).count();
        assert_eq!(of("provoked"), 3, "{logged:#?}");
        assert!(logged[2].contains("number=2"));
        assert_eq!((of("another call site"), of("not bounded")), (1, 10));
        limit.report();
        let [summary] = &lines.take()[..] else {
            panic!("one summary")
        };
        assert!(summary.contains("7 more lines like those from here were left out"));
        assert!(summary.contains("from=\"nvme::tcp\""), "{summary}");
        limit.report();
        assert_eq!(lines.take(), Vec::<String>::new());
    });
}

#[test]
fn lines_come_back_one_an_interval_and_never_more_than_the_burst() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut site = Site {
        metadata: &META,
        left: 2,
        since: start,
        left_out: 0,
    };
    let mut admitted = |second: u64, lines: u32| {
        (0..lines)
            .filter(|_| site.admits(at(second), 2, Duration::from_secs(1)))
            .count()
    };
    assert_eq!(admitted(0, 5), 2, "the burst");
    assert_eq!(admitted(0, 5), 0);
    assert_eq!(admitted(1, 5), 1, "one a second");
    assert_eq!(admitted(3, 5), 2);
    assert_eq!(admitted(1000, 5), 2, "no more than the burst");
    assert_eq!(site.left_out, 3 + 5 + 4 + 3 + 3);
}

static META: tracing::Metadata<'static> = tracing::metadata! {
    name: "test",
    target: "nvme",
    level: tracing::Level::WARN,
    fields: &[],
    callsite: &CALLSITE,
    kind: tracing::metadata::Kind::EVENT
};
static CALLSITE: tracing::callsite::DefaultCallsite =
    tracing::callsite::DefaultCallsite::new(&META);
