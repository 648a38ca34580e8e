//! Every limit of this crate, in one place; docs/format-views.md has the table. What is beyond one is refused.

/// Bytes of a header: the reference reader's own limit for safetensors, used for GGUF too.
pub const HEADER_BYTES_MAX: u64 = 100_000_000;
/// Bytes of a JSON document: config.json, model.safetensors.index.json, an MDS index.json.
pub const JSON_BYTES_MAX: u64 = 100_000_000;
/// Bytes of the literal in a `.npy` header: what numpy reads without being told to trust the file.
pub const NPY_HEADER_BYTES_MAX: u64 = 10_000;
/// Tensors of one file.
pub const TENSORS_MAX: u64 = 1 << 20;
/// Dimensions of a tensor: numpy's limit.
pub const RANK_MAX: usize = 64;
/// Depth of nested arrays in GGUF metadata.
pub const GGUF_ARRAY_DEPTH_MAX: u32 = 4;
/// Sequences of a Megatron index that is rewritten: their pointers, 8 bytes each, are held in memory. One presented as it is has no limit.
pub const MEGATRON_REWRITTEN_SEQUENCES_MAX: u64 = 1 << 26;
/// Samples of an MDS shard that is described.
pub const MDS_SAMPLES_MAX: u64 = 1 << 20;
/// Columns of an MDS shard.
pub const MDS_COLUMNS_MAX: usize = 256;
/// Payloads of an MDS shard: samples times columns.
pub const MDS_PAYLOADS_MAX: u64 = 1 << 22;
/// Largest alignment that a view can ask for: numpy's largest, and the block size of a volume.
pub const ALIGNMENT_MAX: u64 = 4096;
