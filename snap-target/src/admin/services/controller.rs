//! ControllerService.

use admin_proto::v1;
use admin_proto::v1::controller_service_server::ControllerService;
use tonic::Request;

use super::super::paging::Page;
use super::super::{Context, answers, convert};
use super::{Answer, changer, of};

#[tonic::async_trait]
impl ControllerService for Context {
    async fn list_controllers(
        &self,
        request: Request<v1::ListControllersRequest>,
    ) -> Answer<v1::ListControllersResponse> {
        let asked = of(request);
        let subsystem = convert::optional_nqn("subsystem_nqn", &asked.subsystem_nqn)?;
        let host = convert::optional_nqn("host_nqn", &asked.host_nqn)?;
        let page = Page::of("controllers", asked.page_size, &asked.page_token)?;
        self.ask(move |manager| {
            if let Some(nqn) = subsystem.as_ref().filter(|nqn| !nqn.is_discovery()) {
                manager.require_subsystem(nqn)?;
            }
            let mut rows: Vec<_> = manager
                .controllers()?
                .iter()
                .filter(|it| {
                    subsystem.as_ref().is_none_or(|nqn| {
                        it.subsystem.as_ref() == Some(nqn)
                            || it.subsystem.is_none() && nqn.is_discovery()
                    }) && host.as_ref().is_none_or(|host| it.host == *host)
                })
                .map(|it| answers::controller(manager, it))
                .map(|row| ((row.subsystem_nqn.clone(), row.cntlid), row))
                .collect();
            rows.sort_by(|(a, _), (b, _)| a.cmp(b));
            let (controllers, next_page_token) = page.take(rows);
            Ok(v1::ListControllersResponse {
                controllers,
                next_page_token,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn end_controller(
        &self,
        request: Request<v1::EndControllerRequest>,
    ) -> Answer<v1::EndControllerResponse> {
        let (by, number) = (changer(&request)?, of(request).cntlid);
        let id = u16::try_from(number)
            .map_err(|_| convert::invalid("cntlid", format!("{number} is no CNTLID")))?;
        self.change(by, move |manager| {
            let (closing, closing_reason) = answers::closing(manager.end_controller(id)?);
            Ok(v1::EndControllerResponse {
                closing,
                closing_reason,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }
}
