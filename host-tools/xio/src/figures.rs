//! Figures for people: a few digits, or a dash where there is nothing to divide by.

/// Stored bits for each value.
pub fn bits_per_value(stored_bytes: u64, elements: u64) -> String {
    quotient(stored_bytes.saturating_mul(8), elements, 2)
}

/// How many times smaller.
pub fn ratio(source_bytes: u64, stored_bytes: u64) -> String {
    quotient(source_bytes, stored_bytes, 2)
}

/// Part of a whole, in percent.
pub fn share(part: u64, whole: u64) -> String {
    match quotient(part.saturating_mul(100), whole, 1) {
        dash if dash == "-" => dash,
        percent => format!("{percent} %"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn quotient(numerator: u64, denominator: u64, digits: usize) -> String {
    if denominator == 0 {
        return "-".to_owned();
    }
    format!("{:.digits$}", numerator as f64 / denominator as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_a_few_digits_and_nothing_is_a_dash() {
        assert_eq!(bits_per_value(2_000, 1_000), "16.00");
        assert_eq!(ratio(4, 3), "1.33");
        assert_eq!(share(1, 8), "12.5 %");
        assert_eq!((ratio(4, 0), share(0, 0)), ("-".to_owned(), "-".to_owned()));
    }
}
