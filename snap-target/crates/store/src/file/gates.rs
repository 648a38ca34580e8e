//! The gates of files that are open in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::open::Node;
use crate::gate::Gate;

static GATES: Mutex<Option<HashMap<Node, Weak<Gate>>>> = Mutex::new(None);

/// The gate of a file, however often it is opened: one that is opened anew at another size is still written through the old descriptor.
pub(super) fn gate_of(node: Node) -> Arc<Gate> {
    let mut gates = GATES.lock().unwrap_or_else(PoisonError::into_inner);
    let gates = gates.get_or_insert_default();
    gates.retain(|_, gate| gate.strong_count() > 0);
    if let Some(gate) = gates.get(&node).and_then(Weak::upgrade) {
        return gate;
    }
    let gate = Arc::new(Gate::default());
    gates.insert(node, Arc::downgrade(&gate));
    gate
}
