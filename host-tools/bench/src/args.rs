//! The command line: fio's names, with hyphens or underscores.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use initiator::Nqn;

use crate::error::Error;
use crate::job_file::{self, Section};
use crate::limits;
use crate::spec::JobSpec;

const HELP: &str = "\
TARGET is a file, a block device, or a namespace: nvme+tcp://HOST:PORT/NQN?nsid=N (without ?nsid=N the subsystem's only one). A file that is not there is made, --size long.
Sizes are bytes, or have k, m, g or t behind them (powers of 1024; KiB and so on are the same). Times are seconds, or have us, ms, m or h.

Options, defaults and job files are fio's; docs/bench.md lists what differs. In a job file an option is written without its hyphens,
with underscores: time_based=1. Options on the command line win over those of the file.

Data are safe by default: a mounted device is not written, nor a file, device or namespace that holds anything but zeros and what this
program wrote itself.

Exit status: 0 done, 1 verification found wrong data, 2 the options are not right or the target was refused, 3 something failed.

Examples:
  xio bench /tmp/file --size 1g --rw randread --bs 4k --iodepth 32 --direct --runtime 10
  xio bench /tmp/file --size 1g --rw randwrite --bs 4k --iodepth 16 --verify crc32c
  xio bench /tmp/file --rw read --bs 4k --verify crc32c
  xio bench /dev/nvme0n1 --rw randrw --rwmixread 70 --bssplit 4k/60:64k/40 --iodepth 32 --direct --runtime 60 --time-based
  xio bench 'nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:disk?nsid=1' --rw randread --iodepth 32 --runtime 10
  xio bench /tmp/file --size 256m --rw read --bs 128k --rate 50m --output-format json --plot latency.svg
  xio bench 'nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:disk?nsid=1' --order epoch-7.txt --bs 1m
  xio bench --job-file mixed.fio";

/// What is printed at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Tables for people.
    #[default]
    Normal,
    /// One JSON object with fio's fields.
    Json,
}

/// `xio bench`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// A file, a block device, or nvme+tcp://HOST:PORT/NQN?nsid=N
    #[arg(value_name = "TARGET")]
    pub target: Option<String>,

    /// Jobs in fio's ini form; may be given again
    #[arg(long, value_name = "FILE")]
    pub job_file: Vec<PathBuf>,

    /// Of the job files, only the jobs of this name; may be given again
    #[arg(long, value_name = "NAME")]
    pub section: Vec<String>,

    /// What is printed at the end
    #[arg(long, alias = "output_format", value_enum, default_value_t)]
    pub output_format: OutputFormat,

    /// Write a picture: latency distribution, and bandwidth over time
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,

    /// Write nothing: jobs that would are refused, and a file that is not there or too short stays so
    #[arg(long)]
    pub readonly: bool,

    /// Connect as this host [default: this machine's, of /etc/nvme/hostnqn; where there is none, a new one each time]
    #[arg(long, value_name = "NQN", value_parser = Nqn::parse)]
    pub hostnqn: Option<Nqn>,

    #[command(flatten)]
    options: Options,
}

macro_rules! options {
    (
        values { $($(#[$value_meta:meta])* $value:ident $placeholder:literal $value_help:literal,)* }
        flags { $($(#[$flag_meta:meta])* $flag:ident $flag_help:literal,)* }
    ) => {
        /// The options of a job, as text; [`JobSpec::set`] reads them.
        #[derive(Clone, Debug, Default, Args)]
        struct Options {
            $(
                #[doc = $value_help]
                #[arg(long, value_name = $placeholder, help_heading = "Jobs", alias = stringify!($value), allow_hyphen_values = true)]
                $(#[$value_meta])*
                $value: Option<String>,
            )*
            $(
                #[doc = $flag_help]
                #[arg(
                    long,
                    value_name = "0|1",
                    help_heading = "Jobs",
                    alias = stringify!($flag),
                    num_args = 0..=1,
                    require_equals = true,
                    default_missing_value = "1"
                )]
                $(#[$flag_meta])*
                $flag: Option<String>,
            )*
        }

        impl Options {
            fn given(&self) -> impl Iterator<Item = (&'static str, &str)> {
                let values = [$((stringify!($value), self.$value.as_deref()),)*];
                let flags = [$((stringify!($flag), self.$flag.as_deref()),)*];
                values
                    .into_iter()
                    .chain(flags)
                    .filter_map(|(name, value)| Some((name, value?)))
            }
        }
    };
}

options! {
    values {
        #[arg(visible_alias = "readwrite")]
        rw "HOW" "read, write, randread, randwrite, trim, randtrim, rw or randrw [default: read]",
        #[arg(visible_alias = "blocksize")]
        bs "SIZE[,SIZE[,SIZE]]" "Bytes of a block [default: 4k]: reads, writes, trims",
        bsrange "MIN-MAX" "Block sizes: any multiple of the first up to the second",
        bssplit "SIZE/SHARE:..." "Block sizes with their shares in percent: 4k/60:64k/40",
        iodepth "N" "Commands outstanding, in each job [default: 1]",
        iodepth_batch "N" "Commands that are handed over at once [default: 1]",
        iodepth_batch_complete_min "N" "Completions that are waited for [default: 1]",
        iodepth_batch_complete_max "N" "Completions that are taken at once [default: as the minimum]",
        numjobs "N" "Jobs alike, a thread each [default: 1]",
        rate "BYTES[,BYTES[,BYTES]]" "At most so many bytes a second, in each job: reads, writes, trims",
        rate_iops "N[,N[,N]]" "At most so many commands a second, in each job",
        #[arg(visible_alias = "timeout")]
        runtime "TIME" "End after this time, if not before",
        ramp_time "TIME" "Run for this time before anything is counted",
        size "SIZE" "The part of the target that is used: bytes, or a share as 20% [default: what is there]",
        io_size "SIZE" "Bytes to move, if not the whole part once",
        loops "N" "Go over the part so many times [default: 1]",
        order "FILE" "Read these ranges, in this order: a line each, first byte and number of bytes, as `xio ranges` writes them; longer ones in blocks of bs",
        offset "SIZE" "Where the part begins: bytes, or a share as 20% [default: 0]",
        offset_increment "SIZE" "Added to the offset for each further job of numjobs",
        rwmixread "PERCENT" "Share of reads in rw and randrw [default: 50]",
        rwmixwrite "PERCENT" "Share of writes in rw and randrw",
        fsync "N" "fsync after every N writes",
        fdatasync "N" "fdatasync after every N writes",
        verify "HOW" "crc32c: write blocks that vouch for themselves and read them back; with reads, check what a former run wrote",
        #[arg(visible_alias = "randseed")]
        seed "N" "Of random places and sizes, and of verified data [default: 1]",
        name "NAME" "Name of the job in reports",
        directory "FOLDER" "Where jobs without a target of their own make their files",
        ioengine "ENGINE" "io_uring is the only one",
    }
    flags {
        direct "Without the page cache (O_DIRECT)",
        time_based "Go on until the runtime is over, over the part again and again",
        norandommap "Random places without care for those that were visited",
        invalidate "Drop the part from the page cache before each pass over it [default: 1]",
        end_fsync "fsync at the end of writing",
        do_verify "Read verified writes back in the same run [default: 1]",
        fixedbufs "Buffers that are registered with the ring",
        registerfiles "The file is registered with the ring [default: 1]",
        #[arg(visible_alias = "sqthread-poll")]
        sqpoll "A thread of the kernel looks for commands, which need no system call then",
        group_reporting "One report for all jobs that run together",
        allow_overwrite "Write to what holds foreign data",
        allow_mounted_write "Write to a mounted block device",
    }
}

impl Arguments {
    /// The jobs that are asked for.
    ///
    /// # Errors
    /// An option or a line that is not right.
    pub fn jobs(&self) -> Result<Vec<JobSpec>, Error> {
        let mut jobs = Vec::new();
        for path in &self.job_file {
            let sections = read(path)?;
            let wanted =
                |section: &Section| self.section.is_empty() || self.section.contains(&section.name);
            for section in sections.iter().filter(|section| wanted(section)) {
                jobs.push(self.job_of(section, path)?);
            }
        }
        if self.job_file.is_empty() {
            if let Some(name) = self.section.first() {
                return Err(Error::Option {
                    option: "section".to_owned(),
                    why: format!("'{name}' would be a job of a job file; give --job-file, too"),
                });
            }
            let mut job = JobSpec::new("bench");
            self.apply(&mut job)?;
            jobs.push(job);
        }
        if jobs.is_empty() {
            return Err(Error::Option {
                option: "section".to_owned(),
                why: "no job file has a job of this name".to_owned(),
            });
        }
        for job in &mut jobs {
            job.readonly = self.readonly;
            job.hostnqn.clone_from(&self.hostnqn);
            job.check().map_err(|why| Error::job(&job.name, why))?;
            if self.readonly && job.rw.changes() {
                return Err(Error::job(
                    &job.name,
                    "it would write, and --readonly is given",
                ));
            }
        }
        Ok(jobs)
    }

    fn job_of(&self, section: &Section, path: &Path) -> Result<JobSpec, Error> {
        let mut job = JobSpec::new(&section.name);
        for setting in &section.settings {
            let value = setting.value.as_deref().map(environment).transpose();
            let value = value.and_then(|value| match (setting.name.as_str(), value) {
                ("filename", Some(name)) => one_file(&name).map(Some),
                (_, value) => Ok(value),
            });
            value
                .and_then(|value| job.set(&setting.name, value.as_deref()))
                .map_err(|why| Error::JobFile {
                    path: path.to_owned(),
                    line: setting.line,
                    why: if why.starts_with("option '") {
                        why
                    } else {
                        format!("{}: {why}", setting.name)
                    },
                })?;
            if setting.global {
                job.last_is_global();
            }
        }
        self.apply(&mut job)?;
        Ok(job)
    }

    fn apply(&self, job: &mut JobSpec) -> Result<(), Error> {
        let target = self.target.as_deref().map(|target| ("filename", target));
        for (name, value) in self.options.given().chain(target) {
            job.set(name, Some(value)).map_err(|why| Error::Option {
                option: name.replace('_', "-"),
                why,
            })?;
        }
        Ok(())
    }
}

fn environment(value: &str) -> Result<String, String> {
    job_file::expanded(value, |name| std::env::var(name).ok())
}

fn read(path: &Path) -> Result<Vec<Section>, Error> {
    let failed = |source| Error::io("reading", path, source);
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    if bytes > limits::JOB_FILE_BYTES_MAX {
        return Err(Error::JobFile {
            path: path.to_owned(),
            line: 1,
            why: format!("{bytes} bytes are too many for a job file"),
        });
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    job_file::parse(&text).map_err(|fault| Error::JobFile {
        path: path.to_owned(),
        line: fault.line,
        why: fault.why,
    })
}

/// A job file's `filename`, where fio separates several by colons and writes one that belongs to the name as `\:`. A URL is none of fio's.
fn one_file(text: &str) -> Result<String, String> {
    let mut name = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&':') => name.extend(letters.next()),
            ':' if !text.contains("://") => {
                return Err(format!(
                    "'{text}' would be several files in fio; a job has one here: write \\: for a colon in its name, or a job for each file"
                ));
            }
            _ => name.push(letter),
        }
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn jobs(line: &[&str]) -> Result<Vec<JobSpec>, Error> {
        let line = ["bench"].iter().chain(line);
        Line::try_parse_from(line).unwrap().arguments.jobs()
    }

    #[test]
    fn options_are_taken_in_both_spellings_and_flags_with_and_without_a_value() {
        let line = [
            "/x",
            "--rw",
            "randrw",
            "--rate-iops=5",
            "--time_based",
            "--runtime=3",
            "--direct=1",
            "--invalidate=0",
            "--fixedbufs",
        ];
        let jobs = jobs(&line).unwrap();
        let job = &jobs[0];
        assert_eq!(job.filename.as_deref(), Some("/x"));
        assert_eq!(job.rw.name(), "randrw");
        assert_eq!(job.rate_iops, [Some(5); 3]);
        assert!(job.time_based && job.direct && job.fixedbufs && !job.invalidate);
    }

    #[test]
    fn every_option_of_the_command_line_is_one_of_a_job() {
        let options = Options {
            rw: Some("read".to_owned()),
            ..Options::default()
        };
        assert_eq!(options.given().collect::<Vec<_>>(), [("rw", "read")]);
        let command = <Line as clap::CommandFactory>::command();
        command.clone().debug_assert();
        let heading = |argument: &&clap::Arg| argument.get_help_heading() == Some("Jobs");
        for argument in command.get_arguments().filter(heading) {
            let name = argument.get_id().as_str();
            assert!(crate::spec::NAMES.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_fault_in_a_job_file_has_its_place_and_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.fio");
        std::fs::write(&path, "[global]\nbs=4k\n[one]\niodepht=3\n").unwrap();
        let name = path.to_str().unwrap();
        let error = jobs(&["--job-file", name]).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("{name}:4: option 'iodepht' is not known; is iodepth meant?")
        );
        std::fs::write(&path, "[one]\nfilename=a:b\n").unwrap();
        let error = jobs(&["--job-file", name]).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "{name}:2: filename: 'a:b' would be several files in fio; a job has one here: write \\: for a colon in its name, or a job for each file"
            )
        );
        for (written, meant) in [
            (r"a\:b", "a:b"),
            (r"a\b", r"a\b"),
            (
                "nvme+tcp://h:4420/nqn.x:y?nsid=1",
                "nvme+tcp://h:4420/nqn.x:y?nsid=1",
            ),
        ] {
            std::fs::write(&path, format!("[one]\nfilename={written}\n")).unwrap();
            let made = jobs(&["--job-file", name]).unwrap();
            assert_eq!(made[0].filename.as_deref(), Some(meant));
        }
        std::fs::write(&path, "[one]\nrw=sideways\n").unwrap();
        let error = jobs(&["--job-file", name]).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("{name}:2: rw: 'sideways' is none of")),
            "{error}"
        );
        let error = jobs(&["--bs", "3"]).unwrap_err().to_string();
        assert!(
            error.starts_with("--bs: 3 bytes is no multiple of 512"),
            "{error}"
        );
    }

    #[test]
    fn sections_are_chosen_and_the_command_line_wins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.fio");
        std::fs::write(
            &path,
            "[global]\nbs=4k\niodepth=8\n[one]\nrw=read\n[two]\nrw=randread\nstonewall\n",
        )
        .unwrap();
        let name = path.to_str().unwrap();
        let both = jobs(&["--job-file", name, "--iodepth", "2", "/y"]).unwrap();
        assert_eq!(
            both.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(),
            ["one", "two"]
        );
        assert!(
            both.iter()
                .all(|job| job.iodepth == 2 && job.filename.as_deref() == Some("/y"))
        );
        assert!(both[1].stonewall && !both[0].stonewall);
        let two = jobs(&["--job-file", name, "--section", "two"]).unwrap();
        assert_eq!(two.len(), 1);
        assert!(jobs(&["--job-file", name, "--section", "three"]).is_err());
        let error = jobs(&["/y", "--section", "two"]).unwrap_err().to_string();
        assert!(error.starts_with("--section: 'two' would be"), "{error}");
        assert!(jobs(&["--rw", "write", "--readonly"]).is_err());
    }
}
