//! What rounding did to values is counted and measured.

#![allow(clippy::unwrap_used)] // a test: a panic is the report

use transforms::conformance::floats::converted;
use transforms::{Chain, ElementType, Isa, Loss, LossMeter, TransformError, ViewChain, Worst};

use ElementType::{Bf16, F16, F32, F64};

fn meter(stored: &str, view: &str, source: ElementType) -> LossMeter {
    let stored = Chain::parse(stored, source).unwrap();
    LossMeter::new(&stored, &ViewChain::parse(view, source).unwrap()).unwrap()
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn measured(stored: &str, view: &str, values: &[f32]) -> Loss {
    let mut meter = meter(stored, view, F32);
    meter.add(&f32s(values)).unwrap();
    meter.finish()
}

#[test]
fn every_kind_of_loss_is_counted_as_itself() {
    let inf = f32::INFINITY;
    let values = [
        1.0,
        f32::NAN,
        -f32::NAN,
        inf,
        -inf,
        -inf,
        65520.0,
        -1e30,
        1e-8,
        0.0,
        -0.0,
        2049.0,
        -2047.0,
        f32::MIN_POSITIVE,
    ];
    let loss = measured("f16", "none", &values);
    let expected = (14, 2, 3, 2, 2);
    let found = (
        loss.elements,
        loss.nans,
        loss.infinities,
        loss.saturated,
        loss.vanished,
    );
    assert_eq!(found, expected);
    let worst = Worst {
        index: 11,
        source: 2049.0,
        presented: 2048.0,
    };
    assert_eq!(loss.worst, Some(worst));
    assert_eq!(loss.largest_error(), Some(1.0));
    assert_eq!(loss.finite, Some((f64::from(-1e30f32), 65520.0)));
    // Of 14 - 2 - 3 - 2 numbers: 1, and what vanished.
    let (small, smaller) = (f64::from(1e-8f32), f64::from(f32::MIN_POSITIVE));
    let squares = 1.0 + small * small + smaller * smaller;
    assert!((loss.rms_error().unwrap() - (squares / 7.0).sqrt()).abs() < 1e-15);
}

#[test]
fn nothing_is_lost_where_nothing_is_rounded() {
    let values = [1.0, f32::NAN, 1e30, 0.1];
    for (stored, view) in [("none", "none"), ("f32", "f64"), ("shuffle+lz4", "f32")] {
        assert!(!meter(stored, view, F32).is_lossy());
        let loss = measured(stored, view, &values);
        assert_eq!((loss.worst, loss.largest_error()), (None, Some(0.0)));
        assert_eq!(
            (loss.elements, loss.nans, loss.rms_error()),
            (4, 1, Some(0.0))
        );
    }
    let mut integers = meter("u16+lz4", "none", ElementType::U32);
    integers.add(&[0; 40]).unwrap();
    let loss = integers.finish();
    assert_eq!((loss.elements, loss.finite), (10, None));
    assert_eq!(meter("none", "none", F32).finish(), Loss::default());
}

/// No error of any number is known then: that is not an error of 0.
#[test]
fn where_every_number_became_infinite_there_is_no_error() {
    for values in [&[1e30, -1e30, f32::NAN, f32::INFINITY][..], &[]] {
        let loss = measured("none", "f16", values);
        assert_eq!((loss.largest_error(), loss.rms_error()), (None, None));
    }
    let loss = measured("none", "f16", &[1e30, 1e-30]);
    assert_eq!((loss.saturated, loss.vanished), (1, 1));
    assert_eq!(loss.largest_error(), Some(f64::from(1e-30f32)));
}

#[test]
fn chain_and_view_are_measured_together() {
    // bf16 keeps 1 + 2^-7 and f16 keeps 1 + 2^-10; each alone keeps one of these, both together neither.
    let values = [1.0 + 0.5f32.powi(10), 1.0 + 0.5f32.powi(7), 1e10];
    assert!(meter("bf16", "f16", F32).is_lossy());
    let both = measured("bf16", "f16", &values);
    assert_eq!(
        (both.saturated, both.largest_error()),
        (1, Some(0.5f64.powi(10)))
    );
    let view = measured("none", "f16", &values);
    assert_eq!((view.saturated, view.largest_error()), (1, Some(0.0)));
    let stored = measured("bf16", "none", &values);
    assert_eq!(stored.saturated, 0);
    let error = f64::from(1e10f32) - f64::from(f32::from_bits(0x5015_0000));
    assert_eq!(stored.largest_error(), Some(error.abs()));
}

#[test]
fn the_measure_is_the_same_however_the_elements_come_and_on_every_machine() {
    let values: Vec<f64> = (0..5000)
        .map(|i| f64::from(i * i % 7919) * 1.1e-3 - 3.0)
        .collect();
    let elements: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let value = |element, bits| f64::from_bits(converted(element, F64, bits));
    for to in [F32, F16, Bf16] {
        let chain = Chain::parse(to.name(), F64).unwrap();
        let mut first = None;
        for isa in Isa::available() {
            for part in [1, 7, 1000, 1024, 5000] {
                let chain = chain.with_isa(isa);
                let mut meter = LossMeter::new(&chain, &ViewChain::identity()).unwrap();
                for elements in elements.chunks(8 * part) {
                    meter.add(elements).unwrap();
                }
                let loss = meter.finish();
                assert_eq!(
                    *first.get_or_insert(loss),
                    loss,
                    "{isa:?}, {part} at a time"
                );
            }
        }
        let errors = values
            .iter()
            .map(|v| (value(to, converted(F64, to, v.to_bits())) - v).abs());
        let loss = first.unwrap();
        assert_eq!(
            loss.largest_error(),
            Some(errors.clone().fold(0.0, f64::max))
        );
        let rms = (errors.map(|e| e * e).sum::<f64>() / 5000.0).sqrt();
        assert!(
            (loss.rms_error().unwrap() / rms - 1.0).abs() < 1e-12,
            "{to}"
        );
    }
}

#[test]
fn what_was_measured_apart_is_put_together() {
    let values: Vec<f32> = (0..3000u16).map(|i| 1.0 + f32::from(i) * 1e-5).collect();
    let whole = measured("bf16", "none", &values);
    let mut parts = measured("bf16", "none", &values[..2048]);
    parts.append(&measured("bf16", "none", &values[2048..]));
    assert_eq!(parts, whole);
    let mut behind = Loss::default();
    behind.append(&whole);
    assert_eq!(behind, whole);
    let mut late = measured("bf16", "none", &[1.0; 10]);
    late.append(&whole);
    let expected = whole.worst.map(|worst| worst.index + 10);
    assert_eq!(late.worst.map(|worst| worst.index), expected);
}

#[test]
fn half_an_element_is_refused() {
    let error = meter("bf16", "none", F32).add(&[0; 6]).unwrap_err();
    assert_eq!(
        error,
        TransformError::PartialElement {
            bytes: 6,
            element: F32
        }
    );
    let chain = Chain::parse("bf16", F32).unwrap();
    let view = ViewChain::parse("f16", F64).unwrap();
    assert!(LossMeter::new(&chain, &view).is_err());
}
