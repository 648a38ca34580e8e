//! FunctionService.

use admin_proto::v1;
use admin_proto::v1::function_service_server::FunctionService;
use tonic::Request;

use super::super::paging::Page;
use super::super::{Context, answers, convert};
use super::{Answer, changer, of, there};
use crate::config::FunctionConfig;

#[tonic::async_trait]
impl FunctionService for Context {
    async fn create_function(
        &self,
        request: Request<v1::CreateFunctionRequest>,
    ) -> Answer<v1::CreateFunctionResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        let name = convert::function(&asked.name)?;
        let subsystem = convert::nqn("subsystem_nqn", &asked.subsystem_nqn)?;
        let made = convert::device(&asked)?;
        self.change(by, move |manager| {
            let (socket, device) = made.numbered(|| manager.free_local());
            manager.create_function(FunctionConfig {
                name,
                socket,
                subsystem,
                device,
            })?;
            Ok(v1::CreateFunctionResponse {
                function: Some(there(answers::function(manager, &[], name))?),
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn delete_function(
        &self,
        request: Request<v1::DeleteFunctionRequest>,
    ) -> Answer<v1::DeleteFunctionResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        let name = convert::function(&asked.name)?;
        self.change(by, move |manager| {
            let (closing, closing_reason) = answers::closing(manager.delete_function(name)?);
            Ok(v1::DeleteFunctionResponse {
                closing,
                closing_reason,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn list_functions(
        &self,
        request: Request<v1::ListFunctionsRequest>,
    ) -> Answer<v1::ListFunctionsResponse> {
        let asked = of(request);
        let page = Page::of("functions", asked.page_size, &asked.page_token)?;
        self.ask(move |manager| {
            let controllers = manager.controllers()?;
            let names = manager.desired().functions.keys();
            let (functions, next_page_token) = page.take(names.filter_map(|name| {
                let row = answers::function(manager, &controllers, *name)?;
                Some((*name, row))
            }));
            Ok(v1::ListFunctionsResponse {
                functions,
                next_page_token,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn get_function(
        &self,
        request: Request<v1::GetFunctionRequest>,
    ) -> Answer<v1::GetFunctionResponse> {
        let name = convert::function(&of(request).name)?;
        self.ask(move |manager| {
            manager.require_function(name)?;
            let controllers = manager.controllers()?;
            Ok(v1::GetFunctionResponse {
                function: Some(there(answers::function(manager, &controllers, name))?),
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }
}
