//! What a person should know of what is presented.

use printout::size::grouped;
use transforms::{ElementType, Loss};

/// What became of numbers that are no rounded ones.
pub fn destroyed((from, to): (ElementType, ElementType), loss: &Loss) -> Option<String> {
    let became = [(loss.saturated, "infinite"), (loss.vanished, "zero")];
    let became: Vec<String> = became
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} became {what}", grouped(*count)))
        .collect();
    (!became.is_empty()).then(|| {
        let elements = grouped(loss.elements);
        format!(
            "of {elements} numbers of {from}, {} in {to}",
            became.join(" and ")
        )
    })
}
