//! SubsystemService.

use admin_proto::v1;
use admin_proto::v1::subsystem_service_server::SubsystemService;
use tonic::Request;

use super::super::paging::Page;
use super::super::{Context, answers, convert};
use super::{Answer, changer, of, there};
use crate::manage::ManageError;

#[tonic::async_trait]
impl SubsystemService for Context {
    async fn create_subsystem(
        &self,
        request: Request<v1::CreateSubsystemRequest>,
    ) -> Answer<v1::CreateSubsystemResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        let nqn = convert::nqn("nqn", &asked.nqn)?;
        if nqn.is_discovery() {
            let why = "this is the discovery service's name; a subsystem needs its own";
            return Err(convert::invalid("nqn", why).into());
        }
        let body = convert::body(&asked)?;
        self.change(by, move |manager| {
            manager.create_subsystem(nqn.clone(), body)?;
            let subsystem = there(answers::subsystem(manager, &[], &nqn))?;
            Ok(v1::CreateSubsystemResponse {
                subsystem: Some(subsystem),
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn delete_subsystem(
        &self,
        request: Request<v1::DeleteSubsystemRequest>,
    ) -> Answer<v1::DeleteSubsystemResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        let nqn = convert::nqn("nqn", &asked.nqn)?;
        self.change(by, move |manager| {
            let (namespaces, controllers, closing) = manager.delete_subsystem(&nqn, asked.force)?;
            let (closing, closing_reason) = answers::closing(closing);
            Ok(v1::DeleteSubsystemResponse {
                namespaces_detached: answers::number(namespaces),
                controllers_ended: answers::number(controllers),
                closing,
                closing_reason,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn list_subsystems(
        &self,
        request: Request<v1::ListSubsystemsRequest>,
    ) -> Answer<v1::ListSubsystemsResponse> {
        let asked = of(request);
        let page = Page::of("subsystems", asked.page_size, &asked.page_token)?;
        self.ask(move |manager| {
            let controllers = manager.controllers()?;
            let names = manager.desired().subsystems.keys();
            let (subsystems, next_page_token) = page.take(names.filter_map(|nqn| {
                let row = answers::subsystem(manager, &controllers, nqn)?;
                Some((nqn.to_string(), row))
            }));
            Ok(v1::ListSubsystemsResponse {
                subsystems,
                next_page_token,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn get_subsystem(
        &self,
        request: Request<v1::GetSubsystemRequest>,
    ) -> Answer<v1::GetSubsystemResponse> {
        let nqn = convert::nqn("nqn", &of(request).nqn)?;
        self.ask(move |manager| {
            manager.require_subsystem(&nqn)?;
            let controllers = manager.controllers()?;
            let subsystem = there(answers::subsystem(manager, &controllers, &nqn))?;
            Ok::<_, ManageError>(v1::GetSubsystemResponse {
                subsystem: Some(subsystem),
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }
}
