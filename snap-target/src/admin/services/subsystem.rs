//! SubsystemService.

use admin_proto::v1;
use admin_proto::v1::subsystem_service_server::SubsystemService;
use tonic::Request;

use super::super::Context;
use super::super::convert;
use super::{Answer, of, there};
use crate::manage::ManageError;

#[tonic::async_trait]
impl SubsystemService for Context {
    async fn create_subsystem(
        &self,
        request: Request<v1::CreateSubsystemRequest>,
    ) -> Answer<v1::CreateSubsystemResponse> {
        let asked = of(request);
        let nqn = convert::nqn("nqn", &asked.nqn)?;
        if nqn.is_discovery() {
            let why = "this is the discovery service's name; a subsystem needs its own";
            return Err(convert::invalid("nqn", why).into());
        }
        let body = convert::body(&asked)?;
        self.ask(move |manager| {
            manager.create_subsystem(nqn.clone(), body)?;
            let subsystem = there(convert::subsystem(manager, &[], &nqn))?;
            Ok(v1::CreateSubsystemResponse {
                subsystem: Some(subsystem),
            })
        })
        .await
    }

    async fn delete_subsystem(
        &self,
        request: Request<v1::DeleteSubsystemRequest>,
    ) -> Answer<v1::DeleteSubsystemResponse> {
        let asked = of(request);
        let nqn = convert::nqn("nqn", &asked.nqn)?;
        self.ask(move |manager| {
            let (namespaces, controllers) = manager.delete_subsystem(&nqn, asked.force)?;
            Ok(v1::DeleteSubsystemResponse {
                namespaces_detached: convert::number(namespaces),
                controllers_ended: convert::number(controllers),
            })
        })
        .await
    }

    async fn list_subsystems(
        &self,
        _request: Request<v1::ListSubsystemsRequest>,
    ) -> Answer<v1::ListSubsystemsResponse> {
        self.ask(|manager| {
            let controllers = manager.controllers()?;
            let names = manager.desired().subsystems.keys();
            Ok(v1::ListSubsystemsResponse {
                subsystems: names
                    .filter_map(|nqn| convert::subsystem(manager, &controllers, nqn))
                    .collect(),
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
            let subsystem = there(convert::subsystem(manager, &controllers, &nqn))?;
            Ok::<_, ManageError>(v1::GetSubsystemResponse {
                subsystem: Some(subsystem),
            })
        })
        .await
    }
}
