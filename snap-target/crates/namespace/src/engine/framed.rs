//! Requests that wait for frames, and what they get.

use volume::ReadOp;

use super::Engine;
use super::request::{Step, Work};
use crate::frames::{Answer, WantId};

impl Engine {
    /// Brings frames forward, and the requests that wait for them, as far as the turn, memory and the stores allow; true when anything moved.
    pub(super) fn serve_frames(&mut self) -> bool {
        let turn = self.ring.stats().turns;
        let mut any = false;
        loop {
            let (attached, parts) = (&mut self.attached, &mut self.parts);
            let mut moved = self.frames.take_mail(attached, parts);
            moved |= self.frames.want_all(attached, parts);
            moved |= self.frames.work(attached, parts, turn);
            while let Some(answer) = self.frames.next_answer() {
                moved = true;
                self.framed(answer);
            }
            moved |= self.serve_fills();
            if !moved {
                return any;
            }
            any = true;
        }
    }

    /// Hands a frame, or why there is none, to the request that wants it.
    fn framed(&mut self, answer: Answer) {
        let home = answer.home;
        let id = match answer.id {
            WantId::Frame(id) => id,
            // It is not answered.
            WantId::Wrong => return self.frames.let_go(home),
            WantId::Fill { at } => {
                self.parts.fills.answered(&answer, at);
                drop(answer);
                return self.frames.let_go(home);
            }
            WantId::Ahead => {
                let slot = answer.slot;
                drop(answer);
                self.frames.let_go(home);
                let (attached, parts) = (&mut self.attached, &mut self.parts);
                return self.fetches.answered(slot, attached, parts);
            }
        };
        let slot = answer.slot as usize;
        let Some(request) = self.requests.get_mut(slot) else {
            return;
        };
        if let Work::View(mut read) = std::mem::replace(&mut request.work, Work::Submitted) {
            let op = request.op.get_or_insert_with(|| Box::new(ReadOp::new()));
            let attached = &mut self.attached[request.attached];
            let step = read.framed(op, attached, &mut self.parts, slot, id, answer.result);
            if !matches!(step, Step::Done(_)) {
                request.work = Work::View(read);
            }
            self.settle(slot, step);
        }
        self.frames.let_go(home);
    }
}
