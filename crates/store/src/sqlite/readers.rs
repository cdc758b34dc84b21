//! The threads that read: each with a connection of its own that cannot write, beside the writer.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rusqlite::Connection;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{Instant, timeout_at},
};

use super::{checkpoint::OpenReads, schema};
use crate::{Error, Result, TenantId, share::Shares};

/// Maximum time for which a tenant's read waits for a reader, as for a connection to PostgreSQL.
pub(super) const WAIT: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// The pool. Dropping it ends the threads.
pub(super) struct Readers {
    jobs: Mutex<Option<SyncSender<(Job, OwnedSemaphorePermit)>>>,
    room: Arc<Semaphore>,
    shares: Shares,
    wait: Duration,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Readers {
    pub(super) fn start(
        file: &Path,
        cache_kib: u32,
        threads: usize,
        queue: usize,
        wait: Duration,
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
        let (jobs, shares) = (Mutex::new(Some(sender)), Shares::new(readers));
        Ok(Self { jobs, room, shares, wait, threads: Mutex::new(pool) })
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
        let (_, outcome) = self.queue(None, op).await?;
        outcome.await.map_err(|_| closed())?
    }

    /// The same within a tenant's share of the readers. What has not begun in time is refused: when that is due to other
    /// reads of the tenant, its callers have the busy server's answer, as on PostgreSQL.
    pub(super) async fn run_for<T, F>(&self, tenant: TenantId, op: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
    {
        let deadline = Instant::now() + self.wait;
        let busy = |what: &str| Error::Unavailable(format!("{what} busy"));
        let share = timeout_at(deadline, self.shares.take(tenant)).await;
        let share = share.map_err(|_| busy("the share of the journal's readers that one tenant may use is"))??;
        let begin = async {
            let (begun, outcome) = self.queue(Some(share), op).await?;
            begun.await.map_err(|_| closed())?;
            Ok::<_, Error>(outcome)
        };
        let outcome = timeout_at(deadline, begin).await.map_err(|_| busy("all readers of the journal are"))??;
        outcome.await.map_err(|_| closed())?
    }

    /// Hands `op` to the threads. The first receiver hears when one begins with it, the second what comes of it. The share
    /// is given back by the thread: it is busy even if nobody waits any more.
    async fn queue<T, F>(
        &self,
        share: Option<OwnedSemaphorePermit>,
        op: F,
    ) -> Result<(oneshot::Receiver<()>, oneshot::Receiver<Result<T>>)>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
    {
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(|_| closed())?;
        let (begin, begun) = oneshot::channel();
        let (reply, outcome) = oneshot::channel();
        let job: Job = Box::new(move |conn| {
            // Nobody waits any more: spare the work.
            if reply.is_closed() {
                return;
            }
            let _ = begin.send(());
            let read = snapshot(conn, op);
            drop(share);
            let _ = reply.send(read);
        });
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(closed)?;
        // With a permit in hand the channel has room.
        jobs.try_send((job, room)).map_err(|_| closed())?;
        Ok((begun, outcome))
    }
}

fn closed() -> Error {
    Error::Unavailable("the readers have stopped".into())
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::{
        super::{Options, checkpoint::OpenReads, schema},
        *,
    };

    const WAIT: Duration = Duration::from_millis(200);

    /// As many readers as a server has, and reads of a tenant that go on until the sender is dropped.
    struct Pool {
        readers: Arc<Readers>,
        _dir: tempfile::TempDir,
    }

    impl Pool {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("journal.db");
            schema::open_writer(&file, 1024).unwrap();
            let readers = Options::default().readers;
            let readers = Readers::start(&file, 1024, readers, 64, WAIT, &Arc::new(OpenReads::default())).unwrap();
            Self { readers: Arc::new(readers), _dir: dir }
        }

        async fn slow_read(&self, tenant: i64) -> mpsc::Sender<()> {
            let (end, ended) = mpsc::channel::<()>();
            let (begin, begun) = oneshot::channel();
            let readers = Arc::clone(&self.readers);
            tokio::spawn(async move {
                let read = move |_: &Connection| {
                    let _ = begin.send(());
                    let _ = ended.recv();
                    Ok(())
                };
                readers.run_for(TenantId(tenant), read).await
            });
            begun.await.unwrap();
            end
        }

        async fn read(&self, tenant: i64) -> Result<()> {
            self.readers.run_for(TenantId(tenant), |_| Ok(())).await
        }
    }

    fn is_refused(read: &Result<()>, why: &str) -> bool {
        matches!(read, Err(Error::Unavailable(what)) if what.contains(why))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn slow_reads_of_a_tenant_stall_neither_its_others_nor_those_of_other_tenants() {
        let pool = Pool::new();
        let _feed = pool.slow_read(1).await;
        let list = pool.slow_read(1).await;
        pool.read(1).await.unwrap();
        pool.read(2).await.unwrap();
        let _third = pool.slow_read(1).await;
        let refused = pool.read(1).await;
        assert!(is_refused(&refused, "share"), "{refused:?}");
        pool.read(2).await.unwrap();
        drop(list);
        pool.read(1).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_read_that_finds_all_readers_busy_is_refused_in_time_and_not_made_later() {
        let pool = Pool::new();
        let mut slow = Vec::new();
        for tenant in [1, 1, 1, 2] {
            slow.push(pool.slow_read(tenant).await);
        }
        let refused = pool.read(3).await;
        assert!(is_refused(&refused, "all readers"), "{refused:?}");
        let ran = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mark = Arc::clone(&ran);
        let late = pool.readers.run_for(TenantId(3), move |_| {
            mark.store(true, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        });
        assert!(is_refused(&late.await, "all readers"));
        drop(slow);
        pool.read(3).await.unwrap();
        assert!(!ran.load(std::sync::atomic::Ordering::Relaxed), "nobody waited for it any more");
    }
}
