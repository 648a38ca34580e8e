//! A write over blocks that are marked uncorrectable: it is answered when the data and the cleared marks are both on stable storage.

use reactor::buf::IoBuf;

use super::{Got, Next, Part, Steps, blocks_of};
use crate::Namespace;

pub(super) struct WriteOver {
    lba: u64,
    data: Option<IoBuf>,
    durable: bool,
    is_written: bool,
}

impl WriteOver {
    pub(super) fn new(lba: u64, data: IoBuf, durable: bool) -> Self {
        Self {
            lba,
            data: Some(data),
            durable,
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
            Some(data) if !self.is_written => Next::Part(Part::Write {
                key: namespace.key,
                lba: self.lba,
                data,
                durable: self.durable,
            }),
            data => Next::Done(Ok(data)),
        }
    }
}
