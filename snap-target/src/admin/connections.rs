//! Connections: how many, and whose.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

/// How long accepting rests after the system refused (no descriptors).
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Who is at the other end.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    /// A process of this machine; none: the system did not say which.
    Local(Option<Process>),
    /// Somebody whom TLS has let in.
    Tls,
}

/// A process of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its user.
    pub uid: u32,
    /// Its number, where the system said it.
    pub pid: Option<i32>,
}

/// A connection, with its place among those that there may be.
#[derive(Debug)]
pub struct Connection<T> {
    io: T,
    peer: Peer,
    _place: OwnedSemaphorePermit,
}

impl<T> Connected for Connection<T> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
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
        let (io, _) = self.accept().await?;
        io.set_nodelay(true)?;
        Ok((io, Peer::Tls))
    }
}

/// Accepts as long as there is a place; others wait in the backlog.
pub fn incoming<L: Listening>(
    listener: L,
    places: Arc<Semaphore>,
) -> ReceiverStream<io::Result<Connection<L::Io>>> {
    let (accepted, incoming) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Ok(place) = places.clone().acquire_owned().await {
            match listener.next().await {
                Ok((io, peer)) => {
                    let connection = Connection {
                        io,
                        peer,
                        _place: place,
                    };
                    if accepted.send(Ok(connection)).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the admin service cannot accept a connection");
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            }
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
