//! ControllerService.

use admin_proto::v1;
use admin_proto::v1::controller_service_server::ControllerService;
use tonic::Request;

use super::super::{Context, convert};
use super::{Answer, of};

#[tonic::async_trait]
impl ControllerService for Context {
    async fn list_controllers(
        &self,
        request: Request<v1::ListControllersRequest>,
    ) -> Answer<v1::ListControllersResponse> {
        let asked = of(request);
        let subsystem = convert::optional_nqn("subsystem_nqn", &asked.subsystem_nqn)?;
        let host = convert::optional_nqn("host_nqn", &asked.host_nqn)?;
        self.ask(move |manager| {
            if let Some(nqn) = subsystem.as_ref().filter(|nqn| !nqn.is_discovery()) {
                manager.require_subsystem(nqn)?;
            }
            let mut controllers: Vec<v1::Controller> = manager
                .controllers()?
                .iter()
                .filter(|it| {
                    subsystem.as_ref().is_none_or(|nqn| {
                        it.subsystem.as_ref() == Some(nqn)
                            || it.subsystem.is_none() && nqn.is_discovery()
                    }) && host.as_ref().is_none_or(|host| it.host == *host)
                })
                .map(convert::controller)
                .collect();
            controllers
                .sort_by(|a, b| (&a.subsystem_nqn, a.cntlid).cmp(&(&b.subsystem_nqn, b.cntlid)));
            Ok(v1::ListControllersResponse { controllers })
        })
        .await
    }

    async fn end_controller(
        &self,
        request: Request<v1::EndControllerRequest>,
    ) -> Answer<v1::EndControllerResponse> {
        let number = of(request).cntlid;
        let id = u16::try_from(number)
            .map_err(|_| convert::invalid("cntlid", format!("{number} is no CNTLID")))?;
        self.ask(move |manager| {
            manager.end_controller(id)?;
            Ok(v1::EndControllerResponse {})
        })
        .await
    }
}
