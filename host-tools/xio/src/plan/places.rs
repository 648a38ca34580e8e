//! Where the chains are undone, and what that makes of the bytes that are read: one read of all of it.

/// Where it can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: the files as they are, without xio.
    Plain,
    /// Before the network.
    StorageNode,
    /// Behind the network, before PCIe.
    Dpu,
    /// In the host's own memory, by its own cores.
    Host,
}

/// Bytes that are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Read from the store.
    pub store: u64,
    /// Over the network.
    pub wire: u64,
    /// Into the host.
    pub pcie: u64,
    /// In the host's memory: the page cache, and what it was made of.
    pub memory: u64,
}

impl Place {
    /// In the order of the way.
    pub const ALL: [Place; 4] = [Place::Plain, Place::StorageNode, Place::Dpu, Place::Host];

    /// As people say it.
    pub fn name(self) -> &'static str {
        match self {
            Place::Plain => "plain files, no xio",
            Place::StorageNode => "at the storage node",
            Place::Dpu => "at the host's DPU",
            Place::Host => "in the host, no offload",
        }
    }

    /// As programs do.
    pub fn key(self) -> &'static str {
        match self {
            Place::Plain => "plain",
            Place::StorageNode => "storage_node",
            Place::Dpu => "dpu",
            Place::Host => "host",
        }
    }

    /// What is moved.
    pub fn moved(self, source: u64, stored: u64, presented: u64) -> Moved {
        let moved = |store, wire, pcie, memory| Moved {
            store,
            wire,
            pcie,
            memory,
        };
        match self {
            Place::Plain => moved(source, source, source, source),
            Place::StorageNode => moved(stored, presented, presented, presented),
            Place::Dpu => moved(stored, stored, presented, presented),
            Place::Host => moved(stored, stored, stored, stored + presented),
        }
    }
}

impl Moved {
    /// What is less and what is more than with plain files: `less: store, wire; more: memory`.
    pub fn against(&self, plain: &Moved) -> String {
        let columns = [
            ("store", self.store, plain.store),
            ("wire", self.wire, plain.wire),
            ("PCIe", self.pcie, plain.pcie),
            ("memory", self.memory, plain.memory),
        ];
        let list = |is_so: fn(u64, u64) -> bool| -> Vec<&str> {
            let so = columns
                .iter()
                .filter(|(_, now, before)| is_so(*now, *before));
            so.map(|(name, _, _)| *name).collect()
        };
        let (less, more) = (
            list(|now, before| now < before),
            list(|now, before| now > before),
        );
        let mut texts = Vec::new();
        if !less.is_empty() {
            texts.push(format!("less: {}", less.join(", ")));
        }
        if !more.is_empty() {
            texts.push(format!("more: {}", more.join(", ")));
        }
        if texts.is_empty() {
            texts.push("nothing is gained".to_owned());
        }
        texts.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_moves_what_it_moves() {
        let of = |place: Place| place.moved(400, 100, 200);
        let plain = of(Place::Plain);
        let all = |moved: Moved| (moved.store, moved.wire, moved.pcie, moved.memory);
        assert_eq!(all(plain), (400, 400, 400, 400));
        assert_eq!(all(of(Place::StorageNode)), (100, 200, 200, 200));
        assert_eq!(all(of(Place::Dpu)), (100, 100, 200, 200));
        assert_eq!(all(of(Place::Host)), (100, 100, 100, 300));
        // The source's exact bytes: the host has no less of them, and in the host it has more.
        let exact = |place: Place| place.moved(400, 100, 400).against(&plain);
        assert_eq!(exact(Place::StorageNode), "less: store");
        assert_eq!(exact(Place::Dpu), "less: store, wire");
        assert_eq!(exact(Place::Host), "less: store, wire, PCIe; more: memory");
        assert_eq!(plain.against(&plain), "nothing is gained");
    }
}
