//! Faults, and how each is made to happen to instances.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::{Instances, Passage, becomes, write_lock::WriteLock};

/// How long an instance may take to notice that its database is gone, or that it is back.
const NOTICED: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// SIGKILL of the instance, which is started again after this pause.
    Kill { away: Duration },
    /// SIGTERM of the instance, which is started again after this pause.
    Stop { away: Duration },
    /// The instance stands still (SIGSTOP) for so long.
    Freeze(Duration),
    /// SIGKILL of PostgreSQL, which is started again as soon as every instance has said that it is not ready.
    KillDatabase,
    /// PostgreSQL is killed, or told to stop, and started again after `away`. Each instance finds it `apart` later than the
    /// one before.
    DatabaseOutage { is_killed: bool, away: Duration, apart: Duration },
    /// The connections between the instance and its database.
    Network(Passage),
    /// Another process holds SQLite's write lock for so long.
    WriteLock(Duration),
    /// The wall clocks that [`super::Installation::with_adjustable_clock_of`] names are so many milliseconds ahead.
    Clock(i64),
    /// There is no room left on the disk of the journal.
    FullDisk,
    /// There is room again.
    RoomOnDisk,
}

impl Fault {
    /// SIGKILL, and a start at once.
    pub(crate) const KILL: Self = Self::Kill { away: Duration::ZERO };
}

impl Instances {
    /// Makes a fault happen to one instance, or to what all of them need. Returns when what is temporary is over.
    pub(crate) async fn apply(&mut self, fault: &Fault, victim: usize) {
        match *fault {
            Fault::Kill { away } => {
                // Clients that see a broken connection from here on know why.
                self.kills.send_modify(|kills| kills.push(Instant::now()));
                self.servers[victim].kill9();
                self.count_survivors().await;
                tokio::time::sleep(away).await;
                self.restart(victim).await;
            }
            Fault::Stop { away } => {
                assert!(self.servers[victim].ends_well().await, "{}", self.servers[victim].log());
                tokio::time::sleep(away).await;
                self.restart(victim).await;
            }
            Fault::Freeze(duration) => {
                self.servers[victim].signal("STOP");
                tokio::time::sleep(duration).await;
                self.servers[victim].signal("CONT");
            }
            Fault::KillDatabase => {
                self.installation.postgres().kill9();
                self.all_become(503).await;
                self.installation.postgres().start_again();
                self.all_become(200).await;
            }
            Fault::DatabaseOutage { is_killed, away, apart } => {
                let postgres = self.installation.postgres();
                if is_killed {
                    postgres.kill9()
                } else {
                    postgres.stop()
                }
                self.networks.iter().for_each(|network| network.set(Passage::Cut));
                tokio::time::sleep(away).await;
                postgres.start_again();
                for network in &self.networks {
                    network.set(Passage::Open);
                    tokio::time::sleep(apart).await;
                }
                self.all_become(200).await;
            }
            Fault::Network(passage) => self.networks[victim].set(passage),
            Fault::WriteLock(held) => {
                let lock = WriteLock::take(&self.installation.data_dir("a").join(store::sqlite::FILE));
                tokio::time::sleep(held).await;
                lock.release();
            }
            Fault::Clock(ahead) => self.installation.set_clock(ahead),
            Fault::FullDisk => self.disk().fill(),
            Fault::RoomOnDisk => self.disk().make_room(),
        }
    }

    async fn all_become(&self, readiness: u16) {
        join_all(self.servers.iter().map(|server| becomes(server, readiness, NOTICED))).await;
    }
}
