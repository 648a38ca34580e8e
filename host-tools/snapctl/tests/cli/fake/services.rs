//! The services: each call is noted and answered by its sample.

use std::pin::Pin;

use admin_proto::v1::controller_service_server::ControllerService;
use admin_proto::v1::event_service_server::EventService;
use admin_proto::v1::function_service_server::FunctionService;
use admin_proto::v1::host_service_server::HostService;
use admin_proto::v1::listener_service_server::ListenerService;
use admin_proto::v1::namespace_service_server::NamespaceService;
use admin_proto::v1::stats_service_server::StatsService;
use admin_proto::v1::subsystem_service_server::SubsystemService;
use admin_proto::v1::target_service_server::TargetService;
use admin_proto::v1::*;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::{Shared, samples};

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

macro_rules! service {
    ($service:ident {
        $($call:ident($request:ident) -> $answer:ident,)*
        $(; $streaming:ident($stream_request:ident) -> $stream:ident of $message:ident)?
        $(+ $given:ident($part:ident) -> $told:ident of $progress:ident)?
    }) => {
        #[tonic::async_trait]
        impl $service for Shared {
            $(
                async fn $call(&self, request: Request<$request>) -> Result<Response<$answer>, Status> {
                    self.note(request.get_ref())?;
                    Ok(Response::new(samples::$call(&self.start(), request.into_inner())))
                }
            )*
            $(
                type $stream = Messages<$message>;

                async fn $streaming(&self, request: Request<$stream_request>) -> Result<Response<Self::$stream>, Status> {
                    self.note(request.get_ref())?;
                    let messages = samples::$streaming(&self.start(), request.into_inner()).into_iter().map(Ok);
                    let told = tokio_stream::iter(messages);
                    Ok(Response::new(if self.stays_open() {
                        Box::pin(told.chain(tokio_stream::pending()))
                    } else {
                        Box::pin(told)
                    }))
                }
            )?
            $(
                type $told = Messages<$progress>;

                async fn $given(&self, request: Request<Streaming<$part>>) -> Result<Response<Self::$told>, Status> {
                    let mut parts = request.into_inner();
                    let mut given = Vec::new();
                    while let Some(part) = parts.message().await? {
                        self.note(&part)?;
                        given.push(part);
                    }
                    let messages = samples::$given(given).into_iter().map(Ok);
                    Ok(Response::new(Box::pin(tokio_stream::iter(messages))))
                }
            )?
        }
    };
}

service!(TargetService {
    get_info(GetInfoRequest) -> GetInfoResponse,
    get_health(GetHealthRequest) -> GetHealthResponse,
    drain(DrainRequest) -> DrainResponse,
    ; dump_recorder(DumpRecorderRequest) -> DumpRecorderStream of DumpRecorderResponse
});

service!(SubsystemService {
    create_subsystem(CreateSubsystemRequest) -> CreateSubsystemResponse,
    delete_subsystem(DeleteSubsystemRequest) -> DeleteSubsystemResponse,
    list_subsystems(ListSubsystemsRequest) -> ListSubsystemsResponse,
    get_subsystem(GetSubsystemRequest) -> GetSubsystemResponse,
});

service!(NamespaceService {
    attach_namespace(AttachNamespaceRequest) -> AttachNamespaceResponse,
    detach_namespace(DetachNamespaceRequest) -> DetachNamespaceResponse,
    resize_namespace(ResizeNamespaceRequest) -> ResizeNamespaceResponse,
    set_visibility(SetVisibilityRequest) -> SetVisibilityResponse,
    show_to(ShowToRequest) -> ShowToResponse,
    hide_from(HideFromRequest) -> HideFromResponse,
    list_namespaces(ListNamespacesRequest) -> ListNamespacesResponse,
    get_namespace(GetNamespaceRequest) -> GetNamespaceResponse,
    + prefetch(PrefetchRequest) -> PrefetchStream of PrefetchResponse
});

service!(HostService {
    allow_hosts(AllowHostsRequest) -> AllowHostsResponse,
    deny_hosts(DenyHostsRequest) -> DenyHostsResponse,
    set_hosts(SetHostsRequest) -> SetHostsResponse,
    list_hosts(ListHostsRequest) -> ListHostsResponse,
});

service!(ListenerService {
    add_listener(AddListenerRequest) -> AddListenerResponse,
    remove_listener(RemoveListenerRequest) -> RemoveListenerResponse,
    list_listeners(ListListenersRequest) -> ListListenersResponse,
    add_referral(AddReferralRequest) -> AddReferralResponse,
    remove_referral(RemoveReferralRequest) -> RemoveReferralResponse,
    list_referrals(ListReferralsRequest) -> ListReferralsResponse,
});

service!(FunctionService {
    create_function(CreateFunctionRequest) -> CreateFunctionResponse,
    delete_function(DeleteFunctionRequest) -> DeleteFunctionResponse,
    list_functions(ListFunctionsRequest) -> ListFunctionsResponse,
    get_function(GetFunctionRequest) -> GetFunctionResponse,
});

service!(ControllerService {
    list_controllers(ListControllersRequest) -> ListControllersResponse,
    end_controller(EndControllerRequest) -> EndControllerResponse,
});

service!(StatsService {
    get_stats(GetStatsRequest) -> StatsSnapshot,
    ; watch_stats(WatchStatsRequest) -> WatchStatsStream of StatsSnapshot
});

service!(EventService {
    publish(PublishRequest) -> PublishResponse,
    list_announcements(ListAnnouncementsRequest) -> ListAnnouncementsResponse,
    ; subscribe(SubscribeRequest) -> SubscribeStream of SubscribeResponse
});
