//! From a machine's batch to bytes: what a driver's gathered send is, without a socket.

use crate::digest::crc32c;
use crate::tcp::batch::{Slot, TxBatch};

/// Appends the batch's PDUs with the payload that lies in `buffers`, by slot, and clears it. The slots whose last PDU they were are to be told to the
/// machine (`transmitted`).
pub fn gather(batch: &mut TxBatch, buffers: &[Vec<u8>], out: &mut Vec<u8>) -> Vec<Slot> {
    let mut ended = Vec::new();
    for index in 0..batch.items().len() {
        let item = batch.items()[index].clone();
        let payload: &[u8] = item.payload.map_or(&[], |payload| {
            let start = payload.offset as usize;
            &buffers[payload.slot.index()][start..start + payload.len as usize]
        });
        if item.data_digest() {
            batch.set_data_digest(index, crc32c(payload));
        }
        out.extend_from_slice(batch.header(&item));
        out.extend_from_slice(payload);
        out.extend_from_slice(batch.digest(&item));
        ended.extend(item.ends);
    }
    batch.clear();
    ended
}
