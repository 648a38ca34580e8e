//! The connected host: an admin queue, I/O queues, and the calls of a caller.

use std::time::{Duration, Instant};

use nvme::initiator::{
    AttachAdmin, AttachIo, Attached, InitiatorError, KeepAlive, KeepAliveStep, Shutdown, command,
};
use nvme_spec::{Cqe, Nsid, Status};

use crate::queue::{NoBuffers, Queue};
use crate::socket::WireBytes;
use crate::{ControllerInfo, Error, NamespaceInfo, Options, Url, sequence, transfer};

/// Commands outstanding on the admin queue, and its SQSIZE: fabrics asks for at least 32 entries.
pub(crate) const ADMIN_DEPTH: u16 = 31;
/// Time for an orderly shutdown, the answers to its commands included.
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(5);

/// A connection to one subsystem. Dropped without [`Initiator::shutdown`], the connections are merely closed.
#[derive(Debug)]
pub struct Initiator {
    admin: Queue,
    io: Vec<Queue>,
    attached: Attached,
    keep_alive: Option<KeepAlive>,
}

impl Initiator {
    /// Connects to the subsystem `subnqn` at `address` ("host:port"): the admin queue, the controller enabled, its namespaces
    /// listed, and the I/O queues.
    pub fn connect(address: &str, subnqn: &str, options: &Options) -> Result<Initiator, Error> {
        let host = options.queue(ADMIN_DEPTH, None);
        let mut admin = Queue::connect(address, host, options)?;
        let now = admin.clock().now();
        let association = options.association(subnqn);
        let mut attach = AttachAdmin::new(
            association.clone(),
            ADMIN_DEPTH,
            options.keep_alive,
            options.queues.max(1),
            now,
        )
        .map_err(|source| Error::Controller {
            address: address.to_owned(),
            source,
        })?;
        let attaching = sequence::run(&mut admin, &mut attach);
        attaching.map_err(|error| host_refused(error, &options.hostnqn))?;
        let attached = attach.finish().filter(|attached| attached.io_queues > 0);
        let attached = attached.ok_or_else(|| Error::NoIoQueue {
            address: address.to_owned(),
            subnqn: subnqn.to_owned(),
        })?;
        let depth = options
            .depth
            .clamp(1, attached.controller.io_queue_depth_max);
        let host = options.queue(depth, Some(attached.controller.in_capsule_bytes_max));
        let mut io = Vec::new();
        for qid in 1..=attached.io_queues {
            let mut queue = Queue::connect(address, host, options)?;
            let mut attach = AttachIo::new(association.clone(), attached.cntlid, qid, depth);
            sequence::run(&mut queue, &mut attach)?;
            io.push(queue);
        }
        let keep_alive = (!options.keep_alive.is_zero())
            .then(|| KeepAlive::new(options.keep_alive, admin.clock().now()));
        Ok(Initiator {
            admin,
            io,
            attached,
            keep_alive,
        })
    }

    /// The controller.
    pub fn controller(&self) -> &ControllerInfo {
        &self.attached.controller
    }

    /// The namespaces that were active at connect, by NSID.
    pub fn namespaces(&self) -> &[NamespaceInfo] {
        &self.attached.namespaces
    }

    /// The namespace that `url` names, or the only one there is.
    ///
    /// # Errors
    /// It is not there; or none is named, and there are several or none.
    pub fn namespace_of(&self, url: &Url) -> Result<&NamespaceInfo, Error> {
        match (url.nsid, self.namespaces()) {
            (Some(nsid), _) => self.namespace(nsid),
            (None, [only]) => Ok(only),
            (None, several) => Err(Error::WhichNamespace {
                present: several.iter().map(|namespace| namespace.nsid.0).collect(),
            }),
        }
    }

    /// One namespace.
    pub fn namespace(&self, nsid: u32) -> Result<&NamespaceInfo, Error> {
        let found = self
            .namespaces()
            .iter()
            .find(|namespace| namespace.nsid.0 == nsid);
        found.ok_or_else(|| Error::NoNamespace {
            nsid,
            present: self
                .namespaces()
                .iter()
                .map(|namespace| namespace.nsid.0)
                .collect(),
        })
    }

    /// I/O queues that the controller granted.
    pub fn io_queues(&self) -> usize {
        self.io.len()
    }

    /// What the I/O queues' connections carried so far; nothing once an error has ended them.
    pub fn io_wire_bytes(&self) -> WireBytes {
        let mut total = WireBytes::default();
        for queue in &self.io {
            total += queue.wire_bytes();
        }
        total
    }

    /// Reads bytes `offset..offset + into.len()` of a namespace; the ends need no alignment.
    pub fn read(&mut self, nsid: u32, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let namespace = self.namespace(nsid)?.clone();
        let transfer_bytes_max = self.attached.controller.transfer_bytes_max;
        let queues = self.queues()?;
        let result = transfer::read(queues, &namespace, transfer_bytes_max, offset, into);
        self.after(result)
    }

    /// Writes bytes `offset..offset + from.len()` of a namespace. A first or last block that is covered in part is read, changed
    /// and written back, which is not atomic toward other writers. On an error any part may have been written.
    pub fn write(&mut self, nsid: u32, offset: u64, from: &[u8]) -> Result<(), Error> {
        let namespace = self.namespace(nsid)?.clone();
        let transfer_bytes_max = self.attached.controller.transfer_bytes_max;
        let queues = self.queues()?;
        let result = transfer::write(queues, &namespace, transfer_bytes_max, offset, from);
        self.after(result)
    }

    /// Makes everything written before durable.
    pub fn flush(&mut self, nsid: u32) -> Result<(), Error> {
        self.namespace(nsid)?;
        let result = self.flush_all_written(nsid);
        self.after(result)
    }

    /// Sends a Keep Alive if one is due. Reads and writes do so by themselves; an idle caller calls this at least each half of
    /// [`Options::keep_alive`].
    pub fn keep_alive(&mut self) -> Result<(), Error> {
        let Some(timer) = &mut self.keep_alive else {
            return Ok(());
        };
        let clock = self.admin.clock();
        if timer.step(clock.now()) != KeepAliveStep::Send {
            return Ok(());
        }
        timer.sent(clock.now());
        let status = issue_without_data(&mut self.admin, &command::keep_alive())?.status();
        if !status.is_success() {
            return Err(Error::Controller {
                address: self.admin.address().to_owned(),
                source: InitiatorError::Refused {
                    command: "Keep Alive",
                    status,
                },
            });
        }
        timer.answered(clock.now());
        Ok(())
    }

    /// Shuts the controller down in order and closes the connections.
    pub fn shutdown(mut self) -> Result<(), Error> {
        self.io.clear();
        let by = Instant::now() + SHUTDOWN_WITHIN;
        sequence::run_until(
            &mut self.admin,
            &mut Shutdown::new(SHUTDOWN_WITHIN),
            Some(by),
        )
    }

    /// Runs `work` on the first I/O queue.
    pub(crate) fn on_queue<T>(
        &mut self,
        work: impl FnOnce(&mut Queue) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let result = self.first_queue().and_then(work);
        self.after(result)
    }

    /// Runs `work` on the admin queue.
    pub(crate) fn on_admin<T>(
        &mut self,
        work: impl FnOnce(&mut Queue) -> Result<T, Error>,
    ) -> Result<T, Error> {
        work(&mut self.admin)
    }

    fn flush_all_written(&mut self, nsid: u32) -> Result<(), Error> {
        let cqe = issue_without_data(self.first_queue()?, &command::flush(Nsid(nsid)))?;
        let status = cqe.status();
        if status.is_success() {
            return Ok(());
        }
        Err(Error::Command {
            command: "Flush",
            nsid,
            lba: 0,
            blocks: 0,
            status,
        })
    }

    fn first_queue(&mut self) -> Result<&mut Queue, Error> {
        let address = self.admin.address();
        self.io.first_mut().ok_or_else(|| over(address))
    }

    fn queues(&mut self) -> Result<&mut [Queue], Error> {
        if self.io.is_empty() {
            return Err(over(self.admin.address()));
        }
        Ok(&mut self.io)
    }

    /// After work on the I/O queues: one that broke off takes all with it, since commands may still be outstanding whose buffers
    /// are the caller's again.
    fn after<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        match result {
            Ok(value) => {
                self.keep_alive()?;
                Ok(value)
            }
            Err(error) => {
                let unfinished = self.io.iter().any(|queue| queue.outstanding() > 0);
                if unfinished || error.ends_connection() {
                    self.io.clear();
                }
                Err(error)
            }
        }
    }
}

/// Says which host it was that the target refuses.
fn host_refused(error: Error, hostnqn: &str) -> Error {
    match error {
        Error::Controller {
            address,
            source: InitiatorError::ConnectRefused { subnqn, status, .. },
        } if status.code() == Status::CONNECT_INVALID_HOST => Error::HostRefused {
            address,
            subnqn,
            hostnqn: hostnqn.to_owned(),
            status,
        },
        error => error,
    }
}

fn over(address: &str) -> Error {
    Error::Over {
        address: address.to_owned(),
    }
}

fn issue_without_data(queue: &mut Queue, command: &nvme::initiator::Command) -> Result<Cqe, Error> {
    let now = queue.clock().now();
    queue.submit(command, now)?;
    loop {
        let moved = queue.turn(&mut NoBuffers)?;
        if let Some(completed) = queue.next_completed()? {
            return Ok(completed.cqe);
        }
        if !moved {
            queue.wait()?;
        }
    }
}
