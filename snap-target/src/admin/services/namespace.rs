//! NamespaceService.

use admin_proto::v1;
use admin_proto::v1::namespace_service_server::NamespaceService;
use admin_proto::v1::resize_namespace_request::Size;
use nvme::controller::Visibility;
use nvme::nqn::Nqn;
use tonic::Request;

use super::super::{Context, convert};
use super::{Answer, of, there};
use crate::manage::{ManageError, Manager, NewNamespace, NewSize};

/// A namespace as it is now.
fn now(manager: &Manager, nqn: &Nqn, nsid: u32) -> Result<Option<v1::Namespace>, ManageError> {
    let controllers = manager.controllers()?;
    there(convert::namespace(manager, &controllers, nqn, nsid)).map(Some)
}

#[tonic::async_trait]
impl NamespaceService for Context {
    async fn attach_namespace(
        &self,
        request: Request<v1::AttachNamespaceRequest>,
    ) -> Answer<v1::AttachNamespaceResponse> {
        let asked = of(request);
        let nqn = convert::nqn("subsystem_nqn", &asked.subsystem_nqn)?;
        let nsid = match asked.nsid {
            0 => None,
            number => Some(convert::nsid(number)?),
        };
        let lba_bytes = match asked.lba_bytes {
            0 => None,
            bytes @ (512 | 4096) => Some(bytes),
            bytes => {
                let why = format!("{bytes}; it is 512 or 4096, or 0 for the usual one");
                return Err(convert::invalid("lba_bytes", why).into());
            }
        };
        let new = NewNamespace {
            nqn: nqn.clone(),
            nsid,
            source: convert::source(&asked.source)?,
            lba_bytes,
            read_only: asked.read_only,
            visibility: convert::visibility("visible_to", asked.visible_to.as_ref())?
                .unwrap_or(Visibility::All),
        };
        self.ask(move |manager| {
            let nsid = manager.attach(new)?;
            Ok(v1::AttachNamespaceResponse {
                namespace: now(manager, &nqn, nsid)?,
            })
        })
        .await
    }

    async fn detach_namespace(
        &self,
        request: Request<v1::DetachNamespaceRequest>,
    ) -> Answer<v1::DetachNamespaceResponse> {
        let asked = of(request);
        let nqn = convert::nqn("subsystem_nqn", &asked.subsystem_nqn)?;
        let nsid = convert::nsid(asked.nsid)?;
        self.ask(move |manager| {
            manager.detach(&nqn, nsid)?;
            Ok(v1::DetachNamespaceResponse {})
        })
        .await
    }

    async fn resize_namespace(
        &self,
        request: Request<v1::ResizeNamespaceRequest>,
    ) -> Answer<v1::ResizeNamespaceResponse> {
        let asked = of(request);
        let nqn = convert::nqn("subsystem_nqn", &asked.subsystem_nqn)?;
        let nsid = convert::nsid(asked.nsid)?;
        let size = match asked.size {
            Some(Size::Bytes(bytes)) => NewSize::Bytes(bytes),
            Some(Size::Rescan(_)) => NewSize::Rescan,
            None => {
                let why = "it is not set; name the bytes, or ask for a rescan";
                return Err(convert::invalid("size", why).into());
            }
        };
        self.ask(move |manager| {
            let bytes_before = manager.resize(&nqn, nsid, size, asked.force)?;
            Ok(v1::ResizeNamespaceResponse {
                namespace: now(manager, &nqn, nsid)?,
                bytes_before,
            })
        })
        .await
    }

    async fn set_visibility(
        &self,
        request: Request<v1::SetVisibilityRequest>,
    ) -> Answer<v1::SetVisibilityResponse> {
        let asked = of(request);
        let nqn = convert::nqn("subsystem_nqn", &asked.subsystem_nqn)?;
        let nsid = convert::nsid(asked.nsid)?;
        let visibility = convert::visibility("visible_to", asked.visible_to.as_ref())?;
        let visibility = visibility.ok_or_else(|| {
            convert::invalid(
                "visible_to",
                "it is not set; name hosts, or write out any host",
            )
        })?;
        self.ask(move |manager| {
            manager.set_visibility(&nqn, nsid, visibility)?;
            Ok(v1::SetVisibilityResponse {
                namespace: now(manager, &nqn, nsid)?,
            })
        })
        .await
    }

    async fn list_namespaces(
        &self,
        request: Request<v1::ListNamespacesRequest>,
    ) -> Answer<v1::ListNamespacesResponse> {
        let only = convert::optional_nqn("subsystem_nqn", &of(request).subsystem_nqn)?;
        self.ask(move |manager| {
            if let Some(nqn) = &only {
                manager.require_subsystem(nqn)?;
            }
            let controllers = manager.controllers()?;
            let mut namespaces = Vec::new();
            for (nqn, subsystem) in &manager.desired().subsystems {
                if only.as_ref().is_none_or(|only| only == nqn) {
                    namespaces.extend(
                        subsystem.namespaces.keys().filter_map(|nsid| {
                            convert::namespace(manager, &controllers, nqn, *nsid)
                        }),
                    );
                }
            }
            Ok(v1::ListNamespacesResponse { namespaces })
        })
        .await
    }

    async fn get_namespace(
        &self,
        request: Request<v1::GetNamespaceRequest>,
    ) -> Answer<v1::GetNamespaceResponse> {
        let asked = of(request);
        let nqn = convert::nqn("subsystem_nqn", &asked.subsystem_nqn)?;
        let nsid = convert::nsid(asked.nsid)?;
        self.ask(move |manager| {
            manager.require_namespace(&nqn, nsid)?;
            Ok(v1::GetNamespaceResponse {
                namespace: now(manager, &nqn, nsid)?,
            })
        })
        .await
    }
}
