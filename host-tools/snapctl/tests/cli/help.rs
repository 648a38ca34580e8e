//! What the program says of itself.

use std::io::Write;
use std::process::{Command, Stdio};

use super::support::{commands, snapctl};

#[test]
fn every_command_has_help_with_an_example_of_itself() {
    let commands = commands();
    assert!(commands.len() > 20, "{commands:?}");
    for words in commands {
        let name = words.join(" ");
        let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        arguments.push("--help");
        let ran = snapctl(None, &arguments);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{name}");
        let (_, examples) = ran.stdout.split_once("Example").unwrap_or_default();
        assert!(
            examples.contains(&format!("  snapctl {name}")),
            "{name}: {}",
            ran.stdout
        );
    }
}

/// Whoever copies an example gets all of it: the help is wrapped to the terminal, and a line that is broken there is another command.
#[test]
fn each_example_is_a_command_to_its_end() {
    for words in commands() {
        let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        arguments.push("--help");
        let help = snapctl(None, &arguments).stdout;
        let (_, examples) = help.split_once("\nExample").unwrap_or_default();
        let lines = examples.lines().skip(1).take_while(|line| !line.is_empty());
        let mut goes_on = false;
        for line in lines {
            assert!(line.len() <= 80, "{line}");
            assert_eq!(goes_on, !line.starts_with("  snapctl "), "{line}");
            goes_on = line.ends_with(" \\");
        }
        assert!(!goes_on, "{examples}");
    }
}

#[test]
fn the_exit_statuses_are_in_the_help() {
    let help = snapctl(None, &["--help"]).stdout;
    let told: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Exit status:")
        .skip(1)
        .map_while(|line| line.strip_prefix("  ")?.split(' ').next())
        .collect();
    let expected = ["0", "1", "2", "3", "4", "5", "6", "7", "130"];
    assert_eq!(told, expected, "{help}");
}

#[test]
fn every_shell_gets_its_completions_and_bash_can_read_them() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = snapctl(None, &["completions", shell]);
        assert_eq!(ran.status, 0, "{shell}");
        for words in commands() {
            let last = words.last().unwrap();
            assert!(ran.stdout.contains(last), "{shell}: {last}");
        }
    }
    let script = snapctl(None, &["completions", "bash"]).stdout;
    let mut bash = Command::new("bash")
        .arg("-n")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    let read = bash.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(read.stderr).unwrap(), "");
    assert!(read.status.success());
}
