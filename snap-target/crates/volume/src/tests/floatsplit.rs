//! The golden volume of `floatsplit`.

use std::fs;

use transforms::ElementType::{Bf16, F16, F32, F64};

use super::golden::{Golden, Made, folder, of_chains};

/// Few exponents, planes of one byte, planes of noise, and a last frame that is shorter.
const GOLDEN: [Golden; 4] = [
    ("floatsplit", Bf16, 16, 0, 9001),
    ("floatsplit", F16, 11, 0, 9001),
    ("floatsplit", F32, 25, 0, 5003),
    ("floatsplit", F64, 20, 0, 3001),
];

fn made() -> Made {
    of_chains(*b"golden, floats\x01\x01", &GOLDEN)
}

#[test]
#[ignore = "makes a file that is made once"]
fn make_the_golden_volume_of_floatsplit() {
    made().write("floatsplit.vol");
}

#[test]
fn the_golden_volume_of_floatsplit_is_what_this_writer_makes() {
    assert!(fs::read(folder().join("floatsplit.vol")).unwrap() == made().volume);
}
