//! A namespace that a target serves, over connections that are made again when they are lost.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use initiator::{Error, Initiator, NamespaceInfo, Options, Url};
use mount::{Medium, ReadFailure};

use crate::failure::Failure;
use crate::verify::the_namespace;

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
}

impl NamespaceMedium {
    /// Connects. From then on a lost connection is made again, for `patience`.
    pub fn connect(url: Url, patience: Duration) -> Result<NamespaceMedium, Failure> {
        let options = Options {
            connect_timeout: CONNECT_TIMEOUT,
            ..Options::default()
        };
        let mut initiator = Initiator::connect(&url.address(), &url.subnqn, &options)?;
        let nsid = the_namespace(&initiator, &url)?;
        let namespace = initiator.namespace(nsid)?.clone();
        let changed = match initiator.namespace_changed(nsid) {
            Err(error @ Error::Controller { .. }) => {
                printout::stderr::note(format_args!(
                    "{error}; whether namespace {nsid} becomes another one is looked at only when a connection is made"
                ));
                None
            }
            changed => Some(changed?),
        };
        // One that has changed already is connected to again, and looked at.
        let is_as_identified = changed != Some(true);
        Ok(NamespaceMedium {
            url,
            options,
            patience,
            namespace,
            lists_changes: changed.is_some(),
            idle: Mutex::new(Vec::from_iter(is_as_identified.then_some(initiator))),
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

    /// A connection that is there, or a new one.
    fn connection(&self) -> Result<Initiator, Refused> {
        let idle = self.idle().pop();
        if let Some(initiator) = idle {
            return Ok(initiator);
        }
        let address = self.url.address();
        let initiator = Initiator::connect(&address, &self.url.subnqn, &self.options)?;
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
            Error::Connect { .. } | Error::Controller { .. } => true,
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
            let deadline = *deadline.get_or_insert(now + self.patience);
            let failed = |why: String| ReadFailure {
                why,
                is_damage: false,
            };
            let given_up =
                |why: String| failed(format!("{why}; given up after {:?}", self.patience));
            match refused {
                Refused::Lost(_) if now < deadline => {}
                Refused::Now(_) if now + pause < deadline => {
                    thread::sleep(pause);
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
