//! A write over blocks that are marked uncorrectable: it is answered when the data and the cleared marks are both on stable storage.

use reactor::buf::IoBuf;

use super::{Got, Next, Part, Steps, blocks_of};
use crate::Namespace;

pub(super) struct WriteOver {
    lba: u64,
    data: Option<IoBuf>,
    is_written: bool,
}

impl WriteOver {
    pub(super) fn new(lba: u64, data: IoBuf) -> Self {
        Self {
            lba,
            data: Some(data),
            is_written: false,
        }
    }
}

impl Steps for WriteOver {
    fn next(&mut self, namespace: &Namespace, got: Got) -> Next {
        if let Got::Buffer(data) = got {
            let blocks = u64::from(blocks_of(namespace, &data));
            self.data = Some(data);
            self.is_written = true;
            return Next::Clear {
                lba: self.lba,
                blocks,
            };
        }
        match self.data.take() {
            // Durable, since power loss must not bring the old block back without its mark.
            Some(data) if !self.is_written => Next::Part(Part::Write {
                lba: self.lba,
                data,
                durable: true,
            }),
            data => Next::Done(Ok(data)),
        }
    }
}
