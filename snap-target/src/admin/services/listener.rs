//! ListenerService.

use admin_proto::v1;
use admin_proto::v1::listener_service_server::ListenerService;
use tonic::Request;

use super::super::paging::Page;
use super::super::{Context, answers, convert};
use super::{Answer, changer, of, there};
use crate::config::Place;

#[tonic::async_trait]
impl ListenerService for Context {
    async fn add_listener(
        &self,
        request: Request<v1::AddListenerRequest>,
    ) -> Answer<v1::AddListenerResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        let place = Place {
            fabric: convert::fabric(asked.transport)?,
            address: convert::address(&asked.address)?,
        };
        let port_id = convert::port_id(asked.port_id)?;
        self.change(by, move |manager| {
            let port_id = manager.add_listener(place, port_id)?;
            Ok(v1::AddListenerResponse {
                listener: Some(there(answers::listener(manager, &[], port_id))?),
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn remove_listener(
        &self,
        request: Request<v1::RemoveListenerRequest>,
    ) -> Answer<v1::RemoveListenerResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        let port_id = convert::port_id(asked.port_id)?;
        let port_id = port_id.ok_or_else(|| convert::invalid("port_id", "it is from 1 on"))?;
        self.change(by, move |manager| {
            manager.remove_listener(port_id, asked.force)?;
            Ok(v1::RemoveListenerResponse {
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn list_listeners(
        &self,
        request: Request<v1::ListListenersRequest>,
    ) -> Answer<v1::ListListenersResponse> {
        let asked = of(request);
        let page = Page::of("listeners", asked.page_size, &asked.page_token)?;
        self.ask(move |manager| {
            let controllers = manager.controllers()?;
            let ports = manager.desired().listeners.keys();
            let (listeners, next_page_token) = page.take(ports.filter_map(|port_id| {
                let row = answers::listener(manager, &controllers, *port_id)?;
                Some((*port_id, row))
            }));
            Ok(v1::ListListenersResponse {
                listeners,
                next_page_token,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn add_referral(
        &self,
        request: Request<v1::AddReferralRequest>,
    ) -> Answer<v1::AddReferralResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        convert::tcp(asked.transport)?;
        let address = convert::address(&asked.address)?;
        if address.port() == 0 {
            return Err(convert::invalid("address", "a referral needs a port").into());
        }
        let port_id = convert::port_id(asked.port_id)?.unwrap_or(0);
        self.change(by, move |manager| {
            manager.add_referral(address, port_id)?;
            Ok(v1::AddReferralResponse {
                referral: Some(there(answers::referral(manager, address))?),
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn remove_referral(
        &self,
        request: Request<v1::RemoveReferralRequest>,
    ) -> Answer<v1::RemoveReferralResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        convert::tcp(asked.transport)?;
        let address = convert::address(&asked.address)?;
        self.change(by, move |manager| {
            manager.remove_referral(address)?;
            Ok(v1::RemoveReferralResponse {
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn list_referrals(
        &self,
        request: Request<v1::ListReferralsRequest>,
    ) -> Answer<v1::ListReferralsResponse> {
        let asked = of(request);
        let page = Page::of("referrals", asked.page_size, &asked.page_token)?;
        self.ask(move |manager| {
            let addresses = manager.desired().referrals.keys();
            let (referrals, next_page_token) = page.take(addresses.filter_map(|address| {
                let row = answers::referral(manager, *address)?;
                Some((*address, row))
            }));
            Ok(v1::ListReferralsResponse {
                referrals,
                next_page_token,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }
}
