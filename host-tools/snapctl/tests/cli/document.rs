//! docs/snapctl.md has every command. That it shows what they print is looked at with a daemon: `daemon::session`.

use std::path::Path;

use super::support::commands;

#[test]
fn every_command_is_in_the_document() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/snapctl.md");
    let document = std::fs::read_to_string(path).unwrap();
    let mut forgotten: Vec<String> = commands().iter().map(|words| words.join(" ")).collect();
    forgotten.retain(|command| {
        let is_run = document.contains(&format!("\n$ snapctl {command}"));
        !is_run && !document.contains(&format!("`snapctl {command}`"))
    });
    assert_eq!(forgotten, [""; 0]);
}
