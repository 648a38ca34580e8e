//! What a terminal shows of what was written to it, as far as `xio` uses one.

/// Rows of characters, and the cursor.
#[derive(Debug)]
pub struct Screen {
    columns: usize,
    rows: Vec<Vec<char>>,
    row: usize,
    column: usize,
}

impl Screen {
    pub fn new(columns: usize) -> Screen {
        Screen {
            columns,
            rows: vec![Vec::new()],
            row: 0,
            column: 0,
        }
    }

    pub fn show(&mut self, text: &str) {
        let mut left = text.chars();
        while let Some(character) = left.next() {
            match character {
                '\r' => self.column = 0,
                '\n' => self.down(),
                '\x1b' => {
                    assert_eq!(left.next(), Some('['), "{text:?}");
                    let mut number = String::new();
                    let end = left.find(|it| {
                        number.push(*it);
                        it.is_ascii_alphabetic()
                    });
                    number.pop();
                    self.obey(&number, end.unwrap());
                }
                character => {
                    // A full line goes on in the next with the next character, not before.
                    if self.column == self.columns {
                        self.column = 0;
                        self.down();
                    }
                    let row = &mut self.rows[self.row];
                    row.resize(row.len().max(self.column + 1), ' ');
                    row[self.column] = character;
                    self.column += 1;
                }
            }
        }
    }

    fn down(&mut self) {
        self.row += 1;
        if self.row == self.rows.len() {
            self.rows.push(Vec::new());
        }
    }

    fn obey(&mut self, number: &str, command: char) {
        match (command, number) {
            ('K', "2") => self.rows[self.row].clear(),
            ('A', number) => self.row -= number.parse::<usize>().unwrap(),
            ('B', number) => (0..number.parse().unwrap()).for_each(|_| self.down()),
            // Colours.
            ('m', _) => {}
            other => panic!("{other:?}"),
        }
    }

    /// What a person reads; blanks at the end of a line are none.
    pub fn text(&self) -> String {
        let line = |row: &Vec<char>| row.iter().collect::<String>().trim_end().to_owned();
        let lines: Vec<String> = self.rows.iter().map(line).collect();
        lines.join("\n").trim_end().to_owned()
    }

    pub fn column(&self) -> usize {
        self.column
    }
}
