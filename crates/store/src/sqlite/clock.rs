//! The journal's own clock: it goes on steadily, whatever happens to wall time, and it is the same for every process that
//! has the file open.
//!
//! It is the machine's monotonic clock plus an offset that the file keeps. That clock stands still while the machine
//! sleeps, so that leases do not run out in a sleep, and it begins anew when the machine starts: then the offset is chosen anew,
//! so that the journal's clock goes on from wall time or from where it was last seen, whichever is later. A wall
//! clock that is wrong at that moment can make it run ahead, never back.

use std::{fmt, sync::Arc};

use rusqlite::{Connection, OptionalExtension, params};

use crate::{LeaseTime, Result, clock, fault};

/// Counts milliseconds steadily from some moment on, the same moment for every process of the machine.
#[derive(Clone)]
pub struct Ticks {
    read: Arc<dyn Fn() -> i64 + Send + Sync>,
    is_machine: bool,
}

impl Ticks {
    /// Another clock than the machine's: for tests that make their own time. The store does nothing by itself then: other processes'
    /// commits are heard of by the next call that writes.
    pub fn new(ticks: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self { read: Arc::new(ticks), is_machine: false }
    }

    fn now(&self) -> i64 {
        (self.read)()
    }
}

impl Default for Ticks {
    fn default() -> Self {
        Self { read: Arc::new(machine_ticks), is_machine: true }
    }
}

impl fmt::Debug for Ticks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticks")
    }
}

/// The journal's clock.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    ticks: Ticks,
    offset: i64,
}

impl Clock {
    /// The clock of this file. The caller holds the write lock.
    pub(super) fn of(conn: &Connection, ticks: Ticks) -> Result<Self> {
        Self::at_start(conn, ticks, &boot_id(), clock::now().as_millis())
    }

    fn at_start(conn: &Connection, ticks: Ticks, boot: &str, wall: i64) -> Result<Self> {
        let known: Option<(String, i64, i64)> = conn
            .query_row("SELECT boot, offset, seen FROM lease_clock", (), |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()?;
        let now = ticks.now();
        if let Some((known_boot, offset, seen)) = &known
            && known_boot == boot
            && offset + now >= *seen
        {
            return Ok(Self { ticks, offset: *offset });
        }
        let begin = known.map_or(wall, |(_, _, seen)| wall.max(seen));
        let clock = Self { ticks, offset: begin - now };
        conn.execute(
            "INSERT OR REPLACE INTO lease_clock (one, boot, offset, seen) VALUES (1, ?1, ?2, ?3)",
            params![boot, clock.offset, begin],
        )?;
        Ok(clock)
    }

    /// Whether time goes on by itself.
    pub(super) fn is_machine(&self) -> bool {
        self.ticks.is_machine
    }

    pub(super) fn now(&self) -> LeaseTime {
        if fault::is_on("wall-leases") {
            return LeaseTime(clock::now().as_millis());
        }
        LeaseTime(self.offset + self.ticks.now())
    }

    /// Keeps how far it has come, for the next start of the machine.
    pub(super) fn save(conn: &Connection, now: LeaseTime) -> Result<()> {
        conn.prepare_cached("UPDATE lease_clock SET seen = ?1 WHERE seen < ?1")?.execute([now.0])?;
        Ok(())
    }
}

/// Where the journal's clock stands, for readers. There is one as soon as a writer has opened the file.
pub(super) fn read(conn: &Connection, ticks: &Ticks) -> Result<LeaseTime> {
    let offset: i64 = conn.prepare_cached("SELECT offset FROM lease_clock")?.query_row((), |row| row.get(0))?;
    Ok(LeaseTime(offset + ticks.now()))
}

#[cfg(unix)]
fn machine_ticks() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

#[cfg(not(unix))]
fn machine_ticks() -> i64 {
    static START: std::sync::OnceLock<(std::time::Instant, i64)> = std::sync::OnceLock::new();
    let (start, wall) = START.get_or_init(|| (std::time::Instant::now(), clock::now().as_millis()));
    wall + i64::try_from(start.elapsed().as_millis()).unwrap_or(i64::MAX)
}

/// What differs from one start of the machine to the next, where the system tells. Without it only a clock that
/// went back shows that there was one.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

    use super::*;
    use crate::sqlite::schema;

    fn file() -> (tempfile::TempDir, Connection) {
        let dir = tempfile::tempdir().unwrap();
        let conn = schema::open_writer(&dir.path().join("clock.db"), 1024).unwrap();
        (dir, conn)
    }

    #[test]
    fn every_process_reads_the_same_and_wall_time_does_not_matter() {
        let (_dir, conn) = file();
        let tick = Arc::new(AtomicI64::new(50));
        let ticks = {
            let tick = Arc::clone(&tick);
            Ticks::new(move || tick.load(Relaxed))
        };
        let first = Clock::at_start(&conn, ticks.clone(), "boot", 1_000_000).unwrap();
        tick.store(60, Relaxed);
        // An hour ahead, and an hour behind.
        for wall in [4_600_000, -2_600_000] {
            let other = Clock::at_start(&conn, ticks.clone(), "boot", wall).unwrap();
            assert_eq!((first.now(), other.now()), (LeaseTime(1_000_010), LeaseTime(1_000_010)));
        }
        assert_eq!(read(&conn, &ticks).unwrap(), LeaseTime(1_000_010));
    }

    #[test]
    fn it_never_goes_back_when_the_machine_starts_anew() {
        let (_dir, conn) = file();
        let clock = Clock::at_start(&conn, Ticks::new(|| 500), "one", 1_000_000).unwrap();
        Clock::save(&conn, clock.now().after(std::time::Duration::from_secs(60))).unwrap();
        // The wall clock was set back meanwhile.
        let behind = Clock::at_start(&conn, Ticks::new(|| 3), "two", 900_000).unwrap();
        assert_eq!(behind.now(), LeaseTime(1_060_000));
        // A system that does not tell its starts: the clock would have gone back.
        let silent = Clock::at_start(&conn, Ticks::new(|| 1), "two", 2_000_000).unwrap();
        assert_eq!(silent.now(), LeaseTime(2_000_000));
    }
}
