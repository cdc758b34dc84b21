//! Telling what is owed: claims configurations that are due and posts, one after the other for each, what their logs say.
//!
//! **In order, at least once.** A notification is settled before the next one is sent. What was sent and not settled is sent again, with the
//! same id. Nothing is begun that might end after the lease (see [`store::push`]), so no two instances tell one configuration at the same time, as long
//! as none of them stands still in the middle of an attempt.
//!
//! **Nobody waits for a receiver.** Attempts are tasks of their own, bounded by number for each tenant and each receiver of it; a
//! configuration that had many to tell gives way after [`BURST`].

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use store::{
    Attempt, Event, Letter, MOST_LETTERS, Next, Place, PushClaim, PushLease, PushRecord, PushState, Settlement,
    TenantId, Term, clock, fault,
};
use tokio::{sync::Notify, time::Instant};

use super::{
    Answer, Parcel, Push,
    keys::{KeyError, Of},
    notice::{Notice, Teller},
    signing::Signing,
};
use crate::{Inner, convert};

/// How often due configurations are looked for when nobody says that there are some.
const POLL: Duration = Duration::from_secs(2);

/// How much longer than an attempt a lease lasts.
const MARGIN: Duration = Duration::from_secs(5);

/// How many notifications a configuration tells before others have their turn.
const BURST: usize = 32;

/// How long a claim that has found nothing waits before it goes on with the round.
const PACE: Duration = Duration::from_millis(10);

/// How many events of a log are read at once, as long as they are small.
const PAGE: usize = 64;

/// About how many bytes that may be. Whoever is told waits, and what was read for it with it.
const PAGE_BYTES: usize = 1 << 20;

/// Whom this instance is telling now.
#[derive(Default)]
struct Busy {
    with: Mutex<Vec<(TenantId, String)>>,
    /// Who has not answered the last time: it has to leave places to those that do.
    silent: Mutex<HashSet<(TenantId, String)>>,
    freed: Notify,
}

/// So many silent receivers are remembered.
const MOST_SILENT: usize = 10_000;

/// What an attempt came to.
enum Outcome {
    Told,
    /// It is worth another attempt, not before that.
    Again(Option<Duration>),
    /// It is not.
    Refused,
    /// The receiver is gone.
    Gone,
}

/// Why telling ends for now.
enum Stop {
    /// Somebody else has it, or it was changed.
    Lost,
    Store(store::Error),
}

/// Starts telling, if notifications are sent here.
pub(crate) fn start(inner: &Arc<Inner>) {
    if inner.push.is_some() {
        inner.workers.loops.spawn(look_for_what_is_owed(Arc::clone(inner)));
    }
}

async fn look_for_what_is_owed(inner: Arc<Inner>) {
    let Some(push) = &inner.push else { return };
    let busy = Arc::new(Busy::default());
    let mut owed = inner.store.hub().owed();
    let mut after = None;
    loop {
        let wait = claim(&inner, push, &busy, &mut after).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "notifications that are due cannot be claimed");
            POLL
        });
        tokio::select! {
            biased;
            () = inner.draining.cancelled() => return,
            _ = owed.changed() => {}
            () = busy.freed.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Claims all that is due and that there is room for; says how long it is until something may be.
async fn claim(
    inner: &Arc<Inner>,
    push: &Push,
    busy: &Arc<Busy>,
    after: &mut Option<(TenantId, String)>,
) -> store::Result<Duration> {
    let options = &push.options;
    loop {
        // A look first: it costs no write.
        let (now, next) = inner.store.next_push().await?;
        match next {
            Some(next) if next <= now => {}
            Some(next) => return Ok(next.since(now).min(POLL)),
            None => return Ok(POLL),
        }
        let with = busy.lock().clone();
        let slots = options.slots.saturating_sub(with.len());
        if slots == 0 || inner.draining.is_cancelled() {
            return Ok(POLL);
        }
        let term = Term { holder: inner.holder.clone(), lasts: options.timeout + MARGIN };
        let until = Instant::now() + term.lasts;
        let claim = PushClaim {
            term,
            slots,
            per_tenant: options.per_tenant,
            per_receiver: options.per_receiver,
            busy: with,
            silent: busy.silent().iter().cloned().collect(),
            after: after.clone(),
        };
        let claimed = inner.store.claim_pushes(claim).await?;
        *after = claimed.after;
        if claimed.leases.is_empty() {
            // What is due has to wait for those that are being told, or is further on in the round.
            return Ok(if claimed.is_round { POLL } else { PACE });
        }
        for lease in claimed.leases {
            let whom = (lease.config.tenant, lease.config.config.receiver.clone());
            busy.lock().push(whom.clone());
            let (inner, busy) = (Arc::clone(inner), Arc::clone(busy));
            let done = Done { busy, whom };
            inner.tracker.clone().spawn(async move {
                tell(&inner, lease, until, &done).await;
            });
        }
    }
}

/// Makes room again, however telling ends.
struct Done {
    busy: Arc<Busy>,
    whom: (TenantId, String),
}

impl Drop for Done {
    fn drop(&mut self) {
        let mut with = self.busy.lock();
        if let Some(place) = with.iter().position(|whom| *whom == self.whom) {
            with.swap_remove(place);
        }
        drop(with);
        self.busy.freed.notify_one();
    }
}

impl Busy {
    fn lock(&self) -> MutexGuard<'_, Vec<(TenantId, String)>> {
        self.with.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn silent(&self) -> MutexGuard<'_, HashSet<(TenantId, String)>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Done {
    /// Notes whether the receiver answers.
    fn answered(&self, answered: bool) {
        let mut silent = self.busy.silent();
        if answered {
            silent.remove(&self.whom);
        } else if silent.len() < MOST_SILENT {
            silent.insert(self.whom.clone());
        }
    }
}

/// Tells one configuration what it is owed.
async fn tell(inner: &Inner, lease: PushLease, until: Instant, done: &Done) {
    let Some(push) = &inner.push else { return };
    let (task, id) = (lease.config.task, lease.config.config.id.clone());
    let mut telling = Telling::new(inner, push, lease, until, done);
    match telling.run().await {
        Ok(()) | Err(Stop::Lost) => {}
        Err(Stop::Store(error)) => {
            tracing::warn!(task.id = %task, push.id = %id, %error, "telling was cut short, and goes on when the lease is over");
        }
    }
}

/// A configuration while it is told.
struct Telling<'a> {
    inner: &'a Inner,
    push: &'a Push,
    done: &'a Done,
    lease: PushLease,
    until: Instant,
    told: Place,
    attempt: u32,
    record: PushRecord,
    /// How many notifications were sent under this lease.
    sent: usize,
    /// What the last attempt came to, for the log.
    why: String,
    /// How many events are read next.
    page: usize,
}

impl<'a> Telling<'a> {
    fn new(inner: &'a Inner, push: &'a Push, lease: PushLease, until: Instant, done: &'a Done) -> Self {
        let (told, attempt, record) = (lease.config.told, lease.config.attempt, lease.config.record.clone());
        Self { inner, push, done, lease, until, told, attempt, record, sent: 0, why: String::new(), page: 2 }
    }

    async fn run(&mut self) -> Result<(), Stop> {
        // Letters that somebody wants again come first: they are older.
        while let Some(letter) = self.record.letters.iter().position(|letter| letter.replay) {
            if self.gives_way() {
                return self.settle(PushState::Active, Next::After(Duration::ZERO)).await;
            }
            if !self.resend(letter).await? {
                return Ok(());
            }
        }
        let mut teller = Teller::new(&self.lease.config, self.told);
        let mut read = teller.reads_after();
        loop {
            let events = self.events(read).await?;
            if events.is_empty() {
                break;
            }
            // Each goes when it was told: some are large, and a receiver takes its time.
            for event in events {
                read = event.seq;
                let notices = match teller.add(&event) {
                    Ok(notices) => notices,
                    Err(error) => {
                        self.skip(event.seq, &error).await?;
                        continue;
                    }
                };
                for notice in notices {
                    if self.gives_way() {
                        return self.settle(PushState::Active, Next::After(Duration::ZERO)).await;
                    }
                    if !self.send(&notice).await? {
                        return Ok(());
                    }
                }
            }
        }
        self.told = Place { seq: read.max(self.told.seq), part: 0 };
        self.settle(PushState::Active, Next::Idle).await
    }

    /// Whether others have their turn before the next notification.
    fn gives_way(&self) -> bool {
        self.sent >= BURST || self.inner.draining.is_cancelled()
    }

    /// What cannot be read cannot be told, and keeps nothing behind it from being told: it is a dead letter.
    async fn skip(&mut self, seq: u64, error: &store::Error) -> Result<(), Stop> {
        let (task, id) = (self.lease.config.task, &self.lease.config.config.id);
        tracing::error!(task.id = %task, push.id = %id, seq, %error, "an event cannot be told");
        if seq <= self.told.seq {
            return Ok(());
        }
        self.told = Place { seq, part: 0 };
        if self.record.letters.len() < MOST_LETTERS {
            let outcome = "unreadable".to_owned();
            self.record.letters.push(Letter {
                place: self.told,
                at: clock::now().as_millis(),
                attempts: 0,
                outcome,
                replay: false,
            });
        }
        self.settle(PushState::Active, Next::Keep).await
    }

    /// The next events of the log. A long log takes its time, which the lease has to have.
    async fn events(&mut self, after: u64) -> Result<Vec<Event>, Stop> {
        self.keep_lease().await?;
        let (tenant, task) = (self.lease.config.tenant, self.lease.config.task);
        let events = match self.inner.store.events(tenant, task, after, self.page).await {
            // Of a log that is gone nothing can be told. It goes only when nothing is owed: whoever asks now had a receiver that was gone.
            Err(store::Error::Pruned) => Vec::new(),
            // The task was deleted, and its configuration with it.
            Err(store::Error::NotFound) => return Err(Stop::Lost),
            events => events.map_err(Stop::Store)?,
        };
        let bytes: usize = events.iter().map(|event| event.body.len()).sum();
        self.page = if bytes > PAGE_BYTES { 1 } else { (self.page * 2).min(PAGE) };
        Ok(events)
    }

    /// Makes sure that an attempt that begins now ends within the lease.
    async fn keep_lease(&mut self) -> Result<(), Stop> {
        if Instant::now() + self.push.options.timeout > self.until {
            self.settle(PushState::Active, Next::Keep).await?;
        }
        Ok(())
    }

    /// Sends the next of what is owed. Says whether to go on.
    async fn send(&mut self, notice: &Notice) -> Result<bool, Stop> {
        if fault::is_on("push-settles-first") {
            let told = std::mem::replace(&mut self.told, notice.then);
            self.settle(PushState::Active, Next::Keep).await?;
            self.told = told;
        }
        match self.attempt(notice).await? {
            Outcome::Told => {}
            Outcome::Again(_) if fault::is_on("push-forgets") => {}
            Outcome::Gone => {
                self.warn(notice, "a receiver of notifications is gone");
                return self.rest(PushState::Gone).await;
            }
            Outcome::Again(wait) if self.attempt < self.push.options.attempts => {
                self.settle(PushState::Active, Next::After(self.wait(wait))).await?;
                return Ok(false);
            }
            Outcome::Again(_) | Outcome::Refused => {
                if self.record.letters.len() >= MOST_LETTERS {
                    self.warn(notice, "a push configuration stops: it has too many dead letters");
                    return self.rest(PushState::Stopped).await;
                }
                self.warn(notice, "a notification is given up");
                self.record.letters.push(self.letter(notice.place));
            }
        }
        self.told = notice.then;
        self.attempt = 0;
        self.settle(PushState::Active, Next::Keep).await?;
        Ok(true)
    }

    /// Sends a dead letter again. Says whether to go on.
    async fn resend(&mut self, index: usize) -> Result<bool, Stop> {
        let place = self.record.letters[index].place;
        let Some(notice) = self.find(place).await? else {
            // It was told otherwise since, cannot be read, or the log does not have it any more: nobody can send it.
            let (task, id) = (self.lease.config.task, &self.lease.config.config.id);
            tracing::warn!(task.id = %task, push.id = %id, seq = place.seq, "a dead letter cannot be sent any more");
            self.record.letters.remove(index);
            self.settle(PushState::Active, Next::Keep).await?;
            return Ok(true);
        };
        match self.attempt(&notice).await? {
            Outcome::Told => drop(self.record.letters.remove(index)),
            Outcome::Again(wait) if self.attempt < self.push.options.attempts => {
                self.settle(PushState::Active, Next::After(self.wait(wait))).await?;
                return Ok(false);
            }
            Outcome::Gone => {
                self.record.letters[index] = self.letter(place);
                return self.rest(PushState::Gone).await;
            }
            Outcome::Again(_) | Outcome::Refused => {
                self.warn(&notice, "a dead letter that was sent again is given up again");
                self.record.letters[index] = self.letter(place);
            }
        }
        self.attempt = 0;
        self.settle(PushState::Active, Next::Keep).await?;
        Ok(true)
    }

    /// What was to be told at this place.
    async fn find(&mut self, place: Place) -> Result<Option<Notice>, Stop> {
        let mut teller = Teller::new(&self.lease.config, Place { seq: place.seq.saturating_sub(1), part: 0 });
        let mut read = teller.reads_after();
        loop {
            let events = self.events(read).await?;
            if events.is_empty() {
                return Ok(None);
            }
            for event in events {
                read = event.seq;
                let notices = teller.add(&event).unwrap_or_default();
                if read == place.seq {
                    return Ok(notices.into_iter().find(|notice| notice.place == place));
                }
            }
        }
    }

    /// One attempt, which is remembered with the next settlement.
    async fn attempt(&mut self, notice: &Notice) -> Result<Outcome, Stop> {
        let timeout = self.push.options.timeout;
        self.keep_lease().await?;
        self.sent += 1;
        let (at, began) = (clock::now(), Instant::now());
        let signing = match self.push.signing.of(self.inner.store.as_ref(), self.lease.config.tenant).await {
            Ok(signing) => Some(signing),
            Err(KeyError::Store(error)) => return Err(Stop::Store(error)),
            Err(error) => {
                tracing::error!(tenant.id = self.lease.config.tenant.0, %error, "which signing secret counts cannot be read");
                None
            }
        };
        let answer = match signing.and_then(|signing| self.parcel(notice, signing, at.as_millis() / 1000)) {
            Some(parcel) => {
                let carried = self.push.options.carrier.carry(parcel);
                tokio::time::timeout(timeout, carried).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
            }
            None => Err("its secrets cannot be opened".to_owned()),
        };
        let was_put_off = self.attempt > 0;
        self.attempt += 1;
        let (answer, why) = answer.map_or_else(|why| (None, Some(why)), |answer| (Some(answer), None));
        self.done.answered(answer.is_some());
        let status = answer.map(|answer| answer.status);
        let (outcome, word) = judge(answer);
        self.why = why.or(status.map(|status| format!("HTTP {status}"))).unwrap_or_default();
        match outcome {
            Outcome::Told if was_put_off => {
                self.say(tracing::Level::INFO, notice, "a webhook takes notifications again")
            }
            Outcome::Again(_) if !was_put_off => {
                self.say(tracing::Level::WARN, notice, "a webhook does not take a notification, which is tried again");
            }
            _ => {}
        }
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.record.remember(Attempt { place: notice.place, at: at.as_millis(), ms, status, outcome: word.into() });
        tracing::debug!(
            task.id = %self.lease.config.task,
            push.id = %self.lease.config.config.id,
            seq = notice.place.seq,
            attempt = self.attempt,
            status,
            duration_ms = ms,
            "a notification was {word}"
        );
        Ok(outcome)
    }

    fn parcel(&self, notice: &Notice, signing: Signing, seconds: i64) -> Option<Parcel> {
        let config = &self.lease.config;
        let (tenant, task, id) = (config.tenant, config.task, config.config.id.as_str());
        let Some(secrets) = self.push.keys.open(&Of { tenant, task, id }, &config.config.sealed) else {
            tracing::error!(task.id = %task, push.id = %id, "the secrets of a push configuration cannot be opened");
            return None;
        };
        let mut message = message_id(config, notice.place);
        if fault::is_on("push-new-id") && self.attempt > 0 {
            message = message.replacen("msg_", &format!("msg_{}-", self.attempt), 1);
        }
        let mut headers = vec![
            ("content-type", "application/a2a+json".to_owned()),
            ("a2a-version", config.config.dialect.version().to_owned()),
            ("webhook-timestamp", seconds.to_string()),
            ("webhook-signature", self.push.keys.sign(tenant, signing, &message, seconds, &notice.body)),
            ("webhook-id", message),
        ];
        if !secrets.credentials.is_empty() {
            headers.push(("authorization", format!("{} {}", config.config.scheme, secrets.credentials)));
        }
        if !secrets.token.is_empty() {
            headers.push(("x-a2a-notification-token", secrets.token.clone()));
            headers.push(("a2a-notification-token", secrets.token));
        }
        Some(Parcel { tenant, url: config.config.url.clone(), headers, body: notice.body.clone() })
    }

    fn letter(&self, place: Place) -> Letter {
        let outcome = match self.record.attempts.last() {
            Some(Attempt { status: Some(status), .. }) => format!("HTTP {status}"),
            _ => "unreachable".to_owned(),
        };
        Letter { place, at: clock::now().as_millis(), attempts: self.attempt, outcome, replay: false }
    }

    /// How long to wait before another attempt: twice as long each time, and never all at the same moment.
    fn wait(&self, asked: Option<Duration>) -> Duration {
        let (first, longest) = self.push.options.waits;
        let doubled = first.saturating_mul(1 << self.attempt.saturating_sub(1).min(20)).min(longest.mul_f64(0.8));
        let wait = doubled.mul_f64(1.0 + 0.25 * chance()).max(first);
        wait.max(asked.unwrap_or_default()).min(longest.max(first))
    }

    /// Nothing more is told before somebody says so.
    async fn rest(&mut self, state: PushState) -> Result<bool, Stop> {
        self.attempt = 0;
        self.settle(state, Next::Rest).await?;
        Ok(false)
    }

    async fn settle(&mut self, state: PushState, next: Next) -> Result<(), Stop> {
        let asked = Instant::now();
        let (told, attempt, record) = (self.told, self.attempt, self.record.clone());
        let settlement = Settlement { told, state, attempt, record, next };
        match self.inner.store.settle_push(&self.lease, settlement).await {
            Ok(()) => {
                self.until = asked + self.lease.term.lasts;
                Ok(())
            }
            Err(store::Error::LeaseLost) => Err(Stop::Lost),
            Err(error) => Err(Stop::Store(error)),
        }
    }

    /// For whoever runs the server: `sb push show` has the rest.
    fn say(&self, level: tracing::Level, notice: &Notice, what: &str) {
        let config = &self.lease.config;
        let (tenant, task, id) = (config.tenant.0, config.task, config.config.id.as_str());
        let (receiver, seq, attempts, why) = (&config.config.receiver, notice.place.seq, self.attempt, &self.why);
        if level == tracing::Level::INFO {
            tracing::info!(tenant.id = tenant, task.id = %task, push.id = id, %receiver, seq, attempts, "{what}");
        } else {
            tracing::warn!(tenant.id = tenant, task.id = %task, push.id = id, %receiver, seq, attempts, why, "{what}");
        }
    }

    fn warn(&self, notice: &Notice, what: &str) {
        self.say(tracing::Level::WARN, notice, what);
    }
}

/// The id of a notification: the same at each attempt, on each instance. It has no full stop in it, as the Standard Webhooks want.
fn message_id(config: &store::PushConfig, place: Place) -> String {
    let hash = convert::digest(&[config.config.id.as_bytes()]);
    let [a, b, c, d, ..] = hash;
    let name = u32::from_be_bytes([a, b, c, d]);
    let part = if place.part > 0 { format!("_{}", place.part) } else { String::new() };
    format!("msg_{}_{name:08x}_{}{part}", config.task, place.seq)
}

/// What to make of an answer, and a word for it that tells nothing of what is where nobody answered.
fn judge(answer: Option<Answer>) -> (Outcome, &'static str) {
    let Some(Answer { status, retry_after }) = answer else { return (Outcome::Again(None), "unreachable") };
    match status {
        200..=299 => (Outcome::Told, "delivered"),
        410 => (Outcome::Gone, "gone"),
        408 | 429 | 500..=599 => (Outcome::Again(retry_after), "put off"),
        _ => (Outcome::Refused, "refused"),
    }
}

/// A number from zero to one.
fn chance() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness all wait equally long.
    let _ = getrandom::fill(&mut bytes);
    f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)
}
