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

use super::{checkpoint::OpenReads, schema};
use crate::{Error, Result, TenantId, share::Shares};

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// The pool. Dropping it ends the threads.
pub(super) struct Readers {
    jobs: Mutex<Option<SyncSender<(Job, OwnedSemaphorePermit)>>>,
    room: Arc<Semaphore>,
    shares: Shares,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Readers {
    pub(super) fn start(
        file: &Path,
        cache_kib: u32,
        threads: usize,
        queue: usize,
        reads: &Arc<OpenReads>,
    ) -> Result<Self> {
        let (sender, jobs) = sync_channel::<(Job, OwnedSemaphorePermit)>(queue);
        let jobs = Arc::new(Mutex::new(jobs));
        let mut pool = Vec::new();
        let readers = threads.max(1);
        for n in 0..readers {
            let conn = schema::open_reader(file, cache_kib)?;
            let (jobs, reads) = (Arc::clone(&jobs), Arc::clone(reads));
            let thread = thread::Builder::new()
                .name(format!("journal-reader-{n}"))
                .spawn(move || work(conn, &jobs, &reads))
                .map_err(|error| Error::Unavailable(error.to_string()))?;
            pool.push(thread);
        }
        let room = Arc::new(Semaphore::new(queue));
        Ok(Self { jobs: Mutex::new(Some(sender)), room, shares: Shares::new(readers), threads: Mutex::new(pool) })
    }

    /// Takes no more, and closes the file when what waits is done.
    pub(super) async fn close(&self) {
        self.room.close();
        let threads = self.end();
        // They are waited for where that disturbs nobody.
        let _ = tokio::task::spawn_blocking(move || join(threads)).await;
    }

    /// Tells the threads to end after what waits.
    fn end(&self) -> Vec<JoinHandle<()>> {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs `op` on one snapshot of the journal, however many statements it has.
    pub(super) async fn run<T, F>(&self, op: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
    {
        self.run_with(None, op).await
    }

    /// The same within a tenant's share of the readers.
    pub(super) async fn run_for<T, F>(&self, tenant: TenantId, op: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
    {
        let share = self.shares.take(tenant).await?;
        self.run_with(Some(share), op).await
    }

    /// The share is given back by the thread: it is busy even if nobody waits any more.
    async fn run_with<T, F>(&self, share: Option<OwnedSemaphorePermit>, op: F) -> Result<T>
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
            let read = snapshot(conn, op);
            drop(share);
            let _ = reply.send(read);
        });
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(closed)?;
        // With a permit in hand the channel has room.
        jobs.try_send((job, room)).map_err(|_| closed())?;
        outcome.await.map_err(|_| closed())?
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        join(self.end());
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        // It has said why it panicked.
        let _ = thread.join();
    }
}

fn snapshot<T>(conn: &mut Connection, op: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
    conn.prepare_cached("BEGIN")?.execute(())?;
    let outcome = op(conn);
    conn.prepare_cached("ROLLBACK")?.execute(())?;
    outcome
}

fn work(mut conn: Connection, jobs: &Mutex<Receiver<(Job, OwnedSemaphorePermit)>>, reads: &OpenReads) {
    loop {
        // One thread waits in `recv`, the others for the lock: whoever has the lock gets the next job.
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((job, room)) = next else { return };
        drop(room);
        reads.begun();
        job(&mut conn);
        reads.ended();
    }
}
