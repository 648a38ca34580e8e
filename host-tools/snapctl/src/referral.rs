//! `snapctl referral`.

use admin_proto::v1;
use clap::{Args, Subcommand};
use printout::text_table::{Align, TextTable};

use crate::connection::Daemon;
use crate::context::Context;
use crate::ensure::{Comparison, Ensure};
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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=65_535))]
    pub port_id: Option<u32>,

    /// Whether it may be there.
    #[command(flatten)]
    pub ensure: Ensure,
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
        address: arguments.address.clone(),
        port_id: arguments.port_id.unwrap_or(0),
    };
    let daemon = context.daemon().await?;
    let added = daemon.answer(daemon.listener().add_referral(request)).await;
    match added {
        Ok(answer) => context.show(&answer, |answer| {
            let referral = answer.referral.clone().unwrap_or_default();
            format!("hosts are referred to {}\n", referral.address)
        }),
        Err(refused)
            if arguments.ensure.ensure && refused.reason() == v1::Reason::ReferralExists =>
        {
            let answer = there(&arguments, &daemon, refused).await?;
            context.show(&answer, |answer| {
                let referral = answer.referral.clone().unwrap_or_default();
                format!("hosts are referred to {} already\n", referral.address)
            })
        }
        Err(refused) => Err(refused),
    }
}

/// The referral that is in the way, where it is the one that was asked for.
async fn there(
    asked: &Add,
    daemon: &Daemon,
    refused: Failure,
) -> Result<v1::AddReferralResponse, Failure> {
    let referrals = all(daemon).await?;
    let mut found = referrals.referrals.iter();
    let found = found.find(|referral| text::same_address(&referral.address, &asked.address));
    // It was removed meanwhile: the daemon's word stands.
    let Some(referral) = found else {
        return Err(refused);
    };
    let mut comparison = Comparison::default();
    comparison.property("its port id", asked.port_id, referral.port_id);
    let subject = format!("the referral to {}", referral.address);
    comparison.verdict(subject, refused.detail().clone())?;
    Ok(v1::AddReferralResponse {
        referral: Some(referral.clone()),
        as_of: referrals.as_of.clone(),
    })
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
    })
}

async fn all(daemon: &Daemon) -> Result<v1::ListReferralsResponse, Failure> {
    let list = daemon.all(|page| {
        let mut client = daemon.listener();
        let request = v1::ListReferralsRequest {
            page_size: page.size,
            page_token: page.token,
        };
        async move { client.list_referrals(request).await }
    });
    list.await
}

async fn list(context: &Context) -> Result<(), Failure> {
    let answer = all(&context.daemon().await?).await?;
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
    })
}
