//! A namespace that a target serves, over connections that are made again when they are lost.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use initiator::{Error, Initiator, NamespaceInfo, Nqn, Options, Url};
use mount::{Medium, ReadFailure};

use crate::failure::Failure;

/// Between two attempts to connect, at first, and at most.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time for one attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Status code type 2: media and data integrity errors.
const SCT_MEDIA: u8 = 2;
/// Status code type 3: path related errors.
const SCT_PATH: u8 = 3;
/// Generic status codes that pass: Command Abort Requested, aborted due to SQ Deletion, Command Interrupted, Transient Transport Error, Namespace Not Ready.
const SC_PASSING: [u8; 5] = [0x07, 0x08, 0x21, 0x22, 0x82];

/// The bytes of a namespace: a connection for each read at once.
pub struct NamespaceMedium {
    url: Url,
    options: Options,
    patience: Duration,
    /// As it was at the beginning.
    namespace: NamespaceInfo,
    /// Whether the target lists namespaces that changed under a connection.
    lists_changes: bool,
    idle: Mutex<Vec<Initiator>>,
    outage: Mutex<Option<Outage>>,
    /// Held by who tries to connect beyond the deadline of an outage.
    attempting: Mutex<()>,
}

/// From when a connection was asked for in vain until there is one: all reads that wait have the same deadline.
struct Outage {
    /// Nobody waits beyond it: then a read fails with the first attempt that does.
    deadline: Instant,
    /// When the last attempt failed, and why.
    failed: Instant,
    why: String,
}

impl NamespaceMedium {
    /// Connects, and asks what the namespace is. A target that cannot be reached, or goes meanwhile, is tried again for `patience`; from then on so is a connection
    /// that is lost.
    pub fn connect(
        url: Url,
        hostnqn: Option<&Nqn>,
        patience: Duration,
    ) -> Result<NamespaceMedium, Failure> {
        let options = Options {
            connect_timeout: CONNECT_TIMEOUT,
            ..Options::of_host(hostnqn)
        };
        let deadline = Instant::now() + patience;
        let mut pause = PAUSE;
        let mut told = false;
        let opened = loop {
            let failure = match Opened::new(&url, &options) {
                Ok(opened) => break opened,
                Err(failure) => failure,
            };
            // What a target says of a name is not waited for to change.
            let passes = |error: &Error| {
                matches!(error, Error::Connect { .. })
                    || error.ends_connection()
                    || error.is_controller_gone()
            };
            let now = Instant::now();
            let passes = failure.cause().is_some_and(passes);
            if passes && now < deadline {
                if !told {
                    printout::stderr::note(format_args!(
                        "trying again for {patience:?}: {failure}"
                    ));
                }
                told = true;
                thread::sleep(pause.min(deadline - now));
                pause = (pause * 2).min(PAUSE_MAX);
                continue;
            }
            return Err(match passes && told {
                true => Failure::system(anyhow!("{failure}; given up after {patience:?}")),
                false => failure,
            });
        };
        // One that has changed already is connected to again, and looked at.
        let is_as_identified = opened.changed != Some(true);
        Ok(NamespaceMedium {
            url,
            options,
            patience,
            namespace: opened.namespace,
            lists_changes: opened.changed.is_some(),
            idle: Mutex::new(Vec::from_iter(is_as_identified.then_some(opened.initiator))),
            outage: Mutex::default(),
            attempting: Mutex::default(),
        })
    }

    /// Its NSID.
    pub fn nsid(&self) -> u32 {
        self.namespace.nsid.0
    }

    /// Bytes of its logical blocks.
    pub fn lba_bytes(&self) -> u32 {
        self.namespace.lba_bytes
    }

    /// Whether hosts cannot write to it.
    pub fn is_write_protected(&self) -> bool {
        self.namespace.write_protected
    }

    /// Shuts its controllers down.
    pub fn close(&self) {
        for initiator in self.idle().drain(..) {
            // It is over for us, whatever the target says.
            let _ = initiator.shutdown();
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Initiator>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outage(&self) -> MutexGuard<'_, Option<Outage>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that is there, or a new one.
    fn connection(&self) -> Result<Initiator, Refused> {
        let idle = self.idle().pop();
        if let Some(initiator) = idle {
            return Ok(initiator);
        }
        let began = Instant::now();
        let left = self
            .outage()
            .as_ref()
            .map(|it| it.deadline - began.min(it.deadline));
        // Beyond the deadline one tries, and the others who began meanwhile have what came of it.
        let _alone = (left == Some(Duration::ZERO)).then(|| {
            self.attempting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        });
        if let Some(outage) = self.outage().as_ref()
            && outage.deadline <= began
            && outage.failed >= began
        {
            return Err(Refused::Lost(outage.why.clone()));
        }
        let connect_timeout = left.map_or(CONNECT_TIMEOUT, |left| {
            left.clamp(PAUSE_MAX, CONNECT_TIMEOUT)
        });
        match self.connect_again(connect_timeout) {
            Err(Refused::Now(error)) => {
                let now = Instant::now();
                let mut outage = self.outage();
                let outage = outage.get_or_insert_with(|| Outage {
                    deadline: began + self.patience,
                    failed: now,
                    why: String::new(),
                });
                outage.failed = now;
                outage.why = error.to_string();
                Err(Refused::Now(error))
            }
            connected => {
                *self.outage() = None;
                connected
            }
        }
    }

    fn connect_again(&self, connect_timeout: Duration) -> Result<Initiator, Refused> {
        let options = Options {
            connect_timeout,
            ..self.options.clone()
        };
        let initiator = Initiator::connect(&self.url.address(), &self.url.subnqn, &options)?;
        self.check(initiator.namespace(self.nsid())?)?;
        Ok(initiator)
    }

    /// What has another identity, or another size, is not what was begun with.
    fn check(&self, now: &NamespaceInfo) -> Result<(), Refused> {
        let then = &self.namespace;
        let same =
            now.ids == then.ids && (now.lba_bytes, now.blocks) == (then.lba_bytes, then.blocks);
        if same {
            return Ok(());
        }
        let shown = |it: &NamespaceInfo| {
            let uuid = it.ids.uuid.map(|uuid| uuid.to_string());
            let uuid = uuid.unwrap_or_else(|| "no UUID".to_owned());
            format!("{uuid}, {} bytes", it.bytes())
        };
        let (nsid, now, then) = (self.nsid(), shown(now), shown(then));
        let why = format!("namespace {nsid} is another one now ({now}) than it was ({then})");
        Err(Refused::For(why))
    }

    fn attempt(&self, at: u64, into: &mut [u8]) -> Result<(), Refused> {
        let mut initiator = self.connection()?;
        let read = initiator.read(self.nsid(), at, into);
        if let Err(error) = &read
            && error.ends_connection()
        {
            return Err(Refused::Lost(error.to_string()));
        }
        // Only now is it known whose bytes these are: the target lists a change before it answers from what is new.
        if self.lists_changes && initiator.namespace_changed(self.nsid())? {
            let why = format!("namespace {} changes again and again", self.nsid());
            return Err(Refused::Lost(why));
        }
        self.idle().push(initiator);
        Ok(read?)
    }
}

/// The first connection, and what was found by it.
struct Opened {
    initiator: Initiator,
    namespace: NamespaceInfo,
    /// Whether it is another one by now, where the target lists that.
    changed: Option<bool>,
}

impl Opened {
    fn new(url: &Url, options: &Options) -> Result<Opened, Failure> {
        let mut initiator = super::connect(url, options)?;
        let namespace = initiator.namespace_of(url)?.clone();
        let nsid = namespace.nsid.0;
        let changed = match initiator.namespace_changed(nsid) {
            Err(error @ Error::Controller { .. }) => {
                printout::stderr::note(format_args!(
                    "{error}; whether namespace {nsid} becomes another one is looked at only when a connection is made"
                ));
                None
            }
            changed => Some(changed?),
        };
        Ok(Opened {
            initiator,
            namespace,
            changed,
        })
    }
}

/// Why an attempt came to nothing.
enum Refused {
    /// The connection ended under it, or what it was made to has changed: the next attempt makes another, at once, and looks.
    Lost(String),
    /// It may pass.
    Now(Error),
    /// It is so.
    Error(Error),
    /// It is so.
    For(String),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        let passes = match &error {
            Error::Command { status, .. } => {
                let is_passing = status.sct() == 0 && SC_PASSING.contains(&status.sc());
                !status.do_not_retry() && (is_passing || status.sct() == SCT_PATH)
            }
            Error::Connect { .. } | Error::Controller { .. } | Error::HostRefused { .. } => true,
            // A target that starts again has its namespaces a little later.
            Error::NoNamespace { .. } | Error::NoIoQueue { .. } => true,
            error => error.ends_connection(),
        };
        if passes {
            Refused::Now(error)
        } else {
            Refused::Error(error)
        }
    }
}

impl Medium for NamespaceMedium {
    fn bytes(&self) -> u64 {
        self.namespace.bytes()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), ReadFailure> {
        let mut pause = PAUSE;
        let mut deadline = None;
        loop {
            let refused = match self.attempt(at, into) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            let now = Instant::now();
            let own = *deadline.get_or_insert(now + self.patience);
            // What else is refused again and again has no other deadline.
            let outage = self.outage().as_ref().map(|it| it.deadline);
            let deadline = outage.map_or(own, |outage| outage.min(own));
            let failed = |why: String| ReadFailure {
                why,
                is_damage: false,
            };
            let given_up =
                |why: String| failed(format!("{why}; given up after {:?}", self.patience));
            match refused {
                Refused::Lost(_) if now < deadline => {}
                Refused::Now(_) if now < deadline => {
                    thread::sleep(pause.min(deadline - now));
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Refused::Lost(why) => return Err(given_up(why)),
                Refused::Now(error) => return Err(given_up(error.to_string())),
                Refused::Error(error) => {
                    let is_damage = matches!(&error, Error::Command { status, .. } if status.sct() == SCT_MEDIA);
                    return Err(ReadFailure {
                        why: error.to_string(),
                        is_damage,
                    });
                }
                Refused::For(why) => return Err(failed(why)),
            }
        }
    }
}
