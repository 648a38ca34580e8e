//! `snapctl announce`.

use admin_proto::limits::PAYLOAD_BYTES_MAX;
use admin_proto::v1;
use clap::Args;

use crate::context::Context;
use crate::failure::Failure;

const HELP: &str = "\
Others read it with `snapctl events --topic announcement --follow`. The daemon does not look into the payload.

Example:
  snapctl announce nqn.2026-11.org.example:trainer1 --epoch 2 --position 81920";

/// `snapctl announce`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Announce {
    /// The host that says it, by its NQN
    #[arg(value_name = "HOST")]
    pub host: String,

    /// Epoch of its data
    #[arg(long, value_name = "N")]
    pub epoch: u64,

    /// Position in that epoch, in units that the hosts agree on
    #[arg(long, value_name = "N")]
    pub position: u64,

    /// For the others alone: text of at most 4096 bytes
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub payload: String,
}

/// Runs it.
pub async fn run(arguments: Announce, context: &Context) -> Result<(), Failure> {
    if arguments.payload.len() > PAYLOAD_BYTES_MAX {
        return Err(Failure::usage(format!(
            "--payload has {} bytes; at most {PAYLOAD_BYTES_MAX} are told",
            arguments.payload.len()
        )));
    }
    let request = v1::PublishRequest {
        host_nqn: arguments.host,
        epoch: Some(arguments.epoch),
        position: Some(arguments.position),
        payload: arguments.payload.into_bytes(),
        ..v1::PublishRequest::default()
    };
    let daemon = context.daemon().await?;
    let answer = daemon.answer(daemon.event().publish(request)).await?;
    context.show(&answer, |answer| {
        format!("told as announcement {}\n", answer.sequence)
    })?;
    Ok(())
}
