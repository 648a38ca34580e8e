//! Namespaces: LBAs of a volume or a raw store, read and written through a Store.
