//! NamespaceService.

use admin_proto::v1;
use admin_proto::v1::namespace_service_server::NamespaceService;
use admin_proto::v1::resize_namespace_request::Size;
use nvme::controller::Visibility;
use nvme::nqn::Nqn;
use tonic::{Request, Streaming};

use super::super::paging::Page;
use super::super::{Context, answers, convert, users};
use super::{Answer, changer, of, there};
use crate::config::Writes;
use crate::manage::{ManageError, Manager, NamespaceLive, NewNamespace, NewSize};

/// A namespace as it is now.
fn now(manager: &Manager, nqn: &Nqn, nsid: u32) -> Result<Option<v1::Namespace>, ManageError> {
    let controllers = manager.controllers()?;
    there(answers::namespace(manager, &controllers, nqn, nsid)).map(Some)
}

/// Which namespace a change is for.
struct Meant {
    nqn: Nqn,
    nsid: u32,
    uuid: Option<[u8; 16]>,
}

impl Meant {
    /// As a request names it.
    fn of(subsystem_nqn: &str, nsid: u32, expected_uuid: &str) -> Result<Self, ManageError> {
        Ok(Self {
            nqn: convert::nqn("subsystem_nqn", subsystem_nqn)?,
            nsid: convert::nsid(nsid)?,
            uuid: convert::expected_uuid(expected_uuid)?,
        })
    }

    /// Its name, where it is there and is the disk that is expected.
    fn there(&self, manager: &Manager) -> Result<(&Nqn, u32), ManageError> {
        manager.expect(&self.nqn, self.nsid, self.uuid)?;
        Ok((&self.nqn, self.nsid))
    }
}

#[tonic::async_trait]
impl NamespaceService for Context {
    type PrefetchStream = super::prefetch::Progress;

    async fn prefetch(
        &self,
        request: Request<Streaming<v1::PrefetchRequest>>,
    ) -> Answer<Self::PrefetchStream> {
        self.prefetch_for(request).await
    }

    async fn attach_namespace(
        &self,
        request: Request<v1::AttachNamespaceRequest>,
    ) -> Answer<v1::AttachNamespaceResponse> {
        let (by, asked) = (changer(&request)?, of(request));
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
            source: convert::source(asked.source.as_ref())?,
            lba_bytes,
            writes: Writes::of(asked.read_only, asked.immutable),
            limit: convert::limit_of_stores(&asked.limit)?,
            visibility: match &asked.visible_to {
                Some(visibility) => convert::visibility("visible_to", visibility)?,
                None => Visibility::All,
            },
        };
        self.change_later(by, move |manager, answerer| {
            manager.attach_then(new, move |manager, attached| {
                answerer.answer(attached.and_then(|nsid| {
                    Ok(v1::AttachNamespaceResponse {
                        namespace: now(manager, &nqn, nsid)?,
                        as_of: Some(manager.as_of()),
                    })
                }));
            });
        })
        .await
    }

    async fn detach_namespace(
        &self,
        request: Request<v1::DetachNamespaceRequest>,
    ) -> Answer<v1::DetachNamespaceResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        let meant = Meant::of(&asked.subsystem_nqn, asked.nsid, &asked.expected_uuid)?;
        self.change(by, move |manager| {
            let (nqn, nsid) = meant.there(manager)?;
            let (closing, closing_reason) = answers::closing(manager.detach(nqn, nsid)?);
            Ok(v1::DetachNamespaceResponse {
                closing,
                closing_reason,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn resize_namespace(
        &self,
        request: Request<v1::ResizeNamespaceRequest>,
    ) -> Answer<v1::ResizeNamespaceResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        let meant = Meant::of(&asked.subsystem_nqn, asked.nsid, &asked.expected_uuid)?;
        let size = match asked.size {
            Some(Size::Bytes(bytes)) => NewSize::Bytes(bytes),
            Some(Size::Rescan(_)) => NewSize::Rescan,
            None => {
                let what_to_do = "name the bytes, or ask for a rescan";
                return Err(convert::not_set("size", what_to_do).into());
            }
        };
        self.change_later(by, move |manager, answerer| {
            let (nqn, nsid) = match meant.there(manager) {
                Ok((nqn, nsid)) => (nqn.clone(), nsid),
                Err(error) => return answerer.answer(Err(error)),
            };
            let of = nqn.clone();
            manager.resize_then(&of, nsid, size, asked.force, move |manager, resized| {
                answerer.answer(resized.and_then(|(bytes_before, closing)| {
                    let (closing, closing_reason) = answers::closing(closing);
                    Ok(v1::ResizeNamespaceResponse {
                        namespace: now(manager, &nqn, nsid)?,
                        bytes_before,
                        closing,
                        closing_reason,
                        as_of: Some(manager.as_of()),
                    })
                }));
            });
        })
        .await
    }

    async fn set_visibility(
        &self,
        request: Request<v1::SetVisibilityRequest>,
    ) -> Answer<v1::SetVisibilityResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        let meant = Meant::of(&asked.subsystem_nqn, asked.nsid, &asked.expected_uuid)?;
        let asked = asked.visible_to.unwrap_or_default();
        let visibility = convert::visibility("visible_to", &asked)?;
        self.change(by, move |manager| {
            let (nqn, nsid) = meant.there(manager)?;
            let closing = manager.set_visibility(nqn, nsid, visibility)?;
            let (closing, closing_reason) = answers::closing(closing);
            Ok(v1::SetVisibilityResponse {
                namespace: now(manager, nqn, nsid)?,
                closing,
                closing_reason,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn show_to(&self, request: Request<v1::ShowToRequest>) -> Answer<v1::ShowToResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        let meant = Meant::of(&asked.subsystem_nqn, asked.nsid, &asked.expected_uuid)?;
        let hosts = convert::named_hosts(&asked.host_nqns)?;
        self.change(by, move |manager| {
            let (nqn, nsid) = meant.there(manager)?;
            manager.show_to(nqn, nsid, &hosts)?;
            Ok(v1::ShowToResponse {
                namespace: now(manager, nqn, nsid)?,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn hide_from(
        &self,
        request: Request<v1::HideFromRequest>,
    ) -> Answer<v1::HideFromResponse> {
        let (by, asked) = (changer(&request)?, of(request));
        let meant = Meant::of(&asked.subsystem_nqn, asked.nsid, &asked.expected_uuid)?;
        let hosts = convert::named_hosts(&asked.host_nqns)?;
        self.change(by, move |manager| {
            let (nqn, nsid) = meant.there(manager)?;
            let (not_listed, closing) = manager.hide_from(nqn, nsid, &hosts)?;
            let (closing, closing_reason) = answers::closing(closing);
            Ok(v1::HideFromResponse {
                namespace: now(manager, nqn, nsid)?,
                not_listed: not_listed.iter().map(Nqn::to_string).collect(),
                closing,
                closing_reason,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }

    async fn list_namespaces(
        &self,
        request: Request<v1::ListNamespacesRequest>,
    ) -> Answer<v1::ListNamespacesResponse> {
        let asked = of(request);
        let only = convert::optional_nqn("subsystem_nqn", &asked.subsystem_nqn)?;
        let page = Page::of("namespaces", asked.page_size, &asked.page_token)?;
        self.ask(move |manager| {
            let manager = &*manager;
            if let Some(nqn) = &only {
                manager.require_subsystem(nqn)?;
            }
            let controllers = manager.controllers()?;
            let all = manager.desired().subsystems.iter();
            let asked = all.filter(|(nqn, _)| only.as_ref().is_none_or(|only| only == *nqn));
            // A number may be another disk's by now: the UUID orders them.
            let key = |row: &v1::Namespace| {
                let disk = (row.nsid, row.uuid.clone());
                (row.subsystem_nqn.clone(), disk)
            };
            let mut rows: Vec<v1::Namespace> = asked
                .flat_map(|(nqn, subsystem)| {
                    let controllers = &controllers;
                    let all = subsystem.namespaces.keys();
                    all.filter_map(move |nsid| answers::namespace(manager, controllers, nqn, *nsid))
                })
                .collect();
            let closing = manager.closing().iter();
            let closing = closing.filter(|it| only.as_ref().is_none_or(|only| *only == it.nqn));
            rows.extend(closing.map(answers::closing_namespace));
            rows.sort_by_key(key);
            let rows = rows.into_iter().map(|row| (key(&row), row));
            let (namespaces, next_page_token) = page.take(rows);
            Ok(v1::ListNamespacesResponse {
                namespaces,
                next_page_token,
                as_of: Some(manager.as_of()),
            })
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
        let counted = self.telemetry.snapshot();
        self.ask(move |manager| {
            let mut closing = manager.closing().iter();
            let closing = closing.find(|it| it.nqn == nqn && it.config.nsid == nsid);
            let namespace = match (manager.require_namespace(&nqn, nsid), closing) {
                (Err(_), Some(disk)) => Some(answers::closing_namespace(disk)),
                (there, _) => {
                    there?;
                    now(manager, &nqn, nsid)?
                }
            };
            let hosts = match (
                manager.live_namespace(&nqn, nsid),
                manager.desired().namespace(&nqn, nsid),
            ) {
                (Some(NamespaceLive::Served(served)), Some(config)) => {
                    let controllers = manager.controllers()?;
                    users::of(&nqn, served, &config.visibility, &controllers, &counted)
                }
                _ => Vec::new(),
            };
            Ok(v1::GetNamespaceResponse {
                namespace,
                hosts,
                as_of: Some(manager.as_of()),
            })
        })
        .await
    }
}
