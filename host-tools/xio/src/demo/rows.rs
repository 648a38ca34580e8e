//! What the demo packs: the real data of fixtures/, each in several ways, those that lose among them.

use transforms::ElementType;

/// A file of real data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    /// Its name in the fixtures' folder.
    pub file: &'static str,
    /// What it is, in a word.
    pub title: &'static str,
    /// Type of its elements.
    pub element_type: ElementType,
    /// Bits that its values need without compression: what is honest to compare with.
    pub baseline_bits: u64,
    /// The stored chains.
    pub chains: &'static [&'static str],
}

/// All of them.
pub const DATA: [Data; 3] = [
    Data {
        file: "r50k-u32.bin",
        title: "r50k",
        element_type: ElementType::U32,
        baseline_bits: 16,
        chains: &[
            "none",
            "u16",
            "bitpack:16",
            "bitpack:17",
            "u16+lz4",
            "u16+lz4hc",
            "u16+zstd:3",
            "bitpack:17+zstd:3",
            "shuffle+zstd:3",
        ],
    },
    Data {
        file: "o200k-u32.bin",
        title: "o200k",
        element_type: ElementType::U32,
        baseline_bits: 18,
        chains: &[
            "none",
            "bitpack:18",
            "bitpack:18+lz4",
            "bitpack:18+zstd:3",
            "lz4",
            "zstd:3",
            "shuffle+zstd:3",
        ],
    },
    Data {
        file: "weights-f32.bin",
        title: "weights",
        element_type: ElementType::F32,
        baseline_bits: 32,
        chains: &[
            "none",
            "lz4",
            "zstd:3",
            "floatsplit",
            "shuffle+lz4",
            "shuffle+zstd:3",
        ],
    },
];
