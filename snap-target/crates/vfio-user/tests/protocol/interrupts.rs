//! DEVICE_SET_IRQS: every kind of data with every action, and what contradicts itself.

use vfio_user::{Event, IrqAction, IrqData, SetIrqs};

use crate::client::{Fd, Reply, Wire, words};

const NONE: u32 = 1;
const BOOL: u32 = 2;
const EVENTFD: u32 = 4;
const MASK: u32 = 8;
const UNMASK: u32 = 16;
const TRIGGER: u32 = 32;

fn body(flags: u32, index: u32, start: u32, count: u32) -> Vec<u8> {
    words(&[20, flags, index, start, count])
}

fn set(wire: &mut Wire, body: &[u8], fds: &[Fd]) -> SetIrqs<Fd> {
    let event = wire.event(8, body, fds);
    let Event::SetIrqs { ticket, set } = event else {
        panic!("{event:?}")
    };
    wire.server.done(ticket);
    assert_eq!(wire.reply(), Some(Reply::ok(7, 8, vec![])));
    set
}

#[test]
fn each_action_goes_with_each_kind_of_data() {
    let mut wire = Wire::negotiated();
    for (flag, action) in [
        (MASK, IrqAction::Mask),
        (UNMASK, IrqAction::Unmask),
        (TRIGGER, IrqAction::Trigger),
    ] {
        let expect = |data| SetIrqs {
            index: 2,
            start: 3,
            count: 2,
            action,
            data,
        };
        let all = set(&mut wire, &body(NONE | flag, 2, 3, 2), &[]);
        assert_eq!(all, expect(IrqData::None));
        let some = [body(BOOL | flag, 2, 3, 2), vec![0, 9]].concat();
        let some = set(&mut wire, &some, &[]);
        assert_eq!(some, expect(IrqData::Bool(vec![false, true])));
        let by = set(&mut wire, &body(EVENTFD | flag, 2, 3, 2), &[70, 71]);
        assert_eq!(by, expect(IrqData::Eventfd(vec![70, 71])));
        let none = set(&mut wire, &body(EVENTFD | flag, 2, 3, 2), &[]);
        assert_eq!(none, expect(IrqData::Eventfd(vec![])));
    }
    let off = set(&mut wire, &body(NONE | TRIGGER, 2, 0, 0), &[]);
    assert_eq!((off.count, off.data), (0, IrqData::None));
    let last = set(&mut wire, &body(NONE | TRIGGER, 2, 7, 1), &[]);
    assert_eq!(last.start, 7);
}

#[test]
fn what_contradicts_itself_is_refused() {
    let mut wire = Wire::negotiated();
    let eight = (0..8).collect::<Vec<Fd>>();
    for (body, fds) in [
        // No data, no action; several of either; a flag that nobody knows.
        (body(TRIGGER, 2, 0, 1), &[][..]),
        (body(NONE, 2, 0, 1), &[]),
        (body(NONE | BOOL | TRIGGER, 2, 0, 1), &[]),
        (body(NONE | MASK | TRIGGER, 2, 0, 1), &[]),
        (body(NONE | TRIGGER | 64, 2, 0, 1), &[]),
        // Beyond what there is.
        (body(NONE | TRIGGER, 5, 0, 1), &[]),
        (body(NONE | TRIGGER, 2, 8, 1), &[]),
        (body(NONE | TRIGGER, 2, 0, 9), &[]),
        (body(NONE | TRIGGER, 2, u32::MAX, 2), &[]),
        (body(NONE | TRIGGER, 1, 0, 1), &[]),
        // None of them, but to turn the kind off.
        (body(NONE | MASK, 2, 0, 0), &[]),
        (body(NONE | TRIGGER, 2, 1, 0), &[]),
        (body(EVENTFD | TRIGGER, 2, 0, 0), &[]),
        (body(BOOL | TRIGGER, 2, 0, 0), &[]),
        // Data of another length, descriptors of another number, or where none go.
        (body(BOOL | TRIGGER, 2, 0, 2), &[]),
        ([body(BOOL | TRIGGER, 2, 0, 2), vec![1]].concat(), &[]),
        ([body(NONE | TRIGGER, 2, 0, 2), vec![1]].concat(), &[]),
        (body(EVENTFD | TRIGGER, 2, 0, 2), &[1]),
        (body(EVENTFD | TRIGGER, 2, 0, 2), &eight[..3]),
        (body(NONE | TRIGGER, 2, 0, 1), &[1]),
        (body(NONE | TRIGGER, 2, 0, 1)[..19].to_vec(), &[]),
    ] {
        assert_eq!(
            wire.ask(8, &body, fds),
            Reply::error(7, 8, 22),
            "{body:?} {fds:?}"
        );
    }
}
