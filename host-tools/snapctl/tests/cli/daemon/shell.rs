//! A shell that runs the commands of a document, with the programs that were built.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub struct Shell {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    goodbye: &'static str,
}

impl Shell {
    /// In this folder; where it is dropped it is told `goodbye`, and waited for.
    pub fn start(folder: &Path, environment: &[(&str, &Path)], goodbye: &'static str) -> Shell {
        let programs = Path::new(env!("CARGO_BIN_EXE_snapctl")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut child = Command::new("sh")
            .env("PATH", format!("{}:{path}", programs.display()))
            .envs(environment.iter().copied())
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "exec 2>&1").unwrap();
        Shell {
            stdin,
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            goodbye,
        }
    }

    /// Runs a line, and returns what is printed up to the end of the line that has `mark`.
    pub fn run(&mut self, line: &str, mark: &str) -> String {
        writeln!(self.stdin, "{line}").unwrap();
        let mut printed = String::new();
        let mut from = 0;
        while !printed[from..].contains(mark) {
            from = printed.len();
            let read = self.stdout.read_line(&mut printed).unwrap();
            assert!(read > 0, "the shell has ended: {line}\n{printed}");
        }
        printed
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _told = writeln!(self.stdin, "{}", self.goodbye);
        let _ended = self.child.wait();
    }
}
