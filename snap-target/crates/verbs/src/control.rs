//! A thread for the control path: calls that make, register and destroy, which take from tens of microseconds to milliseconds each, and longer on some devices. A reactor
//! hands them over and goes on.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// See the module. Started with its first job; the last handle that goes waits for the jobs that are left. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ControlThread {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    started: Mutex<Option<Started>>,
}

struct Started {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlThread").finish_non_exhaustive()
    }
}

impl ControlThread {
    /// Runs a job there, after those before it. Where the system has no thread to give it runs here.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut started = self.inner.lock();
        if started.is_none() {
            *started = start().ok();
        }
        let job: Job = Box::new(job);
        let refused = match &*started {
            Some(thread) => thread.jobs.send(job).map_err(|refused| refused.0).err(),
            None => Some(job),
        };
        drop(started);
        if let Some(job) = refused {
            job();
        }
    }

    /// Waits until the jobs so far have run.
    pub fn wait(&self) {
        let (ran, has_run) = channel();
        // The sender goes with the job.
        self.run(move || drop(ran));
        let _has_run: Result<(), _> = has_run.recv();
    }
}

/// What takes long to take apart.
pub trait TakenApart: Send + 'static {
    /// What cannot wait for the thread: a device that touches memory of others, which goes back to them.
    fn stop(&mut self);
}

/// A value that is stopped where it is dropped, and taken apart on a [`ControlThread`].
#[derive(Debug)]
pub struct Elsewhere<T: TakenApart> {
    value: ManuallyDrop<T>,
    control: ControlThread,
}

impl<T: TakenApart> Elsewhere<T> {
    /// Puts it there.
    #[must_use]
    pub fn new(value: T, control: &ControlThread) -> Self {
        Self {
            value: ManuallyDrop::new(value),
            control: control.clone(),
        }
    }
}

impl<T: TakenApart> Deref for Elsewhere<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: TakenApart> DerefMut for Elsewhere<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: TakenApart> Drop for Elsewhere<T> {
    fn drop(&mut self) {
        self.value.stop();
        // SAFETY: taken once, here, and not looked at again.
        let value = unsafe { ManuallyDrop::take(&mut self.value) };
        self.control.run(move || drop(value));
    }
}

fn start() -> std::io::Result<Started> {
    let (jobs, queue): (_, Receiver<Job>) = channel();
    let thread = std::thread::Builder::new()
        .name("verbs-control".to_owned())
        .spawn(move || queue.into_iter().for_each(|job| job()))?;
    Ok(Started { jobs, thread })
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Started>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(Started { jobs, thread }) = self.lock().take() else {
            return;
        };
        drop(jobs);
        // A job may have had the last handle.
        if thread.thread().id() != std::thread::current().id() {
            // One that panicked has said so.
            let _panicked = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ControlThread;
    use std::sync::mpsc;

    #[test]
    fn jobs_run_in_order_elsewhere_and_the_last_handle_waits_for_them() {
        let (sender, ran) = mpsc::channel();
        let control = ControlThread::default();
        for nth in 0..100 {
            let sender = sender.clone();
            let job = move || sender.send((nth, std::thread::current().id())).unwrap();
            control.clone().run(job);
        }
        drop((control, sender));
        let ran: Vec<_> = ran.try_iter().collect();
        assert!(ran.iter().map(|(nth, _)| *nth).eq(0..100));
        let here = std::thread::current().id();
        assert!(
            ran.iter()
                .all(|(_, thread)| *thread == ran[0].1 && *thread != here)
        );
    }

    #[test]
    fn a_job_may_have_the_last_handle() {
        let (sender, ended) = mpsc::channel();
        let control = ControlThread::default();
        let last = control.clone();
        control.run(move || {
            drop(last);
            sender.send(()).unwrap();
        });
        drop(control);
        assert_eq!(ended.recv(), Ok(()));
    }
}
