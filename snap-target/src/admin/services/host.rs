//! HostService.

use std::collections::BTreeMap;

use admin_proto::v1;
use admin_proto::v1::host_service_server::HostService;
use nvme::controller::HostPolicy;
use nvme::nqn::Nqn;
use tonic::Request;

use super::super::paging::Page;
use super::super::{Context, answers, convert};
use super::{Answer, changer, of};
use crate::manage::ManageError;
use crate::text::hex;

/// Hosts by name, or none for "any host": exactly one of both is asked for.
fn named(texts: &[String], any: bool) -> Result<Option<Vec<Nqn>>, ManageError> {
    match (texts.is_empty(), any) {
        (true, true) => Ok(None),
        (false, false) => convert::named_hosts(texts).map(Some),
        (false, true) => Err(convert::invalid(
            "any",
            "hosts are named too; leave one of the two out",
        )),
        (true, false) => Err(convert::invalid(
            "host_nqns",
            "nobody is named; name hosts, or any host",
        )),
    }
}

fn subsystem_hosts(
    controllers: &[frontend_nvme::ControllerReport],
    nqn: &Nqn,
    policy: &HostPolicy,
) -> v1::SubsystemHosts {
    let mut connected: BTreeMap<String, v1::ConnectedHost> = BTreeMap::new();
    for it in controllers
        .iter()
        .filter(|it| it.subsystem.as_ref() == Some(nqn))
    {
        let name = it.host.to_string();
        let host = connected
            .entry(name.clone())
            .or_insert_with(|| v1::ConnectedHost {
                host_nqn: name,
                host_id: hex(&it.host_id),
                controllers: 0,
            });
        host.controllers += 1;
    }
    v1::SubsystemHosts {
        subsystem_nqn: nqn.to_string(),
        policy: Some(answers::policy(policy)),
        connected: connected.into_values().collect(),
    }
}

#[tonic::async_trait]
impl HostService for Context {
    async fn allow_hosts(
        &self,
        request: Request<v1::AllowHostsRequest>,
    ) -> Answer<v1::AllowHostsResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        let nqn = convert::nqn("subsystem_nqn", &asked.subsystem_nqn)?;
        let hosts = named(&asked.host_nqns, asked.any)?;
        self.change(by, move |manager| {
            let policy = match hosts {
                Some(hosts) => manager.allow_hosts(&nqn, &hosts)?,
                None => manager.set_hosts(&nqn, HostPolicy::Any)?.policy,
            };
            Ok(v1::AllowHostsResponse {
                hosts: Some(answers::policy(&policy)),
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn deny_hosts(
        &self,
        request: Request<v1::DenyHostsRequest>,
    ) -> Answer<v1::DenyHostsResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        let nqn = convert::nqn("subsystem_nqn", &asked.subsystem_nqn)?;
        let hosts = named(&asked.host_nqns, asked.any)?;
        self.change(by, move |manager| {
            let (set, not_listed) = match hosts {
                Some(hosts) => manager.deny_hosts(&nqn, &hosts)?,
                None => (manager.deny_any_host(&nqn)?, Vec::new()),
            };
            let (closing, closing_reason) = answers::closing(set.closing);
            Ok(v1::DenyHostsResponse {
                hosts: Some(answers::policy(&set.policy)),
                controllers_ended: answers::number(set.controllers_ended),
                not_listed: not_listed.iter().map(Nqn::to_string).collect(),
                closing,
                closing_reason,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn set_hosts(
        &self,
        request: Request<v1::SetHostsRequest>,
    ) -> Answer<v1::SetHostsResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        let nqn = convert::nqn("subsystem_nqn", &asked.subsystem_nqn)?;
        let hosts = convert::hosts("hosts", &asked.hosts.unwrap_or_default())?;
        self.change(by, move |manager| {
            let set = manager.set_hosts(&nqn, hosts)?;
            let (closing, closing_reason) = answers::closing(set.closing);
            Ok(v1::SetHostsResponse {
                hosts: Some(answers::policy(&set.policy)),
                controllers_ended: answers::number(set.controllers_ended),
                closing,
                closing_reason,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn list_hosts(
        &self,
        request: Request<v1::ListHostsRequest>,
    ) -> Answer<v1::ListHostsResponse> {
        let asked = of(request);
        let only = convert::optional_nqn("subsystem_nqn", &asked.subsystem_nqn)?;
        let page = Page::of("hosts", asked.page_size, &asked.page_token)?;
        self.ask(move |manager| {
            if let Some(nqn) = &only {
                manager.require_subsystem(nqn)?;
            }
            let controllers = manager.controllers()?;
            let all = manager.desired().subsystems.iter();
            let asked = all.filter(|(nqn, _)| only.as_ref().is_none_or(|only| only == *nqn));
            let (subsystems, next_page_token) = page.take(asked.map(|(nqn, it)| {
                let row = subsystem_hosts(&controllers, nqn, &it.body.hosts);
                (nqn.to_string(), row)
            }));
            Ok(v1::ListHostsResponse {
                subsystems,
                next_page_token,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }
}
