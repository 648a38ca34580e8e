//! Threads for work that is too long for a reactor's turn: a bounded queue of jobs, and threads that sleep when it is empty.
//!
//! A worker does not know reactors: a job carries what it needs to answer, such as a [`Sender`](crate::Sender). Handing over a job takes no
//! lock, and a system call only when a worker has to be woken.

use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{JoinHandle, Thread};

use crossbeam_queue::ArrayQueue;

use crate::Full;

/// Threads that carry out jobs. Dropped: the jobs that were taken are finished, and the threads joined.
#[derive(Debug)]
pub struct Workers<J> {
    shared: Arc<Shared<J>>,
    threads: Vec<JoinHandle<()>>,
}

/// Hands jobs to the workers from any thread; cheap to clone. After the workers are gone it takes jobs until it is full, and nobody does them.
#[derive(Debug)]
pub struct WorkerQueue<J> {
    shared: Arc<Shared<J>>,
}

#[derive(Debug)]
struct Shared<J> {
    jobs: ArrayQueue<J>,
    workers: Box<[Worker]>,
    stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct Worker {
    /// Set by the worker before it looks for a job the last time; taken by whoever wakes it.
    sleeping: AtomicBool,
    thread: OnceLock<Thread>,
}

impl<J: Send + 'static> Workers<J> {
    /// Starts `count` threads with a queue of `capacity` jobs. `runner` makes what each of them does with a job: it keeps the thread's
    /// work memory, and must not panic.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start<R>(
        count: usize,
        capacity: usize,
        name: &str,
        mut runner: impl FnMut() -> R,
    ) -> io::Result<Self>
    where
        R: FnMut(J) + Send + 'static,
    {
        let shared = Arc::new(Shared {
            jobs: ArrayQueue::new(capacity.max(1)),
            workers: (0..count).map(|_| Worker::default()).collect(),
            stopping: AtomicBool::new(false),
        });
        let mut workers = Self {
            shared: shared.clone(),
            threads: Vec::with_capacity(count),
        };
        for index in 0..count {
            let (shared, run) = (shared.clone(), runner());
            let thread = std::thread::Builder::new()
                .name(format!("{name}-{index}"))
                .spawn(move || shared.work(index, run))?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Where jobs are handed over.
    #[must_use]
    pub fn queue(&self) -> WorkerQueue<J> {
        WorkerQueue {
            shared: self.shared.clone(),
        }
    }
}

impl<J> Drop for Workers<J> {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
    }
}

impl<J> Clone for WorkerQueue<J> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<J: Send> WorkerQueue<J> {
    /// Threads that take jobs from it.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.workers.len()
    }

    /// Hands a job over, and wakes a worker if one sleeps. Never blocks.
    ///
    /// # Errors
    /// [`Full`], with the job.
    pub fn push(&self, job: J) -> Result<(), Full<J>> {
        self.shared.jobs.push(job).map_err(Full)?;
        // As in `wake`: the job is there before we look for sleepers, and a worker says that it sleeps before it looks for a job.
        fence(Ordering::SeqCst);
        self.shared.wake_one();
        Ok(())
    }
}

impl<J> Shared<J> {
    fn wake_one(&self) {
        for worker in &self.workers {
            if worker.sleeping.load(Ordering::Relaxed)
                && worker.sleeping.swap(false, Ordering::SeqCst)
            {
                if let Some(thread) = worker.thread.get() {
                    thread.unpark();
                }
                return;
            }
        }
    }

    fn work(&self, index: usize, mut run: impl FnMut(J)) {
        let Some(worker) = self.workers.get(index) else {
            return;
        };
        // A thread says who it is once.
        let _first = worker.thread.set(std::thread::current());
        loop {
            while let Some(job) = self.jobs.pop() {
                run(job);
            }
            worker.sleeping.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if self.jobs.is_empty() {
                if self.stopping.load(Ordering::SeqCst) {
                    return;
                }
                std::thread::park();
            }
            worker.sleeping.store(false, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn every_job_is_done_once_and_the_jobs_taken_are_finished_at_the_end() {
        let done: Arc<Vec<AtomicUsize>> =
            Arc::new((0..1000).map(|_| AtomicUsize::new(0)).collect());
        let workers = Workers::start(3, 8, "test", || {
            let done = done.clone();
            move |job: usize| {
                done[job].fetch_add(1, Ordering::Relaxed);
            }
        })
        .unwrap();
        let queue = workers.queue();
        for mut job in 0..1000 {
            while let Err(Full(back)) = queue.push(job) {
                job = back;
                std::thread::yield_now();
            }
        }
        drop(workers);
        assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn a_full_queue_gives_the_job_back() {
        let (started, first) = mpsc::channel();
        let gate = Arc::new(Barrier::new(2));
        let workers = Workers::start(1, 2, "test", || {
            let (started, gate) = (started.clone(), gate.clone());
            move |_job: u32| {
                started.send(()).unwrap();
                gate.wait();
            }
        })
        .unwrap();
        let queue = workers.queue();
        queue.push(0).unwrap();
        first.recv().unwrap();
        queue.push(1).unwrap();
        queue.push(2).unwrap();
        assert_eq!(queue.push(3), Err(Full(3)));
        for _ in 0..3 {
            gate.wait();
        }
    }

    #[test]
    fn a_sleeping_worker_is_woken_by_each_job() {
        let (sender, answers) = mpsc::channel();
        let workers = Workers::start(2, 4, "test", || {
            let sender = sender.clone();
            move |job: u32| sender.send(job + 1).unwrap()
        })
        .unwrap();
        let queue = workers.queue();
        for job in 0..2000 {
            // Nothing else is under way: both sleep or are about to.
            queue.push(job).unwrap();
            assert_eq!(answers.recv(), Ok(job + 1));
        }
    }
}
