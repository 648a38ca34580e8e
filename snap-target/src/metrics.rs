//! The metrics endpoint: GET /metrics over HTTP/1.1, for Prometheus.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use telemetry::Telemetry;
use telemetry::prometheus::{Daemon, Latency};
use tokio::sync::{Semaphore, oneshot};

use crate::admin::{Certificates, ClientRefusals};
use crate::catalogue::Catalogue;
use crate::config::MetricsConfig;
use crate::health::Health;
use crate::limits::{METRICS_CONNECTIONS_MAX, METRICS_HEAD_BYTES_MAX, METRICS_TIME_MAX};
use crate::refusals::Refusals;

/// The type of Prometheus' text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the numbers come from. Cheap to clone.
#[derive(Clone)]
pub struct Measured {
    /// The counters.
    pub telemetry: Arc<Telemetry>,
    /// What is attached.
    pub catalogue: Catalogue,
    /// What is wrong.
    pub health: Health,
    /// Hosts that were refused.
    pub refusals: Refusals,
    /// Those of the admin service.
    pub certificates: Option<Certificates>,
    /// Its clients that TLS did not let in.
    pub client_refusals: ClientRefusals,
}

impl Measured {
    fn daemon(&self) -> Daemon {
        Daemon {
            namespaces: self.catalogue.attached(),
            health: self.health.by_code(),
            refused: self.refusals.counts().to_vec(),
            certificate_expiry: self.certificates.as_ref().and_then(|it| it.now().expiry),
            refused_clients: self.client_refusals.counts(),
        }
    }
}

/// The running endpoint; it ends when this is dropped.
pub struct MetricsService {
    /// Where it listens.
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Listens, and serves on a thread of its own.
///
/// # Errors
/// An address that cannot be used.
pub fn start(config: &MetricsConfig, measured: Measured) -> Result<MetricsService> {
    let listener = TcpListener::bind(config.address)
        .with_context(|| format!("the metrics endpoint cannot listen on {}", config.address))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the metrics endpoint's runtime")?;
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new().name("metrics".to_owned());
    let thread = thread.spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                result = serve(listener, measured) => {
                    if let Err(error) = result {
                        tracing::error!(%error, "the metrics endpoint ended");
                    }
                }
                _ = stopped => {}
            }
        });
    })?;
    Ok(MetricsService {
        address,
        stop: Some(stop),
        thread: Some(thread),
    })
}

impl Drop for MetricsService {
    fn drop(&mut self) {
        let _told = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, measured: Measured) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(METRICS_CONNECTIONS_MAX));
    while let Ok(place) = places.clone().acquire_owned().await {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                tracing::warn!(%error, "the metrics endpoint cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let measured = measured.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let answer = answer(&request, &measured);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(METRICS_TIME_MAX)
                .max_buf_size(METRICS_HEAD_BYTES_MAX)
                .keep_alive(false)
                .serve_connection(TokioIo::new(socket), answer);
            // A client that goes, or is silent, is its own loss.
            let _ended = tokio::time::timeout(METRICS_TIME_MAX, connection).await;
            drop(place);
        });
    }
    Ok(())
}

/// What the query asks for: `latency=none` leaves histograms out. What is not known is ignored.
fn latency_of(query: Option<&str>) -> Latency {
    let mut parameters = query.unwrap_or("").split('&');
    match parameters.any(|it| it == "latency=none") {
        true => Latency::LeftOut,
        false => Latency::Whole,
    }
}

fn answer(request: &Request<Incoming>, measured: &Measured) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => {
            let snapshot = measured.telemetry.snapshot();
            let latency = latency_of(request.uri().query());
            let text = telemetry::prometheus::render(&snapshot, &measured.daemon(), latency);
            *response.body_mut() = Full::from(text);
            let kind = hyper::header::HeaderValue::from_static(TEXT);
            response.headers_mut().insert(CONTENT_TYPE, kind);
        }
        (_, "/metrics") => {
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            let allow = hyper::header::HeaderValue::from_static("GET");
            response.headers_mut().insert(ALLOW, allow);
        }
        _ => {
            *response.status_mut() = StatusCode::NOT_FOUND;
            *response.body_mut() = Full::from("the metrics are at /metrics\n");
        }
    }
    response
}
