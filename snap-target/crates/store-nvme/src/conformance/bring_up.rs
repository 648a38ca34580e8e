//! From the first packet to the first commands.

use std::time::Duration;

use nvme::initiator::command::property_get;
use nvme_spec::Status;
use nvme_spec::fabrics::FabricsType;
use nvme_spec::register::Property;
use reactor::Errno;

use super::Rig;
use super::bench::{Bench, admit, options, reading, segmented};
use crate::queue::{QueueError, QueueOptions};

pub(super) fn a_queue_takes_commands_once_it_is_ready(rig: &dyn Rig) {
    let port = rig.port(Box::new(|controller| {
        admit(controller);
        let get = controller.command().unwrap();
        assert_eq!(get.sqe.fctype(), FabricsType::PROPERTY_GET.0);
        controller.answer(get.tag, Status::SUCCESS, 0x0102_0304_0506_0708, &[]);
        assert!(controller.command().is_none(), "the host goes");
    }));
    let options = options(rig, 32);
    let mut bench = Bench::connecting(rig, port.address, &options).unwrap();
    let now = bench.clock.now();
    assert_eq!(bench.queue().room(), 0, "before it is ready");
    let early = bench
        .queue()
        .submit(&reading(1, 512), Some(segmented(512, &[512])), now);
    let buf = early.expect_err("before it is ready").unwrap();
    assert_eq!(buf.len(), 512);
    bench.expect_ready();
    assert_eq!(bench.queue().room(), 32);
    bench.send_connect(32);
    assert_eq!(bench.queue().room(), 31);
    let connected = bench.ended();
    assert_eq!(connected.cqe().result(), 1, "CNTLID");
    assert_eq!(connected.buf.unwrap().len(), 1024, "the buffer comes back");
    bench.submit(&property_get(Property::CAP), None);
    let got = bench.ended();
    assert_eq!(got.cqe().result(), 0x0102_0304_0506_0708);
    assert!(got.buf.is_none());
    assert_eq!(bench.queue().room(), 32);
    bench.queue().close();
    assert_eq!(bench.over(), QueueError::Closed { to: port.address });
    bench.lost(0);
    port.done();
}

pub(super) fn an_address_where_nobody_listens_is_an_error_that_names_it(rig: &dyn Rig) {
    let nobody = rig.nobody();
    let why = match Bench::connecting(rig, nobody, &options(rig, 1)) {
        Ok(mut bench) => {
            let why = bench.over();
            bench.lost(0);
            why
        }
        Err(why) => why,
    };
    let refused = QueueError::Connect {
        to: nobody,
        source: Errno::ECONNREFUSED,
    };
    assert_eq!(why, refused);
}

pub(super) fn a_port_that_says_nothing_has_its_time_and_no_more(rig: &dyn Rig) {
    let (to, _keeper) = rig.silent();
    let after = Duration::from_secs(3600);
    let options = QueueOptions {
        connect_timeout: after,
        ..options(rig, 1)
    };
    let mut bench = Bench::connecting(rig, to, &options).unwrap();
    bench.expect_quiet();
    let due = bench.queue().deadline().expect("its time ends");
    bench.poll_at(nvme::Time::from_nanos(due.as_nanos() - 1));
    bench.expect_quiet();
    bench.poll_at(due);
    let transport = rig.transport().name();
    assert_eq!(
        bench.over(),
        QueueError::NotInTime {
            to,
            transport,
            after
        }
    );
    bench.lost(0);
}
