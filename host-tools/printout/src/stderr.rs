//! What a program says on standard error. Names of files are in it, and texts of servers: a terminal is not commanded by them.

use std::fmt::Display;
use std::io::{self, IsTerminal};

/// Says why the program failed, on one line; in red where a terminal shows it, and NO_COLOR is not set.
pub fn error(why: impl Display) {
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let (on, off) = if colour {
        ("\x1b[1;31m", "\x1b[0m")
    } else {
        ("", "")
    };
    eprintln!("{on}error:{off} {}", harmless(&why.to_string()));
}

/// Prints what a person should know, though nothing failed.
pub fn note(text: impl Display) {
    eprintln!("note: {}", harmless(&text.to_string()));
}

/// Control characters but line feeds as `\x1b`.
fn harmless(text: &str) -> String {
    let mut harmless = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && character != '\n' {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                harmless.push_str(&format!("\\x{byte:02x}"));
            }
        } else {
            harmless.push(character);
        }
    }
    harmless
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn terminals_are_not_commanded() {
        let text = "a\x1b[31mred\x07\u{9b}1m\tdonn\u{e9}es\n";
        assert_eq!(
            harmless(text),
            "a\\x1b[31mred\\x07\\xc2\\x9b1m\\x09donn\u{e9}es\n"
        );
    }
}
