//! A device: a socket that a monitor connects to, and the thread that speaks with it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use reactor::{UnixPort, peer_event};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use vhost_user::{BackendChannel, Connection};

use crate::counters::{Counters, DeviceIo};
use crate::disk::Disk;
use crate::error::DeviceError;
use crate::memory;
use crate::order::{Door, Ending, Order, QueueId};
use crate::session::{Handled, Session};

/// How long accepting rests after the system refused (no descriptors, no memory).
const ACCEPT_REST: Duration = Duration::from_millis(100);
const LOST: &str = "a page of a guest's memory could not be had: its file is shorter than what was mapped, or there is no room for the page; the connection to its monitor ends";

/// A vhost-user-blk device. Dropped, it ends: its queues are drained, and its monitor is left as if the process had ended.
#[derive(Debug)]
pub struct Device {
    path: PathBuf,
    shown: Arc<Shown>,
    ending: Arc<End>,
    thread: Option<JoinHandle<()>>,
}

impl Device {
    /// Listens at `path`. Queues go to the reactors behind `doors` in turn. What is left there by a process that has ended is taken away.
    ///
    /// # Errors
    /// The socket, or the system.
    pub fn listen(path: &Path, disk: Disk, doors: Vec<Door>) -> Result<Self, DeviceError> {
        if doors.is_empty() {
            return Err(DeviceError::NoReactor);
        }
        let port = UnixPort::bind(path)?;
        let system = |what| move |source: io::Error| DeviceError::System { what, source };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(io::Error::from).map_err(system("eventfd"))?;
        let shown = Arc::new(Shown::new(disk));
        let ending = Arc::new(End {
            is_asked: AtomicBool::new(false),
            wake,
        });
        let (of_thread, asked) = (shown.clone(), ending.clone());
        let thread = std::thread::Builder::new()
            .name("vhost-user-blk".to_owned())
            .spawn(move || serve(&port, &of_thread, &doors, &asked))
            .map_err(system("starting a thread"))?;
        Ok(Self {
            path: path.to_owned(),
            shown,
            ending,
            thread: Some(thread),
        })
    }

    /// Begins its end, which [`Drop`] waits for: so several end at the same time.
    pub fn begin_end(&self) {
        self.shown.is_ending.store(true, Ordering::SeqCst);
        self.ending.ask();
    }

    /// How it is.
    #[must_use]
    pub fn report(&self) -> DeviceReport {
        self.shown.report()
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The disk has become another one of the same content: its size may have changed. Requests go there from now on, and the guest is told. False: it is
    /// a disk of other content, or what a driver asks once has changed; nothing is done then.
    pub fn set_disk(&self, disk: Disk) -> bool {
        self.shown.set_disk(disk)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.begin_end();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has been told of.
            drop(thread.join());
        }
    }
}

/// How a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// Since when a monitor is connected; none: it waits for one.
    pub connected_since: Option<SystemTime>,
    /// Queues that run.
    pub queues: usize,
    /// What it has done.
    pub io: DeviceIo,
}

/// What a device's thread and others know of it.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) counters: Arc<Counters>,
    /// Whoever served the disk before had ended by then.
    made_at: Instant,
    is_ending: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    connected_since: Option<SystemTime>,
    disk: Arc<Disk>,
    /// Where the guest is told of a change.
    channel: Option<BackendChannel>,
    /// It was told since the connection has queues that run: what changed while there was none, or while the monitor did not listen yet, was told to nobody.
    is_told: bool,
    queues: Vec<(Door, QueueId)>,
}

impl State {
    fn tell_change(&mut self) {
        let Some(channel) = &self.channel else { return };
        match channel.config_changed() {
            Ok(()) => self.is_told = true,
            Err(error) => tracing::warn!(%error, "a guest is not told that its disk has changed"),
        }
    }
}

impl Shown {
    fn new(disk: Disk) -> Self {
        Self {
            counters: Arc::default(),
            made_at: Instant::now(),
            is_ending: AtomicBool::new(false),
            state: Mutex::new(State {
                connected_since: None,
                disk: Arc::new(disk),
                channel: None,
                is_told: false,
                queues: Vec::new(),
            }),
        }
    }

    pub(crate) fn disk(&self) -> Arc<Disk> {
        self.lock().disk.clone()
    }

    /// The device is to end: nobody connects any more.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    /// Until when writes of whoever served the disk before may land; none: no longer.
    pub(crate) fn lingers_until(&self) -> Option<Instant> {
        let until = self.made_at + self.disk().lingers;
        (until > Instant::now()).then_some(until)
    }

    fn set_connected(&self, since: Option<SystemTime>) {
        self.lock().connected_since = since;
    }

    fn report(&self) -> DeviceReport {
        let state = self.lock();
        DeviceReport {
            connected_since: state.connected_since,
            queues: state.queues.len(),
            io: self.counters.read(),
        }
    }

    pub(crate) fn set_channel(&self, channel: Option<BackendChannel>) {
        let mut state = self.lock();
        state.channel = channel;
        state.is_told = false;
    }

    pub(crate) fn add_queue(&self, door: Door, id: QueueId) {
        let mut state = self.lock();
        // It may have started with a disk that was changed meanwhile.
        tell_disk(&door, id, &state.disk);
        state.queues.push((door, id));
        if !state.is_told {
            state.tell_change();
        }
    }

    pub(crate) fn remove_queue(&self, id: QueueId) {
        self.lock().queues.retain(|(_, of)| *of != id);
    }

    fn set_disk(&self, disk: Disk) -> bool {
        let mut state = self.lock();
        if !state.disk.is_same(&disk) {
            return false;
        }
        state.disk = Arc::new(disk);
        for (door, id) in &state.queues {
            tell_disk(door, *id, &state.disk);
        }
        state.tell_change();
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell_disk(door: &Door, id: QueueId, disk: &Arc<Disk>) {
    if let Err(error) = door.0.send(Order::Disk(id, disk.clone())) {
        tracing::error!(%error, "a queue does not hear that its disk has changed");
    }
}

/// How the thread is told to end.
#[derive(Debug)]
struct End {
    is_asked: AtomicBool,
    /// Stays set.
    wake: OwnedFd,
}

impl End {
    fn ask(&self) {
        self.is_asked.store(true, Ordering::SeqCst);
        peer_event::signal(&self.wake);
    }

    fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::SeqCst)
    }

    /// Waits until there is something at one of these, or it is asked.
    fn wait_for(&self, files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let files = files.iter().copied().chain([self.wake.as_fd()]);
        let mut waited: Vec<_> = files
            .map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN))
            .collect();
        match poll(&mut waited, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// One connection after the other.
fn serve(port: &UnixPort, shown: &Arc<Shown>, doors: &[Door], ending: &End) {
    let listener = port.listener();
    loop {
        if let Err(error) = ending.wait_for(&[listener.as_fd()]) {
            tracing::error!(%error, "a device waits for no monitor any more");
            return;
        }
        if ending.is_asked() {
            return;
        }
        match listener.accept() {
            Ok((socket, _)) => {
                shown.set_connected(Some(SystemTime::now()));
                converse(socket, shown, doors, ending);
                shown.set_connected(None);
            }
            Err(error) => {
                tracing::warn!(%error, "a monitor's connection is not accepted; trying again in {ACCEPT_REST:?}");
                std::thread::sleep(ACCEPT_REST);
            }
        }
    }
}

/// One connection, to its end.
fn converse(socket: UnixStream, shown: &Arc<Shown>, doors: &[Door], ending: &End) {
    tracing::info!("a monitor has connected");
    let mut connection = Connection::new(socket);
    let (loss, lost) = match memory::loss() {
        Ok(made) => made,
        Err(error) => return tracing::error!(%error, "the connection to a monitor ends"),
    };
    let mut session = Session::new(shown.clone(), doors.to_vec(), loss.clone());
    loop {
        if let Err(error) = ending.wait_for(&[connection.as_fd(), lost.as_fd()]) {
            return tracing::error!(%error, "the connection to a monitor ends");
        }
        if loss.has_happened() {
            return tracing::error!("{LOST}");
        }
        if ending.is_asked() {
            // The monitor sees the end of its connection when the guest has its answers: one that keeps no record of what is in flight loses none.
            if let Err(error) = session.end_all(Ending::Drained) {
                tracing::error!(%error, "queues are not drained");
            }
            return;
        }
        let message = match connection.receive() {
            Ok(Some(message)) => message,
            Ok(None) => return tracing::info!("the monitor has gone"),
            Err(error) => return tracing::warn!(%error, "the connection to a monitor ends"),
        };
        let (code, wants_ack) = (message.code, message.wants_ack);
        let handled = session.handle(message.request);
        if loss.has_happened() {
            // No reply: where its queues are may count what was never given back.
            return tracing::error!(code, "{LOST}");
        }
        let acknowledges = wants_ack && session.acknowledges();
        let answered = match &handled {
            Ok(Handled::Done) if acknowledges => connection.acknowledge(code, true),
            Ok(Handled::Refused(_)) | Err(_) if acknowledges => connection.acknowledge(code, false),
            _ => Ok(()),
        };
        let replied = match handled {
            Ok(Handled::Reply(reply)) => connection.reply(code, reply),
            Ok(Handled::Done) => Ok(()),
            Ok(Handled::Refused(why)) => {
                tracing::warn!(code, why, "a monitor's request is refused");
                Ok(())
            }
            Err(error) => {
                return tracing::warn!(code, %error, "a monitor's request is refused, and its connection ends");
            }
        };
        if let Err(error) = answered.and(replied) {
            return tracing::warn!(%error, "the connection to a monitor ends");
        }
    }
}
