//! Functions for virtual machines: they come and go, and their clients with them.

use admin_proto::v1::{self, FunctionChange, HealthCode, ObjectKind, Reason, event::Kind};
use frontend_nvme::ControllerReport;
use frontend_nvme::link::Bound;
use frontend_vfio_user::{Doorbells, Names};
use frontend_vhost_user_blk::DeviceReport;

use super::steps::{Step, take};
use super::{FunctionLive, ManageError, Manager, News, StillClosing, closing};
use crate::config::{FunctionConfig, FunctionDevice, FunctionName};
use crate::desired::PortId;
use crate::limits::FUNCTIONS_MAX;

impl Manager {
    /// A function that is to be there, as it is.
    pub fn live_function(&self, name: FunctionName) -> Option<&FunctionLive> {
        self.live.functions.get(&name)
    }

    /// The controller that a function's client has.
    pub fn controller_of<'c>(
        &self,
        name: FunctionName,
        controllers: &'c [ControllerReport],
    ) -> Option<&'c ControllerReport> {
        let number = self.live.function_number(name)?;
        controllers.iter().find(|it| it.port_id == Some(number))
    }

    /// The function that a controller is of; none where it is over a fabric.
    pub fn function_of(&self, controller: &ControllerReport) -> Option<FunctionName> {
        let mut all = self.live.functions.iter();
        let is_its = |live: &FunctionLive| matches!(live, FunctionLive::Open(number) if controller.port_id == Some(*number));
        all.find(|(_, live)| is_its(live)).map(|(name, _)| *name)
    }

    /// That a function is there.
    ///
    /// # Errors
    /// What is named is not there.
    pub fn require_function(&self, name: FunctionName) -> Result<&FunctionConfig, ManageError> {
        self.desired.functions.get(&name).ok_or_else(|| {
            ManageError::new(
                Reason::NoFunction,
                format!("there is no function {name}; `snapctl function list` shows those that are there"),
            )
            .about(ObjectKind::Function, name)
        })
    }

    /// Makes a function, which waits for its client.
    ///
    /// # Errors
    /// It is there already, its subsystem is not, its socket is another's or cannot be had, or there are as many as may be.
    pub fn create_function(&mut self, config: FunctionConfig) -> Result<(), ManageError> {
        self.may_change()?;
        let name = config.name;
        if self.desired.functions.contains_key(&name) {
            return Err(ManageError::new(
                Reason::FunctionExists,
                format!(
                    "there is a function {name} already; delete it first, or take another name"
                ),
            )
            .about(ObjectKind::Function, name));
        }
        self.require_subsystem(&config.subsystem)?;
        let mut others = self.desired.functions.values();
        if let Some(other) = others.find(|it| it.socket == config.socket) {
            let (path, other) = (config.socket.display(), other.name);
            return Err(ManageError::new(
                Reason::AddressTaken,
                format!("{path} is function {other} already; take another path, or number"),
            )
            .about(ObjectKind::Function, other));
        }
        if self.desired.functions.len() >= FUNCTIONS_MAX {
            return Err(ManageError::new(
                Reason::Limit,
                format!(
                    "there are {FUNCTIONS_MAX} functions, and no more are possible; delete one first"
                ),
            ));
        }
        let step = self.function_step(&config)?;
        let news = news(FunctionChange::Created, &config);
        let mut next = self.desired.clone();
        next.functions.insert(name, config);
        self.commit(next, step, vec![news])
            .map(|_nothing_closes| ())
    }

    /// Deletes a function; the client that has it is let go. Returns why operations are still under way, if they are.
    ///
    /// # Errors
    /// What is named is not there.
    pub fn delete_function(&mut self, name: FunctionName) -> Result<StillClosing, ManageError> {
        self.may_change()?;
        let news = news(FunctionChange::Deleted, self.require_function(name)?);
        let mut next = self.desired.clone();
        next.functions.remove(&name);
        let closed = self.commit(next, Step::RemoveFunction(name), vec![news])?;
        self.health.well(&subject(name));
        Ok(closing::of_controllers(&closed))
    }

    /// Opens a function's socket, for the step that serves it.
    fn function_step(&self, config: &FunctionConfig) -> Result<Step, ManageError> {
        self.require_subsystem(&config.subsystem)?;
        let doorbells = match config.device {
            FunctionDevice::VirtioBlk { nsid } | FunctionDevice::Ublk { nsid, .. } => {
                return self.disk_step(config, nsid);
            }
            FunctionDevice::Nvme { poll: true } => Doorbells::Polled,
            FunctionDevice::Nvme { poll: false } => Doorbells::Rung,
        };
        let names = Names {
            subsystem: config.subsystem.clone(),
            host: config.name.host(),
        };
        let bound = frontend_vfio_user::bind(&config.socket, names, doorbells);
        let port: Box<dyn Bound> = match bound {
            Ok(port) => Box::new(port),
            Err(error) => {
                let (name, path) = (config.name, config.socket.display());
                let text = format!(
                    "function {name} cannot have the socket {path}: {error}; take a path that nobody uses, in a folder that can be written"
                );
                return Err(ManageError::new(Reason::AddressRefused, text)
                    .about(ObjectKind::Function, name));
            }
        };
        Ok(Step::AddFunction(config.name, self.free_number(), port))
    }

    /// A disk is there when its namespace is.
    fn disk_step(&self, config: &FunctionConfig, nsid: u32) -> Result<Step, ManageError> {
        let (name, nqn) = (config.name, &config.subsystem);
        self.require_namespace(nqn, nsid)?;
        let namespace = self.live.served(nqn, nsid).cloned().ok_or_else(|| {
            let text = format!(
                "function {name} is namespace {nsid} of {nqn}, which is not served; the function comes when it is"
            );
            ManageError::new(Reason::NoNamespace, text).about(ObjectKind::Function, name)
        })?;
        Ok(Step::AddDisk(Box::new(config.clone()), namespace))
    }

    /// How a virtio disk is.
    pub fn disk(&self, name: FunctionName) -> Option<DeviceReport> {
        self.frontend.disk(name)
    }

    /// How many queues a block device of this machine has, or why it is not there; none: it is about to be.
    pub fn local(&self, name: FunctionName) -> Option<Result<u16, String>> {
        self.frontend.local(name)
    }

    /// A number for a block device of this machine, where none was asked for.
    pub fn free_local(&self) -> u32 {
        self.frontend.free_local()
    }

    /// The frontend knows where it takes connections by numbers: functions count down from the last one, listeners of hosts up from the first.
    fn free_number(&self) -> PortId {
        let is_free = |number: &PortId| {
            let mut functions = self.live.functions.values();
            !self.desired.listeners.contains_key(number)
                && functions.all(|it| !matches!(it, FunctionLive::Open(taken) if taken == number))
        };
        // There are far fewer of both than numbers.
        (1..=PortId::MAX).rev().find(is_free).unwrap_or(PortId::MAX)
    }

    /// Serves a function, or has it among those that failed.
    pub(super) fn serve_function(&mut self, config: &FunctionConfig) -> Result<(), ManageError> {
        let served = self
            .function_step(config)
            .and_then(|step| take(&*self.frontend, &mut self.live, step).map(|_nothing_closes| ()));
        let subject = subject(config.name);
        match &served {
            Ok(()) => self.health.well(&subject),
            Err(error) => {
                let failed = FunctionLive::Failed(error.to_string());
                self.live.functions.insert(config.name, failed);
                self.health
                    .problem(&subject, HealthCode::Function, error.to_string());
            }
        }
        served
    }

    /// Tries those again whose sockets could not be had.
    pub(super) fn retry_functions(&mut self) {
        let all = self.live.functions.iter();
        let failed: Vec<_> = all
            .filter(|(_, live)| matches!(live, FunctionLive::Failed(_)))
            .filter_map(|(name, _)| self.desired.functions.get(name).cloned())
            .collect();
        for config in failed {
            if self.serve_function(&config).is_ok() {
                self.tell(vec![news(FunctionChange::Created, &config)]);
            }
        }
    }
}

/// What health calls a function.
pub(super) fn subject(name: FunctionName) -> String {
    format!("function {name}")
}

pub(super) fn news(change: FunctionChange, config: &FunctionConfig) -> News {
    let event = v1::FunctionEvent {
        change: change.into(),
        name: config.name.to_string(),
        subsystem_nqn: config.subsystem.to_string(),
        socket: config.socket.display().to_string(),
    };
    let (name, nqn, path) = (config.name, &config.subsystem, config.socket.display());
    let text = match change {
        FunctionChange::Deleted => format!("function {name} of {nqn} was deleted"),
        _ if matches!(config.device, FunctionDevice::Ublk { .. }) => {
            format!("function {name} of {nqn} is {path}")
        }
        _ => format!("function {name} of {nqn} waits for its client at {path}"),
    };
    (Kind::Function(event), text)
}
