//! Tables for people: columns as wide as their widest cell, numbers to the right.

use std::fmt::Write;

/// Which side a column's cells keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows of text cells under headings.
#[derive(Debug)]
pub struct TextTable {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with these headings and no rows.
    #[must_use]
    pub fn new(columns: &[(&str, Align)]) -> TextTable {
        TextTable {
            columns: columns
                .iter()
                .map(|(heading, align)| ((*heading).to_owned(), *align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Cells may come from elsewhere: controls that a terminal would obey become blanks.
    ///
    /// # Panics
    /// Where it has not one cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let cells: Vec<String> = cells
            .into_iter()
            .map(|cell| cell.into().chars().map(clean).collect())
            .collect();
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// The lines, headings first, without blanks at their ends.
    #[must_use]
    pub fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| &row[column]);
            let heading = &self.columns[column].0;
            cells
                .chain([heading])
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let headings: Vec<String> = self
            .columns
            .iter()
            .map(|(heading, _)| heading.clone())
            .collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(&self.columns) {
                // Writing to a String cannot fail.
                let _ = match align {
                    Align::Left => write!(line, "{cell:<width$}  "),
                    Align::Right => write!(line, "{cell:>width$}  "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_lines_end_without_blanks() {
        let mut table = TextTable::new(&[
            ("chain", Align::Left),
            ("bytes", Align::Right),
            ("is", Align::Left),
        ]);
        table.row(["u16+lz4", "1,024", "é"]);
        table.row(["no\x1bne", "7\n", ""]);
        assert_eq!(
            table.render(),
            "chain    bytes  is\n\
             u16+lz4  1,024  é\n\
             no ne       7\n"
        );
    }
}
