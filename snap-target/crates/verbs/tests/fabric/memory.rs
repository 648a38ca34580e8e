//! Memory that has another owner: buffers of the reactor, named to a device by their segments.

#![allow(
    unsafe_code,
    reason = "registering memory of another kind is unsafe by its contract"
)]

use std::rc::Rc;

use reactor::buf::{IoBuf, Mapping};
use verbs::{Access, Gather, HostMemory, Operation, VerbsError};

use crate::ends::Net;

#[test]
fn a_buffers_segments_are_scatter_entries() {
    let net = Net::new(1);
    let [here, there] = net.pair();
    // Never unmapped, so that nothing has to keep it.
    let mapping: Rc<Mapping> = Rc::new(Mapping::new(16_384).unwrap());
    std::mem::forget(mapping.clone());
    // SAFETY: the mapping is never unmapped, and a guest's memory is never a reference.
    let memory = unsafe { HostMemory::of_region(mapping.region(), ()) };
    let registration = here.domain.register(&memory, Access::LOCAL_WRITE).unwrap();
    let buf = IoBuf::guest_in(&mapping, &[(5000, 10), (100, 90)]).unwrap();
    let entries: Vec<_> = buf
        .segments()
        .map(|segment| registration.entry_of(&segment).unwrap())
        .collect();
    assert_eq!(
        entries
            .iter()
            .map(verbs::ScatterEntry::len)
            .collect::<Vec<_>>(),
        [10, 90]
    );
    let content: Vec<u8> = (0..100).collect();
    there.memory.copy_in(0, &content).unwrap();
    here.post(
        1,
        Operation::Read {
            entries: &entries,
            remote: there.remote(0),
        },
    );
    net.settle();
    assert_eq!(here.outcomes(), [(1, None)]);
    assert_eq!(buf.to_vec(), content);
    let other = IoBuf::heap(100).unwrap();
    let error = registration
        .entry_of(&other.segments().next().unwrap())
        .unwrap_err();
    assert!(matches!(error, VerbsError::Misuse { .. }), "{error}");
    let (back, sent) = (there.entry(200, 100), Gather::Entries(&entries));
    there.receive(2, &[back]);
    here.post(
        3,
        Operation::Send {
            gather: sent,
            invalidate: None,
            solicited: false,
        },
    );
    net.settle();
    assert_eq!(there.bytes(200, 100), content);
}

#[test]
fn registered_memory_is_unmapped_when_nothing_can_touch_it() {
    let net = Net::new(2);
    let [here, _there] = net.pair();
    let mapping = std::sync::Arc::new(Mapping::new(4096).unwrap());
    let registration = here
        .domain
        .register(&HostMemory::of_mapping(&mapping), Access::LOCAL_READ)
        .unwrap();
    let held = || std::sync::Arc::strong_count(&mapping) > 1;
    assert!(held());
    drop(registration);
    assert!(held(), "a queue pair could still touch it");
    drop(here.qp);
    assert!(!held());
    let registration = here
        .domain
        .register(&HostMemory::of_mapping(&mapping), Access::LOCAL_READ)
        .unwrap();
    drop(registration);
    assert!(!held(), "there is no queue pair");
}
