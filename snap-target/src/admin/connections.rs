//! Connections: how many, and whose.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::certificates::Certificates;
use super::handshake::{self, ClientRefusals};
use crate::limits::ADMIN_FIRST_CALL_MAX;

/// How long accepting rests after the system refused (no descriptors).
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Who is at the other end.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    /// A process of this machine; none: the system did not say which.
    Local(Option<Process>),
    /// Somebody whom TLS lets in.
    Tls(SocketAddr),
}

/// A process of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its user.
    pub uid: u32,
    /// Its number, where the system said it.
    pub pid: Option<i32>,
}

/// A client: who it is, and whether it has asked for anything that it may.
#[derive(Clone, Debug)]
pub struct Client {
    /// Who is at the other end.
    pub peer: Peer,
    has_asked: Arc<AtomicBool>,
}

impl Client {
    /// Of a new connection.
    pub fn of(peer: Peer) -> Self {
        Self {
            peer,
            has_asked: Arc::default(),
        }
    }

    /// It is let in: its connection stays.
    pub fn asks(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
    }
}

/// A connection, with its place among those that there may be. It ends by itself where its client does not ask for anything: silence before the first call
/// is nothing that HTTP/2 sees.
#[derive(Debug)]
pub struct Connection<T> {
    io: T,
    client: Client,
    /// Until when the client may be silent; none once it has asked.
    silent_until: Option<Pin<Box<Sleep>>>,
    _place: OwnedSemaphorePermit,
}

impl<T> Connection<T> {
    /// Where it comes from; none of this machine's socket.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        match self.client.peer {
            Peer::Tls(address) => Some(address),
            Peer::Local(_) => None,
        }
    }

    fn new(io: T, peer: Peer, place: OwnedSemaphorePermit) -> Self {
        Self {
            io,
            client: Client::of(peer),
            silent_until: Some(Box::pin(tokio::time::sleep(ADMIN_FIRST_CALL_MAX))),
            _place: place,
        }
    }

    /// An error once the client has been silent for too long; wakes the task at that time.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.client.has_asked.load(Ordering::Relaxed) {
            self.silent_until = None;
        }
        match &mut self.silent_until {
            Some(until) => match until.as_mut().poll(cx) {
                Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
                Poll::Pending => Ok(()),
            },
            None => Ok(()),
        }
    }
}

impl<T> Connected for Connection<T> {
    type ConnectInfo = Client;

    fn connect_info(&self) -> Client {
        self.client.clone()
    }
}

/// A listening socket.
pub trait Listening: Send + 'static {
    /// A connection.
    type Io: Send + 'static;

    /// The next one, and who it is.
    fn next(&self) -> impl Future<Output = io::Result<(Self::Io, Peer)>> + Send;
}

impl Listening for UnixListener {
    type Io = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Peer)> {
        let (io, _) = self.accept().await?;
        let peer = io.peer_cred().ok().map(|peer| Process {
            uid: peer.uid(),
            pid: peer.pid(),
        });
        Ok((io, Peer::Local(peer)))
    }
}

impl Listening for TcpListener {
    type Io = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Peer)> {
        let (io, peer) = self.accept().await?;
        io.set_nodelay(true)?;
        Ok((io, Peer::Tls(peer)))
    }
}

/// The next connection, as soon as there is a place; others wait in the backlog. None at the end.
async fn accepted<L: Listening>(
    listener: &L,
    places: &Arc<Semaphore>,
) -> Option<Connection<L::Io>> {
    loop {
        let place = places.clone().acquire_owned().await.ok()?;
        match listener.next().await {
            Ok((io, peer)) => return Some(Connection::new(io, peer, place)),
            Err(error) => {
                tracing::warn!(%error, "the admin service cannot accept a connection");
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
}

/// Connections as they come.
pub fn incoming<L: Listening + Sync>(
    listener: L,
    places: Arc<Semaphore>,
) -> ReceiverStream<io::Result<Connection<L::Io>>> {
    let (out, incoming) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(connection) = accepted(&listener, &places).await {
            if out.send(Ok(connection)).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(incoming)
}

/// Connections whose client has proven who it is. Each has its place from the beginning: handshakes that hang take no more than there are.
pub fn incoming_tls(
    listener: TcpListener,
    places: Arc<Semaphore>,
    certificates: Certificates,
    refusals: ClientRefusals,
) -> ReceiverStream<io::Result<TlsStream<Connection<TcpStream>>>> {
    let (out, incoming) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(connection) = accepted(&listener, &places).await {
            if out.is_closed() {
                return;
            }
            let (out, certificates, refusals) =
                (out.clone(), certificates.clone(), refusals.clone());
            tokio::spawn(async move {
                let entered = handshake::welcome(connection, &certificates, &refusals).await;
                if let Some(stream) = entered {
                    // Where the service has ended, so does this connection.
                    let _served = out.send(Ok(stream)).await;
                }
            });
        }
    });
    ReceiverStream::new(incoming)
}

impl<T: AsyncRead + Unpin> AsyncRead for Connection<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_silence(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Connection<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{UnixListener, UnixStream};
    use tokio::sync::Semaphore;
    use tokio::time::Instant;
    use tokio_stream::StreamExt;

    use super::incoming;
    use crate::limits::ADMIN_FIRST_CALL_MAX;

    /// With one place: a client that asks nothing has it for its time, one that has asked for as long as it likes.
    #[tokio::test(start_paused = true)]
    async fn who_asks_nothing_gives_its_place_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut accepted = incoming(listener, Arc::new(Semaphore::new(1)));
        let begun = Instant::now();
        let mut silent = UnixStream::connect(&path).await.unwrap();
        let mut asking = UnixStream::connect(&path).await.unwrap();
        let mut connection = accepted.next().await.unwrap().unwrap();
        // Bytes are not a call.
        silent.write_all(b"x").await.unwrap();
        assert_eq!(connection.read_u8().await.unwrap(), b'x');
        let ended = connection.read_u8().await.unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), ADMIN_FIRST_CALL_MAX.as_secs());
        drop(connection);

        let mut connection = accepted.next().await.unwrap().unwrap();
        connection.client.asks();
        tokio::time::sleep(10 * ADMIN_FIRST_CALL_MAX).await;
        asking.write_all(b"y").await.unwrap();
        assert_eq!(connection.read_u8().await.unwrap(), b'y');
    }
}
