//! `snapctl target`.

use admin_proto::v1;
use clap::{Args, Subcommand};
use printout::size::Size;

use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// What to do with the daemon as a whole.
#[derive(Debug, Subcommand)]
pub enum Target {
    /// Show version, configuration and place of state
    Show(Show),
    /// Show state and open problems
    Health(Health),
    /// Let it end as SIGTERM does: what is in flight ends first
    Drain(Drain),
}

/// `snapctl target show`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  snapctl target show")]
pub struct Show {}

/// `snapctl target health`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  snapctl target health\n  snapctl target health --json | jq -e '.state == \"HEALTH_STATE_SERVING\"'"
)]
pub struct Health {}

/// `snapctl target drain`.
#[derive(Debug, Args)]
#[command(
    after_help = "Answered when draining has begun; `snapctl events --topic progress --follow` tells the rest.\n\nExample:\n  snapctl target drain --within 30"
)]
pub struct Drain {
    /// Commands in flight may take this long; otherwise as configured
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=600))]
    pub within: Option<u32>,
}

/// Runs one of them.
pub async fn run(command: Target, context: &Context) -> Result<(), Failure> {
    match command {
        Target::Show(Show {}) => show(context).await,
        Target::Health(Health {}) => health(context).await,
        Target::Drain(arguments) => drain(arguments, context).await,
    }
}

async fn show(context: &Context) -> Result<(), Failure> {
    let answer = context.daemon().await?.info().await?;
    context.show(&answer, |info| {
        let state = if info.state_folder.is_empty() {
            "none: changes end with the daemon".to_owned()
        } else {
            info.state_folder.clone()
        };
        text::description(&[
            ("version", info.version.clone()),
            ("revision", info.revision.to_string()),
            ("instance", info.instance.clone()),
            ("machine", info.machine.clone()),
            ("pid", info.pid.to_string()),
            ("started", text::when(info.started_at.as_ref())),
            ("reactors", info.reactors.to_string()),
            ("workers", info.workers.to_string()),
            ("cache", of_each_reactor(info.cache_bytes)),
            ("prefetch", prefetch(info)),
            ("io_uring", text::or_dash(&info.ring_features.join(" "))),
            ("features", text::or_dash(&info.features.join(" "))),
            ("configuration", text::or_dash(&info.config_file)),
            ("state folder", state),
            ("at most", limits(info.limits.unwrap_or_default())),
        ])
    })
}

/// What was told of each reactor; an older daemon tells 0.
fn of_each_reactor(bytes: u64) -> String {
    match bytes {
        0 => text::or_dash(""),
        bytes => format!("{} of each reactor", Size(bytes)),
    }
}

fn prefetch(info: &v1::GetInfoResponse) -> String {
    match (info.prefetch_bytes, info.cache_bytes) {
        (0, 0) => text::or_dash(""),
        (0, _) => "off".to_owned(),
        (bytes, _) => format!("{} of each reactor for each namespace", Size(bytes)),
    }
}

/// What an operator may run into; --json has them all.
fn limits(limits: v1::DaemonLimits) -> String {
    let v1::DaemonLimits {
        subsystems_max,
        namespaces_per_subsystem_max,
        listeners_max,
        referrals_max,
        functions_max,
        hosts_max,
        ..
    } = limits;
    format!(
        "{subsystems_max} subsystems of {namespaces_per_subsystem_max} namespaces and {hosts_max} hosts each, {listeners_max} listeners, {referrals_max} referrals, {functions_max} functions"
    )
}

async fn health(context: &Context) -> Result<(), Failure> {
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(daemon.target().get_health(v1::GetHealthRequest {}))
        .await?;
    context.show(&answer, |health| {
        let mut lines = format!("{}\n", state(health.state));
        for problem in &health.problems {
            let since = text::when(problem.since.as_ref());
            let (id, what) = (text::clean(&problem.id), text::clean(&problem.text));
            let count = match problem.count {
                0 => String::new(),
                count => format!("{}, ", text::count(count, "time")),
            };
            lines += &format!("{id}: {what} ({count}since {since})\n");
            if !problem.mend.is_empty() {
                lines += &format!("        mend   {}\n", text::clean(&problem.mend));
            }
        }
        lines
    })
}

/// A state of health in one word.
fn state(number: i32) -> String {
    match v1::HealthState::try_from(number) {
        Ok(v1::HealthState::Starting) => "starting".to_owned(),
        Ok(v1::HealthState::Serving) => "serving".to_owned(),
        Ok(v1::HealthState::Degraded) => "degraded".to_owned(),
        Ok(v1::HealthState::Draining) => "draining".to_owned(),
        Ok(v1::HealthState::Unspecified) => "unknown".to_owned(),
        Err(_) => number.to_string(),
    }
}

async fn drain(arguments: Drain, context: &Context) -> Result<(), Failure> {
    let request = v1::DrainRequest {
        deadline_ms: arguments.within.map_or(0, |seconds| seconds * 1000),
    };
    let daemon = context.daemon().await?;
    let answer = daemon.answer(daemon.target().drain(request)).await?;
    context.show(&answer, |answer| {
        format!(
            "draining; snap-target ends by {}\n",
            text::when(answer.ends_by.as_ref())
        )
    })
}
