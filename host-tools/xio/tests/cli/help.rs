//! What the program says of itself.

use super::support::Folder;

const COMMANDS: [&str; 15] = [
    "plan",
    "pack",
    "map",
    "format",
    "inspect",
    "verify",
    "ranges",
    "unpack",
    "cp",
    "mount",
    "diff",
    "tag",
    "demo",
    "bench",
    "completions",
];

#[test]
fn every_command_has_help_with_an_example_and_is_named_in_the_help_of_all() {
    let folder = Folder::new();
    let all = folder.done(["--help"]);
    for command in COMMANDS {
        assert!(all.contains(&format!("\n  {command} ")), "{all}");
        let help = folder.done([command, "--help"]);
        assert!(help.contains("Example"), "{help}");
        assert!(
            help.contains(&format!("  xio {command}"))
                || help.contains(&format!("xio {command}\n")),
            "{help}"
        );
    }
    for status in [
        "  0  done",
        "  1  the data",
        "  2  the command line",
        "  3  something",
    ] {
        assert!(all.contains(status), "{all}");
    }
}

#[test]
fn every_shell_gets_its_completions() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = folder.done(["completions", shell]);
        for word in COMMANDS.iter().chain(&["--store-as", "--against"]) {
            // fish writes long options without their dashes.
            assert!(
                script.contains(word.trim_start_matches('-')),
                "{shell}: {word}"
            );
        }
    }
}

#[test]
fn nothing_is_coloured_or_drawn_where_there_is_no_terminal() {
    let folder = Folder::new();
    folder.write("a.bin", &[7; 4096]);
    let packed = folder.xio(["pack", "a.bin", "--dtype", "u8", "-o", "v.xio"]);
    let failed = folder.xio(["pack", "a.bin", "--dtype", "u8", "-o", "v.xio"]);
    let usage = folder.xio(["pack"]);
    for ran in [&packed, &failed, &usage] {
        assert!(
            !ran.stdout.contains('\x1b') && !ran.stderr.contains('\x1b'),
            "{ran:?}"
        );
        assert!(!ran.stderr.contains('\r'), "{ran:?}");
    }
    assert_eq!((packed.status, failed.status, usage.status), (0, 2, 2));
}
