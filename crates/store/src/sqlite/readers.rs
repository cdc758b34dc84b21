//! The threads that read: each with a connection of its own that cannot write, beside the writer.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::schema;
use crate::{Error, Result};

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// The pool. Dropping it ends the threads.
pub(super) struct Readers {
    jobs: Option<SyncSender<(Job, OwnedSemaphorePermit)>>,
    room: Arc<Semaphore>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(super) fn start(file: &Path, cache_kib: u32, threads: usize, queue: usize) -> Result<Self> {
        let (sender, jobs) = sync_channel::<(Job, OwnedSemaphorePermit)>(queue);
        let jobs = Arc::new(Mutex::new(jobs));
        let mut pool = Self { jobs: Some(sender), room: Arc::new(Semaphore::new(queue)), threads: Vec::new() };
        for n in 0..threads.max(1) {
            let conn = schema::open_reader(file, cache_kib)?;
            let jobs = Arc::clone(&jobs);
            let thread = thread::Builder::new()
                .name(format!("journal-reader-{n}"))
                .spawn(move || work(conn, &jobs))
                .map_err(|error| Error::Unavailable(error.to_string()))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Runs `op` on one snapshot of the journal, however many statements it has.
    pub(super) async fn run<T, F>(&self, op: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
    {
        let closed = || Error::Unavailable("the readers have stopped".into());
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(|_| closed())?;
        let (reply, outcome) = oneshot::channel();
        let job: Job = Box::new(move |conn| {
            // Nobody waits any more: spare the work.
            if reply.is_closed() {
                return;
            }
            let _ = reply.send(snapshot(conn, op));
        });
        let jobs = self.jobs.as_ref().ok_or_else(closed)?;
        // With a permit in hand the channel has room.
        jobs.try_send((job, room)).map_err(|_| closed())?;
        outcome.await.map_err(|_| closed())?
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        drop(self.jobs.take());
        for thread in self.threads.drain(..) {
            // It has said why it panicked.
            let _ = thread.join();
        }
    }
}

fn snapshot<T>(conn: &mut Connection, op: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
    conn.prepare_cached("BEGIN")?.execute(())?;
    let outcome = op(conn);
    conn.prepare_cached("ROLLBACK")?.execute(())?;
    outcome
}

fn work(mut conn: Connection, jobs: &Mutex<Receiver<(Job, OwnedSemaphorePermit)>>) {
    loop {
        // One thread waits in `recv`, the others for the lock: whoever has the lock gets the next job.
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((job, room)) = next else { return };
        drop(room);
        job(&mut conn);
    }
}
