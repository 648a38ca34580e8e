//! The best lengths of codes that none may exceed: package-merge (L. Larmore, D. Hirschberg, "A fast algorithm for optimal
//! length-limited Huffman codes", Journal of the ACM 37(3), 1990).

use super::code::{Lengths, SYMBOLS_MAX};
use crate::kernels::huffman::CODE_BITS_MAX;

/// How often each byte comes.
pub(super) type Counts = [u32; SYMBOLS_MAX];

const _: () = assert!(SYMBOLS_MAX <= 1 << CODE_BITS_MAX);

/// The lengths with the least bits in all, each at most [`CODE_BITS_MAX`]. The only symbol has length 1.
pub(super) fn lengths(counts: &Counts) -> Lengths {
    let mut lengths = [0; SYMBOLS_MAX];
    let mut leaves = [(0u64, 0u8); SYMBOLS_MAX];
    let mut used = 0;
    for (symbol, count) in (0..=u8::MAX).zip(counts) {
        if *count > 0 {
            leaves[used] = (u64::from(*count), symbol);
            used += 1;
        }
    }
    let leaves = &mut leaves[..used];
    leaves.sort_unstable();
    if let [(_, only)] = leaves {
        lengths[usize::from(*only)] = 1;
        return lengths;
    }

    // Each level has the leaves, and in between them the pairs of the level before it; what matters later is only which are leaves.
    let mut is_leaf = [[false; 2 * SYMBOLS_MAX]; CODE_BITS_MAX as usize];
    let mut pairs = [0u64; SYMBOLS_MAX];
    let mut pair_count = 0;
    for level in &mut is_leaf {
        let mut merged = [0u64; 2 * SYMBOLS_MAX];
        let (mut leaf, mut pair) = (0, 0);
        let count = leaves.len() + pair_count;
        for i in 0..count {
            level[i] = pair == pair_count || leaf < leaves.len() && leaves[leaf].0 <= pairs[pair];
            if level[i] {
                merged[i] = leaves[leaf].0;
                leaf += 1;
            } else {
                merged[i] = pairs[pair];
                pair += 1;
            }
        }
        pair_count = count / 2;
        for (pair, two) in pairs
            .iter_mut()
            .zip(merged[..2 * pair_count].chunks_exact(2))
        {
            *pair = two[0] + two[1];
        }
    }

    // The cheapest of the last level, and of each level before it those that these are pairs of: a symbol is as long as it is often there.
    let mut taken = 2 * leaves.len().saturating_sub(1);
    for level in is_leaf.iter().rev() {
        let taken_leaves = level[..taken].iter().filter(|is_leaf| **is_leaf).count();
        for (_, symbol) in &leaves[..taken_leaves] {
            lengths[usize::from(*symbol)] += 1;
        }
        taken = 2 * (taken - taken_leaves);
    }
    lengths
}
