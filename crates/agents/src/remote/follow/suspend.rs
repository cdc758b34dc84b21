//! Suspension of turns: for how long one waits whose message was not delivered, or whose remote works in silence, and when it fails instead.

use std::time::Duration;

use a2a::{Message, Part, Role};
use exchange::{Outcome, Output, Turn};
use store::LeaseTime;

use super::broken;
use crate::remote::{
    Options,
    peer::Peer,
    share::Share,
    state::{Phase, State, StoreClock, millis},
};

/// How often a message is tried that cannot have arrived and whose caller waits for a verdict.
const PROMPT_TRIES: u32 = 3;
/// How long a message is sent again with its key: half as long as a Switchboard remembers keys.
const RESEND_FOR: Duration = Duration::from_secs(12 * 60 * 60);
/// How long the first rest is of a turn whose message was not delivered. Each further one is twice as long.
const FIRST_REST: Duration = Duration::from_millis(500);
/// The longest such rest.
const LONGEST_REST: Duration = Duration::from_secs(10);
/// After so many attempts callers are told that the message is not delivered.
const TELL_AFTER: u32 = 4;

/// Suspends a turn whose remote is not known at the moment.
pub(in crate::remote) async fn wait_for_remote(
    turn: &Turn,
    out: &Output,
    options: &Options,
    at_most: Duration,
) -> Outcome {
    let Ok(clock) = StoreClock::of(turn).await else { return unreadable() };
    let mut state = State::read(turn.state.as_ref());
    state.wake(clock.now());
    let outcome = rest(&mut state, options, clock.now(), at_most);
    out.keep(state.write()).await;
    outcome
}

/// Suspends a turn that has something under way while the journal cannot be read. What it has kept stays as it is.
pub(super) fn unreadable() -> Outcome {
    Outcome::Parked { at_most: Some(FIRST_REST) }
}

/// Suspends a turn whose message was not delivered, or fails it where that took too long. `now` is the time of the store.
pub(super) fn later(
    state: &mut State,
    share: &Share,
    turn: &Turn,
    options: &Options,
    now: LeaseTime,
    why: String,
) -> Outcome {
    let may_have = state.phase == Phase::Sending;
    if turn.origin.prompt && !may_have && (state.tries + 1 >= PROMPT_TRIES || !share.breaker.may_admit()) {
        return broken(why);
    }
    if turn.origin.delegation.time_left().is_some_and(|left| left.is_zero()) {
        return broken("the deadline has passed".to_owned());
    }
    let limit = if may_have { RESEND_FOR } else { options.deliver_for }.min(options.track_for);
    let left = limit.saturating_sub(Duration::from_millis(state.tracked));
    if left.is_zero() {
        let may_have = if may_have { "; the remote may have taken the message" } else { "" };
        return broken(format!("{why}; not delivered within {} s{may_have}", limit.as_secs()));
    }
    state.tries = state.tries.saturating_add(1);
    let doubled = FIRST_REST.saturating_mul(2_u32.saturating_pow(state.tries.min(16) - 1)).min(LONGEST_REST);
    // Turns that were suspended together do not come back together.
    let extra = spread(turn, state.tries) / 2.0;
    let circuit = share.breaker.rest();
    let wait = doubled.mul_f64(0.5 + extra).max(circuit.mul_f64(1.0 + extra)).min(left);
    tracing::debug!(task.id = %turn.task, error = why, wait_ms = millis(wait), "a message is not delivered yet");
    state.rest(wait, now);
    Outcome::Parked { at_most: Some(wait) }
}

/// Tells the caller, once, that its message is not delivered yet.
pub(super) async fn tell_delay(peer: &Peer, state: &State, outcome: &Outcome, out: &Output) {
    if matches!(outcome, Outcome::Parked { .. }) && state.phase != Phase::Working && state.tries == TELL_AFTER {
        let text = format!("the remote `{}` cannot be called at the moment; the message waits", peer.spec.name);
        let message = Message { role: Role::Agent, parts: vec![Part::text(text)], ..Message::default() };
        out.status(Some(message), None).await;
    }
}

/// Suspends a turn whose remote works, or fails it where that took too long.
pub(super) fn rest(state: &mut State, options: &Options, now: LeaseTime, at_most: Duration) -> Outcome {
    let left = options.track_for.saturating_sub(Duration::from_millis(state.tracked));
    if left.is_zero() {
        return broken(tracked_too_long(&options.track_for));
    }
    let wait = at_most.min(left);
    state.rest(wait, now);
    Outcome::Parked { at_most: Some(wait) }
}

/// Whether the remote may have forgotten the key of a message that was sent: it remembers the key from the first attempt on, and this server
/// may have been down since.
pub(super) fn may_be_forgotten(state: &State, now: LeaseTime) -> bool {
    state.sent_for(now) >= RESEND_FOR
}

/// A number from zero to one that is the turn's own.
fn spread(turn: &Turn, tries: u32) -> f64 {
    let mut hash = tries.wrapping_mul(0x9e37_79b9);
    for byte in turn.task.to_string().bytes() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    f64::from(hash >> 16) / f64::from(u16::MAX)
}

pub(super) fn tracked_too_long(track_for: &Duration) -> String {
    format!("task tracking timeout (>{}s)", track_for.as_secs())
}

#[cfg(test)]
mod tests {
    use exchange::{Ledger, Origin, Past, RequestOptions};
    use store::TaskId;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::remote::share::Shares;

    const SECOND: Duration = Duration::from_secs(1);

    fn turn(prompt: bool) -> Turn {
        Turn {
            agent: "quinn".parse().unwrap(),
            task: TaskId::mint(),
            context: "c".into(),
            message: Message::default(),
            attempt: 1,
            tries: 1,
            number: 1,
            state: None,
            resumed: false,
            cancel: CancellationToken::new(),
            past: Past::told(Vec::new(), Vec::new()),
            origin: Origin { prompt, ..Origin::default() },
            request: RequestOptions::default(),
            ledger: Ledger::default(),
            errands: None,
        }
    }

    fn wait(outcome: &Outcome) -> Duration {
        match outcome {
            Outcome::Parked { at_most: Some(wait) } => *wait,
            other => panic!("not suspended: {other:?}"),
        }
    }

    #[test]
    fn waits_grow_differ_and_are_bounded() {
        let (share, options) = (Shares::default().of(None), Options::default());
        let mut first: Vec<Duration> = Vec::new();
        for _ in 0..100 {
            let (turn, mut state) = (turn(false), State::default());
            let waits: Vec<Duration> = (0..12)
                .map(|_| wait(&later(&mut state, &share, &turn, &options, LeaseTime::default(), "away".to_owned())))
                .collect();
            assert!(waits[0] >= FIRST_REST / 2 && waits[0] <= FIRST_REST, "{waits:?}");
            assert!(waits[3] >= SECOND * 2 && waits[11] >= LONGEST_REST / 2 && waits[11] <= LONGEST_REST, "{waits:?}");
            first.push(waits[0]);
        }
        first.sort();
        assert!(first[99] - first[0] > FIRST_REST / 4, "they are spread");
    }

    #[test]
    fn a_message_that_is_never_delivered_fails_after_its_time() {
        let (share, options) = (Shares::default().of(None), Options::default());
        let turn = turn(false);
        let at = |phase: Phase, tracked: Duration| {
            let mut state = State { phase, tracked: millis(tracked), ..State::default() };
            later(&mut state, &share, &turn, &options, LeaseTime::default(), "away".to_owned())
        };
        assert!(wait(&at(Phase::New, options.deliver_for - SECOND / 10)) <= SECOND / 10);
        assert_eq!(at(Phase::New, options.deliver_for), broken("away; not delivered within 600 s".to_owned()));
        // One that may have arrived is asked for much longer.
        wait(&at(Phase::Sending, options.deliver_for));
        let Outcome::RemoteFailed(why) = at(Phase::Sending, RESEND_FOR) else { panic!("it goes on") };
        assert!(why.contains("may have taken the message"), "{why}");
        assert!(RESEND_FOR * 2 <= Duration::from_secs(86_400), "a Switchboard remembers keys for a day");
    }

    #[test]
    fn a_caller_that_wants_a_quick_verdict_gets_one() {
        let (share, options) = (Shares::default().of(None), Options::default());
        let turn = turn(true);
        let mut state = State::default();
        let mut again = || later(&mut state, &share, &turn, &options, LeaseTime::default(), "away".to_owned());
        wait(&again());
        wait(&again());
        assert_eq!(again(), broken("away".to_owned()));
        for _ in 0..5 {
            share.breaker.failed();
        }
        let mut state = State::default();
        let outcome = later(&mut state, &share, &turn, &options, LeaseTime::default(), "open".to_owned());
        assert_eq!(outcome, broken("open".to_owned()), "at once while the circuit is open");
        let mut state = State { phase: Phase::Sending, ..State::default() };
        assert!(
            wait(&later(&mut state, &share, &turn, &options, LeaseTime::default(), "open".to_owned())) >= SECOND / 2,
            "it may have arrived"
        );
    }

    #[test]
    fn a_rest_ends_with_the_time_for_tracking() {
        let options = Options::default();
        let mut state = State { tracked: millis(options.track_for - SECOND), ..State::default() };
        assert_eq!(wait(&rest(&mut state, &options, LeaseTime::default(), SECOND * 60)), SECOND);
        let mut state = State { tracked: millis(options.track_for), ..State::default() };
        assert!(matches!(rest(&mut state, &options, LeaseTime::default(), SECOND), Outcome::RemoteFailed(_)));
    }
}
