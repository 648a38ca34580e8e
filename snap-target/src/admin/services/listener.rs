//! ListenerService.

use admin_proto::v1;
use admin_proto::v1::listener_service_server::ListenerService;
use tonic::Request;

use super::super::{Context, convert};
use super::{Answer, of, there};

#[tonic::async_trait]
impl ListenerService for Context {
    async fn add_listener(
        &self,
        request: Request<v1::AddListenerRequest>,
    ) -> Answer<v1::AddListenerResponse> {
        let asked = of(request);
        convert::tcp(asked.transport)?;
        let address = convert::address(&asked.address)?;
        let port_id = convert::port_id(asked.port_id)?;
        self.ask(move |manager| {
            let port_id = manager.add_listener(address, port_id)?;
            Ok(v1::AddListenerResponse {
                listener: Some(there(convert::listener(manager, &[], port_id))?),
            })
        })
        .await
    }

    async fn remove_listener(
        &self,
        request: Request<v1::RemoveListenerRequest>,
    ) -> Answer<v1::RemoveListenerResponse> {
        let port_id = convert::port_id(of(request).port_id)?;
        let port_id = port_id.ok_or_else(|| convert::invalid("port_id", "it is from 1 on"))?;
        self.ask(move |manager| {
            manager.remove_listener(port_id)?;
            Ok(v1::RemoveListenerResponse {})
        })
        .await
    }

    async fn list_listeners(
        &self,
        _request: Request<v1::ListListenersRequest>,
    ) -> Answer<v1::ListListenersResponse> {
        self.ask(|manager| {
            let controllers = manager.controllers()?;
            let ports = manager.desired().listeners.keys();
            Ok(v1::ListListenersResponse {
                listeners: ports
                    .filter_map(|port_id| convert::listener(manager, &controllers, *port_id))
                    .collect(),
            })
        })
        .await
    }

    async fn add_referral(
        &self,
        request: Request<v1::AddReferralRequest>,
    ) -> Answer<v1::AddReferralResponse> {
        let asked = of(request);
        convert::tcp(asked.transport)?;
        let address = convert::address(&asked.address)?;
        if address.port() == 0 {
            return Err(convert::invalid("address", "a referral needs a port").into());
        }
        let port_id = convert::port_id(asked.port_id)?.unwrap_or(0);
        self.ask(move |manager| {
            manager.add_referral(address, port_id)?;
            Ok(v1::AddReferralResponse {
                referral: Some(there(convert::referral(manager, address))?),
            })
        })
        .await
    }

    async fn remove_referral(
        &self,
        request: Request<v1::RemoveReferralRequest>,
    ) -> Answer<v1::RemoveReferralResponse> {
        let asked = of(request);
        convert::tcp(asked.transport)?;
        let address = convert::address(&asked.address)?;
        self.ask(move |manager| {
            manager.remove_referral(address)?;
            Ok(v1::RemoveReferralResponse {})
        })
        .await
    }

    async fn list_referrals(
        &self,
        _request: Request<v1::ListReferralsRequest>,
    ) -> Answer<v1::ListReferralsResponse> {
        self.ask(|manager| {
            let addresses = manager.desired().referrals.keys();
            Ok(v1::ListReferralsResponse {
                referrals: addresses
                    .filter_map(|address| convert::referral(manager, *address))
                    .collect(),
            })
        })
        .await
    }
}
