//! Where each byte goes when fields of K bits are packed and unpacked by byte shuffles, for every K, computed at compile time.
//!
//! Everything starts at a whole byte. 8 fields of K bits are K bytes, so that every group of 8 starts at a whole byte again.

/// An index that a byte shuffle turns into 0 (`pshufb`: bit 7 set; NEON `tbl`: 16 or more).
pub(super) const NONE: u8 = 0x80;

/// Shuffles of 4 fields in one 128-bit lane, for AVX2 and NEON. 8 fields are two lanes; lane 1 starts `lane_bytes` after lane 0, in the
/// middle of a byte when K is odd.
#[repr(C, align(32))]
pub(super) struct Lanes {
    /// Unpack: for each 32-bit element, its first 4 bytes in the lane.
    pub(super) gather: [[u8; 16]; 2],
    /// Unpack: the fifth byte, at the bottom of the element. Needed when a field lies in 5 bytes.
    pub(super) gather_fifth: [[u8; 16]; 2],
    /// Unpack: the bit of the first byte at which the field starts.
    pub(super) shift: [[u32; 4]; 2],
    /// Pack: the bytes of the lower and of the upper pair of fields (each pair in 64 bits, shifted by `pair_shift`).
    pub(super) scatter_even: [[u8; 16]; 2],
    /// As above.
    pub(super) scatter_odd: [[u8; 16]; 2],
    /// Pack: the byte of a pair that its shift pushes out of 64 bits.
    pub(super) scatter_spill: [[u8; 16]; 2],
    /// Pack: the bit of the first byte at which the pair starts.
    pub(super) pair_shift: [[u64; 2]; 2],
    /// Pack: the byte of lane 0 that lane 1 starts in, when K is odd.
    pub(super) carry: [u8; 16],
    /// Bytes from lane 0 to lane 1.
    pub(super) lane_bytes: usize,
}

/// [`Lanes`] for K = index + 1.
pub(super) static LANES: [Lanes; 32] = {
    let mut tables = [const { lanes(1) }; 32];
    let mut bits = 2;
    while bits <= 32 {
        tables[bits - 1] = lanes(bits);
        bits += 1;
    }
    tables
};

#[allow(clippy::cast_possible_truncation)] // indices below 16, shifts below 8
const fn lanes(bits: usize) -> Lanes {
    let mut t = Lanes {
        gather: [[NONE; 16]; 2],
        gather_fifth: [[NONE; 16]; 2],
        shift: [[0; 4]; 2],
        scatter_even: [[NONE; 16]; 2],
        scatter_odd: [[NONE; 16]; 2],
        scatter_spill: [[NONE; 16]; 2],
        pair_shift: [[0; 2]; 2],
        carry: [NONE; 16],
        lane_bytes: bits / 2,
    };
    let mut lane = 0;
    while lane < 2 {
        let phase = if lane == 1 { (4 * bits) % 8 } else { 0 };
        let mut field = 0;
        while field < 4 {
            let first = phase + field * bits;
            t.shift[lane][field] = (first % 8) as u32;
            let mut byte = 0;
            while byte < 5 {
                let from = first / 8 + byte;
                let needed = from <= (first + bits - 1) / 8 && from < 16;
                if needed && byte < 4 {
                    t.gather[lane][field * 4 + byte] = from as u8;
                } else if needed {
                    t.gather_fifth[lane][field * 4] = from as u8;
                }
                byte += 1;
            }
            field += 1;
        }
        let mut pair = 0;
        while pair < 2 {
            let first = phase + pair * 2 * bits;
            t.pair_shift[lane][pair] = (first % 8) as u64;
            let mut to = first / 8;
            while to <= (first + 2 * bits - 1) / 8 && to < 16 {
                let byte = to - first / 8;
                if byte == 8 {
                    t.scatter_spill[lane][to] = (pair * 8) as u8;
                } else if pair == 0 {
                    t.scatter_even[lane][to] = byte as u8;
                } else {
                    t.scatter_odd[lane][to] = (8 + byte) as u8;
                }
                to += 1;
            }
            pair += 1;
        }
        lane += 1;
    }
    if bits % 2 == 1 {
        t.carry[0] = (bits / 2) as u8;
    }
    t
}

/// AVX2 unpack into 2-byte elements: 8 fields in one 128-bit lane, those with even numbers apart from those with odd ones, each in 32
/// bits.
#[cfg(target_arch = "x86_64")]
pub(super) struct UnpackShorts {
    /// For each even field the 3 bytes that hold it, from the bottom of its 32 bits on.
    pub(super) even: [u8; 16],
    /// For each odd field, from byte 1 on.
    pub(super) odd: [u8; 16],
    /// How far an even field moves down to bit 0.
    pub(super) down: [u32; 4],
    /// How far an odd field moves up to bit 16.
    pub(super) up: [u32; 4],
}

/// [`UnpackShorts`] for K = index + 1.
#[cfg(target_arch = "x86_64")]
#[allow(clippy::cast_possible_truncation)] // indices below 16
pub(super) static UNPACK_SHORTS: [UnpackShorts; 16] = {
    let mut tables = [const {
        UnpackShorts {
            even: [NONE; 16],
            odd: [NONE; 16],
            down: [0; 4],
            up: [0; 4],
        }
    }; 16];
    let mut at = 0;
    while at < 16 * 8 {
        let (bits, field) = (at / 8 + 1, at % 8);
        let t = &mut tables[bits - 1];
        let (first, shift) = (field * bits / 8, (field * bits % 8) as u32);
        let mut byte = 0;
        while byte < 3 && first + byte < 16 {
            let from = (first + byte) as u8;
            if field % 2 == 0 {
                t.even[field / 2 * 4 + byte] = from;
            } else {
                t.odd[field / 2 * 4 + byte + 1] = from;
            }
            byte += 1;
        }
        if field % 2 == 0 {
            t.down[field / 2] = shift;
        } else {
            t.up[field / 2] = 8 - shift;
        }
        at += 1;
    }
    tables
};

/// AVX2 unpack into bytes: 16 fields in one 128-bit lane, those with even numbers apart from those with odd ones, each in 16 bits.
#[cfg(target_arch = "x86_64")]
pub(super) struct UnpackBytes {
    /// For each even field the 2 bytes that hold it.
    pub(super) even: [u8; 16],
    /// For each odd field.
    pub(super) odd: [u8; 16],
    /// A product with this moves the field to the top of its 16 bits.
    pub(super) even_up: [u16; 8],
    /// As above.
    pub(super) odd_up: [u16; 8],
}

/// [`UnpackBytes`] for K = index + 1.
#[cfg(target_arch = "x86_64")]
#[allow(clippy::cast_possible_truncation)] // indices below 16
pub(super) static UNPACK_BYTES: [UnpackBytes; 8] = {
    let mut tables = [const {
        UnpackBytes {
            even: [NONE; 16],
            odd: [NONE; 16],
            even_up: [0; 8],
            odd_up: [0; 8],
        }
    }; 8];
    let mut at = 0;
    while at < 8 * 16 {
        let (bits, field) = (at / 16 + 1, at % 16);
        let t = &mut tables[bits - 1];
        let (byte, shift) = (field * bits / 8, field * bits % 8);
        let (bytes, up) = if field % 2 == 0 {
            (&mut t.even, &mut t.even_up)
        } else {
            (&mut t.odd, &mut t.odd_up)
        };
        bytes[field / 2 * 2] = byte as u8;
        if byte + 1 < 16 {
            bytes[field / 2 * 2 + 1] = byte as u8 + 1;
        }
        up[field / 2] = 1 << (16 - bits - shift);
        at += 1;
    }
    tables
};

/// AVX2 pack of 2-byte elements: a 128-bit lane holds two 64-bit words of 4 fields.
#[cfg(target_arch = "x86_64")]
pub(super) struct PackShorts {
    /// For each packed byte its place in the first word.
    pub(super) even: [u8; 16],
    /// And in the second.
    pub(super) odd: [u8; 16],
    /// The bit of its first byte at which each word starts.
    pub(super) word_shift: [u64; 2],
}

/// [`PackShorts`] for K = index + 1.
#[cfg(target_arch = "x86_64")]
#[allow(clippy::cast_possible_truncation)] // indices below 16
pub(super) static PACK_SHORTS: [PackShorts; 16] = {
    let mut tables = [const {
        PackShorts {
            even: [NONE; 16],
            odd: [NONE; 16],
            word_shift: [0; 2],
        }
    }; 16];
    let mut bits = 1;
    while bits <= 16 {
        let t = &mut tables[bits - 1];
        let odd_first = 4 * bits / 8;
        t.word_shift[1] = (4 * bits % 8) as u64;
        let mut to = 0;
        while to < bits {
            if to * 8 < 4 * bits {
                t.even[to] = to as u8;
            }
            if to >= odd_first {
                t.odd[to] = (8 + to - odd_first) as u8;
            }
            to += 1;
        }
        bits += 1;
    }
    tables
};

/// AVX2 pack of bytes, K = index + 1: each of two 64-bit words begins with 8 fields, K whole bytes, which are brought together.
#[cfg(target_arch = "x86_64")]
#[allow(clippy::cast_possible_truncation)] // indices below 16
pub(super) static PACK_BYTES: [[u8; 16]; 7] = {
    let mut tables = [[NONE; 16]; 7];
    let mut bits = 1;
    while bits <= 7 {
        let mut to = 0;
        while to < 2 * bits {
            tables[bits - 1][to] = (to / bits * 8 + to % bits) as u8;
            to += 1;
        }
        bits += 1;
    }
    tables
};

/// AVX-512 VBMI unpack: spreads the bytes of `64 / width` fields over 64-bit words, then picks each byte of each element at its
/// bit.
#[cfg(target_arch = "x86_64")]
#[repr(C, align(64))]
pub(super) struct Spread {
    /// For each byte of each word, the source byte.
    pub(super) bytes: [u8; 64],
    /// For each byte of each element, the bit of its word that it starts at (taken modulo 64).
    pub(super) bits: [u8; 64],
}

/// [`Spread`] for elements of 1, 2, 4 and 8 bytes (first index), K = second index + 1.
///
/// A word holds 8 / width fields behind up to 6 other bits, and they must fit it: so for every K up to the element's bits, but
/// K = 31 in 4-byte elements.
#[cfg(target_arch = "x86_64")]
pub(super) static SPREAD: [[Spread; 32]; 4] = {
    let mut tables = [const { [const { spread(1, 1) }; 32] }; 4];
    let mut log_width = 0;
    while log_width < 4 {
        let mut bits = 1;
        while bits <= 32 {
            tables[log_width][bits - 1] = spread(1 << log_width, bits);
            bits += 1;
        }
        log_width += 1;
    }
    tables
};

#[cfg(target_arch = "x86_64")]
#[allow(clippy::cast_possible_truncation)] // all below 64
const fn spread(width: usize, bits: usize) -> Spread {
    let mut t = Spread {
        bytes: [0; 64],
        bits: [0; 64],
    };
    let mut at = 0;
    while at < 64 {
        let (word, byte) = (at / 8, at % 8);
        let word_first = word * (8 / width) * bits;
        t.bytes[at] = ((word_first / 8 + byte) % 64) as u8;
        let field_first = word_first % 8 + (byte / width) * bits;
        t.bits[at] = ((field_first + 8 * (byte % width)) % 64) as u8;
        at += 1;
    }
    t
}

/// AVX-512 VBMI unpack of 31-bit fields into 4-byte elements, which [`Spread`] cannot hold: the first 4 bytes of each field, the 4
/// behind them, and the bit at which the field starts.
#[cfg(target_arch = "x86_64")]
#[repr(C, align(64))]
pub(super) struct Wide {
    /// For each byte of each element, the source byte.
    pub(super) lower: [u8; 64],
    /// The same, 4 bytes on.
    pub(super) upper: [u8; 64],
    /// The bit of the first byte at which each field starts.
    pub(super) shift: [u32; 16],
}

#[cfg(target_arch = "x86_64")]
#[allow(clippy::cast_possible_truncation)] // all below 64
pub(super) static WIDE_31: Wide = {
    let mut t = Wide {
        lower: [0; 64],
        upper: [0; 64],
        shift: [0; 16],
    };
    let mut field = 0;
    while field < 16 {
        t.shift[field] = (field * 31 % 8) as u32;
        let mut byte = 0;
        while byte < 4 {
            let from = field * 31 / 8 + byte;
            t.lower[field * 4 + byte] = from as u8;
            t.upper[field * 4 + byte] = ((from + 4) % 64) as u8;
            byte += 1;
        }
        field += 1;
    }
    t
};

/// AVX-512 VBMI pack: the fields of 8 bytes of elements are folded into one word, the word is shifted to its bit, and its bytes are
/// moved to their place. Even words share no byte among themselves, and neither do odd ones; words of 1-byte elements are whole bytes
/// and share none at all, so they all count as even.
#[cfg(target_arch = "x86_64")]
#[repr(C, align(64))]
pub(super) struct Gather {
    /// For each destination byte, the byte of an even word.
    pub(super) even: [u8; 64],
    /// For each destination byte, the byte of an odd word.
    pub(super) odd: [u8; 64],
    /// For each destination byte, the word whose spilled byte belongs there.
    pub(super) spill: [u8; 64],
    /// The bit of its first byte at which each word starts.
    pub(super) word_shift: [u64; 8],
    /// Destination bytes that have an even word, an odd word, a spilled byte.
    pub(super) even_mask: u64,
    /// As above.
    pub(super) odd_mask: u64,
    /// As above.
    pub(super) spill_mask: u64,
}

/// [`Gather`] for elements of 1, 2 and 4 bytes (first index), K = second index + 1, up to the element's bits.
///
/// Not for K = 1 in 4-byte elements: those words are so short that even ones do share bytes.
#[cfg(target_arch = "x86_64")]
pub(super) static GATHER: [[Gather; 32]; 3] = {
    let mut tables = [const { [const { gather(1, 8) }; 32] }; 3];
    let mut log_width = 0;
    while log_width < 3 {
        let mut bits = 1;
        while bits <= 8 << log_width {
            tables[log_width][bits - 1] = gather(1 << log_width, bits);
            bits += 1;
        }
        log_width += 1;
    }
    tables
};

#[cfg(target_arch = "x86_64")]
#[allow(clippy::cast_possible_truncation)] // all below 64
const fn gather(width: usize, bits: usize) -> Gather {
    let mut t = Gather {
        even: [0; 64],
        odd: [0; 64],
        spill: [0; 64],
        word_shift: [0; 8],
        even_mask: 0,
        odd_mask: 0,
        spill_mask: 0,
    };
    let word_bits = 8 / width * bits;
    let mut word = 0;
    while word < 8 {
        let first = word * word_bits;
        t.word_shift[word] = (first % 8) as u64;
        let mut to = first / 8;
        while to <= (first + word_bits - 1) / 8 {
            let byte = to - first / 8;
            if byte == 8 {
                t.spill[to] = (word * 8) as u8;
                t.spill_mask |= 1 << to;
            } else if word % 2 == 0 || width == 1 {
                t.even[to] = (word * 8 + byte) as u8;
                t.even_mask |= 1 << to;
            } else {
                t.odd[to] = (word * 8 + byte) as u8;
                t.odd_mask |= 1 << to;
            }
            to += 1;
        }
        word += 1;
    }
    t
}

/// `count` vectors whose low bytes were laid side by side by shifts: the order that puts their elements one after the other.
#[cfg(target_arch = "x86_64")]
pub(super) const fn interleaved(count: usize) -> Bytes64 {
    let mut t = Bytes64([0; 64]);
    let per_vector = 64 / count;
    let mut to = 0;
    while to < 64 {
        #[allow(clippy::cast_possible_truncation)] // below 64
        {
            t.0[to] = (count * (to % per_vector) + to / per_vector) as u8;
        }
        to += 1;
    }
    t
}

/// 64 bytes, aligned as a vector register.
#[cfg(target_arch = "x86_64")]
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct Bytes64(pub(super) [u8; 64]);
