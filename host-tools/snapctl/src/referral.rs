//! `snapctl referral`.

use admin_proto::v1;
use clap::{Args, Subcommand};
use printout::text_table::{Align, TextTable};

use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// What to do with referrals.
#[derive(Debug, Subcommand)]
pub enum Referral {
    /// Name another discovery service in the discovery log
    Add(Add),
    /// Take it out of the discovery log
    Remove(Remove),
    /// List the discovery services that are named
    List(List),
}

/// `snapctl referral add`.
#[derive(Debug, Args)]
#[command(
    after_help = "Hosts that wait for changes of the discovery log are told.\n\nExample:\n  snapctl referral add 192.0.2.8:8009"
)]
pub struct Add {
    /// IP:PORT of the other service
    #[arg(value_name = "ADDR:PORT")]
    pub address: String,

    /// Port id of its entry
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=65_535))]
    pub port_id: u32,
}

/// `snapctl referral remove`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  snapctl referral remove 192.0.2.8:8009")]
pub struct Remove {
    /// IP:PORT of the other service
    #[arg(value_name = "ADDR:PORT")]
    pub address: String,
}

/// `snapctl referral list`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  snapctl referral list")]
pub struct List {}

/// Runs one of them.
pub async fn run(command: Referral, context: &Context) -> Result<(), Failure> {
    match command {
        Referral::Add(arguments) => add(arguments, context).await,
        Referral::Remove(arguments) => remove(arguments.address, context).await,
        Referral::List(List {}) => list(context).await,
    }
}

async fn add(arguments: Add, context: &Context) -> Result<(), Failure> {
    let request = v1::AddReferralRequest {
        transport: v1::Transport::Tcp.into(),
        address: arguments.address,
        port_id: arguments.port_id,
    };
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(daemon.listener().add_referral(request))
        .await?;
    context.show(&answer, |answer| {
        let referral = answer.referral.clone().unwrap_or_default();
        format!("hosts are referred to {}\n", referral.address)
    })?;
    Ok(())
}

async fn remove(address: String, context: &Context) -> Result<(), Failure> {
    let request = v1::RemoveReferralRequest {
        transport: v1::Transport::Tcp.into(),
        address: address.clone(),
    };
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(daemon.listener().remove_referral(request))
        .await?;
    context.show(&answer, |_| {
        format!("hosts are no longer referred to {address}\n")
    })?;
    Ok(())
}

async fn list(context: &Context) -> Result<(), Failure> {
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(
            daemon
                .listener()
                .list_referrals(v1::ListReferralsRequest::default()),
        )
        .await?;
    context.show(&answer, |answer| {
        let mut table = TextTable::new(&[
            ("transport", Align::Left),
            ("address", Align::Left),
            ("port id", Align::Right),
            ("made by", Align::Left),
        ]);
        for referral in &answer.referrals {
            table.row([
                text::transport(referral.transport),
                referral.address.clone(),
                referral.port_id.to_string(),
                text::origin(referral.origin),
            ]);
        }
        table.render()
    })?;
    Ok(())
}
