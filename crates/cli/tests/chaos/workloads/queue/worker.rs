//! A worker: it asks for work for as long as it lives, and does it well, badly, twice, too late or not at all.

use std::{sync::Arc, time::Duration};

use a2a::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    Answer,
    http::{array, text},
    notes::{Hold, Outcome, Verb, Write},
    now,
    queue_client::{AGENT, LEASE, QueueClient},
    random::Random,
};

/// How long it waits for work, in seconds.
const WAIT: f64 = 2.0;

/// The time between two heartbeats.
const BEAT: Duration = Duration::from_millis(300);

/// The clock of an event is read before or after that of its lease, up to half a second on a busy machine. That an entry is
/// never given away while somebody has it is judged by its log, too, and exactly.
const SLACK: i64 = 500;

pub(crate) struct Worker {
    pub(crate) queue: Arc<QueueClient>,
    pub(crate) name: String,
    pub(crate) random: Random,
}

/// An entry that the worker was handed.
struct Job {
    /// Its index in the notes.
    hold: usize,
    id: String,
    ticket: String,
    attempt: u32,
    /// The attempts that counted by then, this one included: one that was given back does not count.
    tries: u32,
    number: u64,
    is_poisonous: bool,
}

/// What becomes of a worker after an entry.
#[derive(PartialEq, Eq)]
enum Fate {
    Lives,
    Dies,
}

impl Worker {
    /// Works until it is told to stop, or dies at an entry.
    pub(crate) async fn work(mut self, stopped: watch::Receiver<bool>) {
        while !*stopped.borrow() {
            for job in self.consume().await {
                if self.handle(&job).await == Fate::Dies {
                    return;
                }
            }
        }
    }

    async fn consume(&mut self) -> Vec<Job> {
        let max = if self.random.below(6) == 0 { 3 } else { 1 };
        let wish = json!({"max": max, "lease": LEASE.as_secs_f64(), "wait": WAIT, "worker": self.name});
        let path = format!("/v1/queue/{AGENT}/consume");
        let request = self.queue.client.request(&mut self.random, &Method::POST, &path, Some(&wish));
        let asking = self.queue.client.send(request);
        let hangs_up = !self.queue.is_kind() && self.random.below(12) == 0;
        let answer = if hangs_up {
            // Work that is there comes at once, other work later: both are to be missed at times.
            let patience = if self.random.below(2) == 0 { 20 } else { 1000 };
            let patience = Duration::from_millis(self.random.below(patience));
            match tokio::time::timeout(patience, asking).await {
                Ok(answer) => answer,
                Err(_) => {
                    self.queue.notes().hung_up += 1;
                    return Vec::new();
                }
            }
        } else {
            asking.await
        };
        let got = now();
        match answer {
            Answer::Status(200, body) => {
                array(&body, "/messages").iter().map(|handed| self.take(handed, got)).collect()
            }
            Answer::Status(status, body) => {
                self.queue.note_unexpected(format!("consume: {status} {body}"));
                Vec::new()
            }
            Answer::Unexpected(what) => {
                self.queue.note_unexpected(format!("consume: {what}"));
                Vec::new()
            }
            Answer::Nothing { .. } => {
                tokio::time::sleep(Duration::from_millis(30 + self.random.below(100))).await;
                Vec::new()
            }
        }
    }

    /// Notes an entry that was handed out.
    fn take(&self, handed: &Value, got: i64) -> Job {
        let id = text(handed, "/id").to_owned();
        let (attempt, tries) = (number(handed, "attempt"), number(handed, "attempts"));
        let sure_until = sure_until(handed, &self.name);
        let worker = self.name.clone();
        let mut notes = self.queue.notes();
        notes.holds.push(Hold { entry: id.clone(), worker, attempt, got, sure_until, writes: Vec::new() });
        Job {
            hold: notes.holds.len() - 1,
            id,
            ticket: text(handed, "/lease").to_owned(),
            attempt,
            tries,
            number: handed["payload"]["number"].as_u64().unwrap_or(u64::MAX),
            is_poisonous: handed["payload"]["isPoisonous"] == true,
        }
    }

    async fn handle(&mut self, job: &Job) -> Fate {
        self.rest(15).await;
        if self.queue.is_kind() {
            self.ack(job, false).await;
            return Fate::Lives;
        }
        if !job.is_poisonous && self.random.below(100) < self.queue.sleepers {
            self.sleep_through(job).await;
            return Fate::Lives;
        }
        match (job.is_poisonous, self.random.below(100)) {
            (true, 0..45) => self.nack(job).await,
            (true, 45..90) => return Fate::Dies,
            (_, 90..93) => self.write(job, Verb::Release, "", false).await,
            (true, _) => self.nack(job).await,
            (false, 0..3) => return Fate::Dies,
            (false, 3..6) => self.nack(job).await,
            (false, 6..9) => self.take_long(job).await,
            (false, 9..13) => {
                self.ack(job, false).await;
                self.ack(job, false).await
            }
            (false, _) => self.ack(job, false).await,
        };
        Fate::Lives
    }

    async fn rest(&mut self, most: u64) {
        tokio::time::sleep(Duration::from_millis(self.random.below(most))).await;
    }

    /// Sleeps for longer than its lease lasts, looks who has the entry, and acknowledges it in any case.
    async fn sleep_through(&mut self, job: &Job) -> Outcome {
        tokio::time::sleep(LEASE).await;
        self.rest(1500).await;
        let entry = self.queue.client.get(&mut self.random, &format!("/v1/queue/messages/{}", job.id)).await;
        self.ack(job, !is_held_by(&entry, &self.name, job.tries)).await
    }

    /// Works for longer than its lease lasts, with heartbeats.
    async fn take_long(&mut self, job: &Job) -> Outcome {
        for _ in 0..5 + self.random.below(3) {
            tokio::time::sleep(BEAT).await;
            if self.write(job, Verb::Heartbeat, "", false).await == Outcome::Refused {
                return Outcome::Refused;
            }
        }
        self.ack(job, false).await
    }

    async fn ack(&mut self, job: &Job, knew: bool) -> Outcome {
        let result = json!({"number": job.number, "worker": self.name, "attempt": job.attempt});
        self.write(job, Verb::Ack, &result.to_string(), knew).await
    }

    async fn nack(&mut self, job: &Job) -> Outcome {
        let error = format!("{} cannot do {} at attempt {}", self.name, job.number, job.attempt);
        self.write(job, Verb::Nack, &error, false).await
    }

    async fn write(&mut self, job: &Job, verb: Verb, says: &str, knew: bool) -> Outcome {
        let write = Write::new(verb, says, knew);
        self.queue.write(&mut self.random, job.hold, &job.ticket, verb, write).await
    }
}

fn number(of: &Value, name: &str) -> u32 {
    u32::try_from(of[name].as_u64().unwrap_or_default()).unwrap_or_default()
}

/// Until when the lease of an entry that was handed to `worker` lasts at least. Nothing is known of that if the entry moved on
/// before it was shown.
fn sure_until(handed: &Value, worker: &str) -> i64 {
    let since: Option<Timestamp> = serde_json::from_value(handed["statusAt"].clone()).ok();
    let since = since.filter(|_| handed["claimedBy"] == worker).map_or(0, Timestamp::as_millis);
    since + i64::try_from(LEASE.as_millis()).unwrap_or_default() - SLACK
}

/// Whether an entry is shown as held by `worker`, at the attempt that was the `tries`th to count when the worker got it.
fn is_held_by(entry: &Value, worker: &str, tries: u32) -> bool {
    entry["claimedBy"] == worker && number(entry, "attempts") == tries
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry that was given back once, in the hands of `w1`.
    fn handed() -> Value {
        json!({"id": "e", "attempt": 2, "attempts": 1, "claimedBy": "w1", "statusAt": "2026-01-02T03:04:05.000Z"})
    }

    #[test]
    fn the_end_of_a_lease_is_known_after_a_release() {
        let since = "2026-01-02T03:04:05Z".parse::<Timestamp>().unwrap().as_millis();
        let lasts = i64::try_from(LEASE.as_millis()).unwrap();
        assert_eq!(sure_until(&handed(), "w1"), since + lasts - SLACK);
        assert_eq!(sure_until(&handed(), "w2"), lasts - SLACK, "somebody else has it already");
    }

    #[test]
    fn a_worker_knows_an_entry_that_is_its_own_from_one_that_is_not() {
        assert!(is_held_by(&handed(), "w1", 1));
        assert!(!is_held_by(&handed(), "w2", 1), "another worker has it");
        let mut again = handed();
        again["attempts"] = json!(2);
        assert!(!is_held_by(&again, "w1", 1), "its lease ran out, and it has another one");
        let waiting = json!({"id": "e", "attempts": 1});
        assert!(!is_held_by(&waiting, "w1", 1));
    }
}
