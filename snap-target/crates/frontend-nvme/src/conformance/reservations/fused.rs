//! Reservation commands and the halves of fused operations: the two follow each other, or neither is carried out (Base, "Fused Operations").

use super::*;

const COMPARE: u8 = 0x05;
const WRITE: u8 = 0x01;
const FUSED_FAILED: u16 = 0x09;
/// Command Aborted due to Missing Fused Command.
const FUSED_MISSING: u16 = 0x0A;

/// The ends of these commands, in their order, whatever the order of their answers.
fn ends<const N: usize>(queue: &mut Queue, cids: [u16; N]) -> [u16; N] {
    let answers: Vec<Response> = cids.iter().map(|_| queue.response()).collect();
    cids.map(|cid| {
        let answer = answers.iter().find(|answer| answer.cid == cid);
        answer.unwrap().status
    })
}

fn compare(queue: &mut Queue) -> u16 {
    queue.send_half(1, COMPARE, [7, 0, 0], &[0; 4096])
}

fn write(queue: &mut Queue) -> u16 {
    queue.send_half(2, WRITE, [7, 0, 0], &[0xBB; 4096])
}

pub(in crate::conformance) fn a_reservation_command_between_two_halves_parts_them(on: &On) {
    let (_target, mut a, _b) = two_hosts(on);
    let queue = &mut a.first;
    let first = compare(queue);
    let between = queue.send_bring(REGISTER, 1, [0, 0, 0], &keys(0, KEY_A));
    let second = write(queue);
    let found = ends(queue, [first, between, second]);
    assert_eq!(found, [FUSED_MISSING, SUCCESS, FUSED_MISSING]);
    // One that is refused at once, and one of another kind.
    for (opcode, status) in [(RELEASE, 0x400F), (0x00, SUCCESS), (0xEE, 0x4001)] {
        let first = compare(queue);
        let between = queue.send_plain(opcode, 1, [0, 0, 0]);
        let second = write(queue);
        let found = ends(queue, [first, between, second]);
        assert_eq!(found, [FUSED_MISSING, status, FUSED_MISSING], "{opcode:#x}");
    }
    assert_eq!(queue.read(7), vec![0; 4096]);
    let pair = [compare(queue), write(queue)];
    assert_eq!(ends(queue, pair), [SUCCESS; 2]);
    assert_eq!(queue.read(7), vec![0xBB; 4096]);
}

/// A reservation command that says it is a half is none, and takes the place of one.
pub(in crate::conformance) fn a_reservation_command_is_no_half(on: &On) {
    let (_target, mut a, _b) = two_hosts(on);
    let queue = &mut a.first;
    let first = compare(queue);
    let second = queue.send_half(2, REGISTER, [0, 0, 0], &keys(0, KEY_A));
    let found = ends(queue, [first, second]);
    assert_eq!(found, [FUSED_FAILED, INVALID_FIELD]);
    let first = queue.send_half(1, REGISTER, [0, 0, 0], &keys(0, KEY_A));
    let second = write(queue);
    let found = ends(queue, [first, second]);
    assert_eq!(found, [INVALID_FIELD, FUSED_FAILED]);
    assert_eq!(queue.read(7), vec![0; 4096]);
    assert_eq!(a.report().2, vec![]);
}
