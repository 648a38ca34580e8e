//! `snapctl announce` and `snapctl announcement`.

use admin_proto::limits::PAYLOAD_BYTES_MAX;
use admin_proto::v1;
use clap::{Args, Subcommand};
use printout::text_table::{Align, TextTable};

use crate::context::Context;
use crate::failure::Failure;
use crate::text;

const HELP: &str = "\
Others read it with `snapctl events --topic announcement --follow`, and what each reader said last with `snapctl announcement list`. The daemon does not look
into it.

Examples:
  snapctl announce nqn.2026-11.org.example:trainer1 --epoch 2 --position 81920
  snapctl announce nqn.2026-11.org.example:trainer1 --reader rank3 \\
      --subsystem nqn.2026-11.org.example:data --nsid 1 --epoch 2 \\
      --position 81920 --length 4096";

/// `snapctl announce`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Announce {
    /// The host that says it, by its NQN
    #[arg(value_name = "HOST")]
    pub host: String,

    /// Which of its readers, where it has several: a process, a rank
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reader: String,

    /// The subsystem that it reads from
    #[arg(long, value_name = "NQN", default_value = "")]
    pub subsystem: String,

    /// The namespace that it reads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=0xFFFF_FFFE))]
    pub nsid: Option<u32>,

    /// Epoch of its data
    #[arg(long, value_name = "N")]
    pub epoch: Option<u64>,

    /// Position in that epoch, in units that the readers agree on
    #[arg(long, value_name = "N")]
    pub position: Option<u64>,

    /// How much it will want from there on, in the same units
    #[arg(long, value_name = "N")]
    pub length: Option<u64>,

    /// For the others alone: text of at most 4096 bytes
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub payload: String,
}

/// What to do with announcements.
#[derive(Debug, Subcommand)]
pub enum Announcement {
    /// List what each reader of each host said last
    List(List),
}

/// `snapctl announcement list`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  snapctl announcement list\n  snapctl announcement list --host nqn.2026-11.org.example:trainer1 --json"
)]
pub struct List {
    /// Of this host only
    #[arg(long, value_name = "NQN", default_value = "")]
    pub host: String,
}

/// Runs `announce`.
pub async fn run(arguments: Announce, context: &Context) -> Result<(), Failure> {
    if arguments.payload.len() > PAYLOAD_BYTES_MAX {
        return Err(Failure::usage(format!(
            "--payload has {} bytes; at most {PAYLOAD_BYTES_MAX} are told",
            arguments.payload.len()
        )));
    }
    let request = v1::PublishRequest {
        host_nqn: arguments.host,
        reader: arguments.reader,
        subsystem_nqn: arguments.subsystem,
        nsid: arguments.nsid.unwrap_or(0),
        epoch: arguments.epoch,
        position: arguments.position,
        length: arguments.length,
        payload: arguments.payload.into_bytes(),
    };
    let daemon = context.daemon().await?;
    let answer = daemon.answer(daemon.event().publish(request)).await?;
    context.show(&answer, |answer| {
        format!("told as announcement {}\n", answer.sequence)
    })
}

/// Runs `announcement`.
pub async fn show(command: Announcement, context: &Context) -> Result<(), Failure> {
    let Announcement::List(arguments) = command;
    let daemon = context.daemon().await?;
    let answer = daemon
        .all(|page| {
            let mut client = daemon.event();
            let request = v1::ListAnnouncementsRequest {
                host_nqn: arguments.host.clone(),
                page_size: page.size,
                page_token: page.token,
            };
            async move { client.list_announcements(request).await }
        })
        .await?;
    context.show(&answer, |answer: &v1::ListAnnouncementsResponse| {
        let mut table = TextTable::new(&[
            ("host", Align::Left),
            ("reader", Align::Left),
            ("subsystem", Align::Left),
            ("nsid", Align::Right),
            ("epoch", Align::Right),
            ("position", Align::Right),
            ("length", Align::Right),
            ("host proven", Align::Left),
            ("at", Align::Left),
        ]);
        let number = |number: Option<u64>| number.map_or("-".to_owned(), |n| n.to_string());
        for announcement in &answer.announcements {
            let nsid = announcement.nsid;
            table.row([
                announcement.host_nqn.clone(),
                text::or_dash(&announcement.reader),
                text::or_dash(&announcement.subsystem_nqn),
                number((nsid != 0).then(|| nsid.into())),
                number(announcement.epoch),
                number(announcement.position),
                number(announcement.length),
                text::yes(announcement.verified),
                text::when(announcement.at.as_ref()),
            ]);
        }
        table.render()
    })
}

/// An announcement on one line.
pub fn said(announcement: &v1::Announcement) -> String {
    let mut said = announcement.host_nqn.clone();
    if !announcement.reader.is_empty() {
        said += &format!(" reader {}", announcement.reader);
    }
    if !announcement.subsystem_nqn.is_empty() {
        said += &format!(" of {}", announcement.subsystem_nqn);
    }
    for (name, number) in [
        (
            "nsid",
            (announcement.nsid != 0).then(|| announcement.nsid.into()),
        ),
        ("epoch", announcement.epoch),
        ("position", announcement.position),
        ("length", announcement.length),
    ] {
        if let Some(number) = number {
            said += &format!(" {name} {number}");
        }
    }
    if !announcement.payload.is_empty() {
        said += &format!(", payload of {} bytes", announcement.payload.len());
    }
    said
}
