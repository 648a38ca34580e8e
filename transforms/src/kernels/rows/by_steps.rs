//! The loops over a run that all kernels of vectors share: whole steps, and a last one that is filled up.

use crate::kernels::place::Place;
use crate::kernels::q8::F32;

/// Numbers that a kernel takes at a time.
pub(in crate::kernels) const STEP_ELEMENTS: usize = 32;

/// Room for a step of numbers of any type.
type StepNumbers = [u8; 4 * STEP_ELEMENTS];

/// What an instruction set does with a step of numbers of type `T`.
///
/// # Safety
/// Of all that follows: the machine has the instruction set; of a step that is given by its place `from` all is readable, and `to` is writable for what is made of it.
pub(in crate::kernels) trait Step<const T: u8> {
    /// The largest magnitudes met so far by their bits, in lanes.
    type Met: Copy;
    /// One number in all lanes.
    type Factor: Copy;

    /// Nothing was met.
    unsafe fn none() -> Self::Met;

    /// The numbers from here on were met, too.
    unsafe fn meet(met: Self::Met, from: *const u8) -> Self::Met;

    /// The largest of all lanes.
    unsafe fn largest(met: Self::Met) -> u32;

    /// This number in all lanes.
    unsafe fn factor(value: f32) -> Self::Factor;

    /// Numbers as multiples, a byte each: multiplied by the reciprocal of their scale, and rounded to nearest, ties to even.
    unsafe fn quantize(from: *const u8, by: Self::Factor, to: *mut u8);

    /// Multiples as numbers.
    unsafe fn dequantize(from: *const u8, scale: Self::Factor, to: *mut u8);

    /// Asks for the numbers that are behind a step.
    fn ahead_of_numbers(_from: *const u8) {}

    /// Asks for the multiples that are behind a step.
    fn ahead_of_multiples(_from: *const u8) {}
}

/// # Safety
/// As `rows::largest_of`; the machine has the instruction set.
#[inline(always)]
pub(in crate::kernels) unsafe fn largest<S: Step<T>, const T: u8>(
    src: *const u8,
    count: usize,
) -> u32 {
    let (steps, rest) = (count / STEP_ELEMENTS, count % STEP_ELEMENTS);
    // SAFETY: each step lies in `src`, or is filled up.
    unsafe {
        let mut met = S::none();
        for step in 0..steps {
            let from = src.add(step * STEP_ELEMENTS * number_bytes(T));
            S::ahead_of_numbers(from);
            met = S::meet(met, from);
        }
        if rest > 0 {
            let from = src.add(steps * STEP_ELEMENTS * number_bytes(T));
            met = S::meet(met, filled_up::<T>(from, rest).as_ptr());
        }
        S::largest(met)
    }
}

/// # Safety
/// As `rows::quantize_run`; the machine has the instruction set.
#[inline(always)]
pub(in crate::kernels) unsafe fn quantize<S: Step<T>, const T: u8>(
    src: *const u8,
    by: f32,
    place: &mut Place,
    count: usize,
) -> u32 {
    let (steps, rest) = (count / STEP_ELEMENTS, count % STEP_ELEMENTS);
    // SAFETY: each step lies in `src`, or is filled up, and has room in `place`, or in a step's room.
    unsafe {
        let (mut met, by) = (S::none(), S::factor(by));
        let mut pen = place.pen();
        for step in 0..steps {
            let from = src.add(step * STEP_ELEMENTS * number_bytes(T));
            S::ahead_of_numbers(from);
            met = S::meet(met, from);
            S::quantize(from, by, pen.at());
            pen.advance(STEP_ELEMENTS, place);
        }
        if rest > 0 {
            let numbers = filled_up::<T>(src.add(steps * STEP_ELEMENTS * number_bytes(T)), rest);
            met = S::meet(met, numbers.as_ptr());
            let mut bytes = [0; STEP_ELEMENTS];
            S::quantize(numbers.as_ptr(), by, bytes.as_mut_ptr());
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), pen.at(), rest);
            pen.advance(rest, place);
        }
        place.put_back(pen);
        S::largest(met)
    }
}

/// # Safety
/// As `rows::dequantize_run`; the machine has the instruction set.
#[inline(always)]
pub(in crate::kernels) unsafe fn dequantize<S: Step<T>, const T: u8>(
    src: *const u8,
    scale: f32,
    place: &mut Place,
    count: usize,
) {
    let (steps, rest) = (count / STEP_ELEMENTS, count % STEP_ELEMENTS);
    // SAFETY: as in [`quantize`].
    unsafe {
        let scale = S::factor(scale);
        let mut pen = place.pen();
        for step in 0..steps {
            let from = src.add(step * STEP_ELEMENTS);
            S::ahead_of_multiples(from);
            S::dequantize(from, scale, pen.at());
            pen.advance(STEP_ELEMENTS * number_bytes(T), place);
        }
        if rest > 0 {
            let mut bytes = [0; STEP_ELEMENTS];
            std::ptr::copy_nonoverlapping(src.add(steps * STEP_ELEMENTS), bytes.as_mut_ptr(), rest);
            let mut numbers: StepNumbers = [0; 4 * STEP_ELEMENTS];
            S::dequantize(bytes.as_ptr(), scale, numbers.as_mut_ptr());
            std::ptr::copy_nonoverlapping(numbers.as_ptr(), pen.at(), rest * number_bytes(T));
            pen.advance(rest * number_bytes(T), place);
        }
        place.put_back(pen);
    }
}

/// The last `count` numbers of a run, fewer than a step, filled up with zeros.
///
/// # Safety
/// They are readable.
#[inline(always)]
unsafe fn filled_up<const T: u8>(src: *const u8, count: usize) -> StepNumbers {
    let mut step = [0; 4 * STEP_ELEMENTS];
    // SAFETY: `count` numbers are no more than a step; the rest is passed on to the caller.
    unsafe { std::ptr::copy_nonoverlapping(src, step.as_mut_ptr(), count * number_bytes(T)) };
    step
}

/// Bytes of a number.
pub(in crate::kernels) const fn number_bytes(element: u8) -> usize {
    match element {
        F32 => 4,
        _ => 2,
    }
}
