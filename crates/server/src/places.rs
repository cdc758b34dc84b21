//! Who has a place here: how many connections are open, of whom, and which gives way when all places are taken.
//!
//! Nobody is waited for who does nothing. A connection without a request under way goes when another needs its place: first
//! those on which nobody has said who they are, then the others, the longest idle first; last those that are busy with what
//! everybody may ask. What has a caller's request under way is never ended for another. When nothing can go, a few more places are
//! left, which are for health and administration alone; so those get in whatever the others do.
//!
//! Requests only touch what belongs to their own connection. Who could go is looked for when somebody has to.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, futures::Notified},
    time::Instant,
};

use crate::limits::{InFlight, Maximum, network};

/// How many that could go are remembered from one look at all connections.
const REMEMBERED: usize = 256;
/// How soon after a look that found nobody is looked again.
const LOOK_AGAIN: u64 = 20;
/// How long a connection on which nobody is known may be busy before it can go for that.
const PATIENCE: u64 = 2000;
/// How long a place for health and administration is not taken from somebody who has just come.
const FRESH: u64 = 20;
/// How often is said that places run short.
const SAY_EVERY: u64 = 10_000;
/// How long a place for health and administration is kept for somebody who asks nothing.
const RESERVED_IDLE: Duration = Duration::from_secs(2);

/// All places.
pub(crate) struct Places {
    bounds: Bounds,
    begun: Instant,
    state: Mutex<State>,
    /// Told when somebody leaves.
    left: Notify,
    /// The requests under way on its connections.
    pub(crate) in_flight: Arc<InFlight>,
}

/// How many there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// For everybody.
    pub(crate) places: usize,
    /// For each address.
    pub(crate) per_address: usize,
    /// Besides, for health and administration.
    pub(crate) reserved: usize,
    /// How long a connection may be idle on which nobody has said who they are.
    pub(crate) unknown_idle: Duration,
}

/// What came of somebody who wants in.
pub(crate) enum Entry {
    In(Place),
    /// Its address has as many places as it may have, all are in use, and there is none of those that are kept.
    Refused,
    /// There is no place of any kind.
    Full,
}

/// A place, until it is dropped.
pub(crate) struct Place {
    pub(crate) seat: Arc<Seat>,
    pub(crate) places: Arc<Places>,
}

/// A connection, as its requests and the others see it.
pub(crate) struct Seat {
    number: u64,
    /// Who is counted; nobody where a proxy calls for others.
    address: Option<IpAddr>,
    is_reserved: bool,
    begun: Instant,
    /// When it was taken, in milliseconds.
    came: u64,
    /// Since when nothing is under way.
    idle_since: AtomicU64,
    /// How many requests are under way.
    busy: AtomicUsize,
    /// Whether the client has yet to take what is written to it.
    is_writing: AtomicBool,
    /// Whether somebody has said who they are.
    is_known: AtomicBool,
    /// Whether its place is another's by now.
    is_gone: AtomicBool,
    away: Notify,
}

/// A request that is under way on a connection, until it is dropped.
pub(crate) struct Busy(Arc<Seat>);

#[derive(Default)]
struct State {
    next: u64,
    all: Group,
    reserved: Group,
    by_address: HashMap<IpAddr, Group>,
    said: Option<u64>,
}

/// Connections among which one may have to go.
#[derive(Default)]
struct Group {
    seats: HashMap<u64, Arc<Seat>>,
    /// Those that could go, the first first.
    could_go: VecDeque<(Rank, Arc<Seat>)>,
    /// When nobody was found.
    looked: Option<u64>,
}

/// Who goes first: the smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    UnknownIdle(u64),
    Idle(u64),
    UnknownBusy(u64),
}

impl Bounds {
    /// How many places are kept for health and administration where there are so many: one in fifty.
    pub(crate) fn reserve_of(places: usize) -> usize {
        (places / 50).clamp(1, 16)
    }
}

impl Places {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            begun: Instant::now(),
            state: Mutex::default(),
            left: Notify::new(),
            in_flight: InFlight::new(Maximum { all: bounds.places, per_address: bounds.per_address }),
        })
    }

    /// Gives somebody a place, if need be that of another. `None` is a proxy, which calls for many.
    pub(crate) fn enter(self: &Arc<Self>, address: Option<IpAddr>) -> Entry {
        let now = millis(self.begun);
        let address = address.map(network);
        let mut state = self.state();
        // A share that is all there is, is none.
        if let Some(address) = address.filter(|_| self.bounds.per_address < self.bounds.places)
            && let Some(group) = state.by_address.get_mut(&address)
            && group.seats.len() >= self.bounds.per_address
        {
            let Some(other) = group.give_way(now) else {
                return match self.reserved(&mut state, Some(address), now) {
                    // Who has had its share is not waited for.
                    Entry::Full => Entry::Refused,
                    entry => entry,
                };
            };
            state.end(&other);
        }
        if state.all.seats.len() >= self.bounds.places {
            let other = state.all.give_way(now);
            state.say_short(now);
            let Some(other) = other else { return self.reserved(&mut state, address, now) };
            state.end(&other);
        }
        self.admit(&mut state, address, false)
    }

    /// Gives somebody a place for health and administration.
    fn reserved(self: &Arc<Self>, state: &mut State, address: Option<IpAddr>, now: u64) -> Entry {
        if state.reserved.seats.len() >= self.bounds.reserved {
            let Some(other) = state.reserved.give_way(now) else { return Entry::Full };
            state.end(&other);
        }
        self.admit(state, address, true)
    }

    fn admit(self: &Arc<Self>, state: &mut State, address: Option<IpAddr>, is_reserved: bool) -> Entry {
        let seat = Arc::new(Seat {
            number: state.next,
            address,
            is_reserved,
            begun: self.begun,
            came: millis(self.begun),
            idle_since: AtomicU64::new(millis(self.begun)),
            busy: AtomicUsize::new(0),
            is_writing: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            away: Notify::new(),
        });
        state.next += 1;
        let group = if is_reserved { &mut state.reserved } else { &mut state.all };
        group.seats.insert(seat.number, Arc::clone(&seat));
        if let Some(address) = address.filter(|_| !is_reserved) {
            state.by_address.entry(address).or_default().seats.insert(seat.number, Arc::clone(&seat));
        }
        Entry::In(Place { seat, places: Arc::clone(self) })
    }

    /// Waits until somebody has left.
    pub(crate) fn left(&self) -> Notified<'_> {
        self.left.notified()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes somebody's place away.
    fn end(&mut self, seat: &Seat) {
        if !seat.is_gone.swap(true, Ordering::AcqRel) {
            self.remove(seat);
            seat.away.notify_one();
        }
    }

    fn remove(&mut self, seat: &Seat) {
        let group = if seat.is_reserved { &mut self.reserved } else { &mut self.all };
        group.seats.remove(&seat.number);
        if let Some(address) = seat.address
            && let Some(group) = self.by_address.get_mut(&address)
        {
            group.seats.remove(&seat.number);
            if group.seats.is_empty() {
                self.by_address.remove(&address);
            }
        }
    }

    fn say_short(&mut self, now: u64) {
        if self.said.is_none_or(|said| now >= said + SAY_EVERY) {
            self.said = Some(now);
            tracing::warn!(
                connections = self.all.seats.len(),
                "all connections are taken; idle ones give way to new ones"
            );
        }
    }
}

impl Group {
    /// Who goes, if anybody can.
    fn give_way(&mut self, now: u64) -> Option<Arc<Seat>> {
        if let Some(seat) = self.next_to_go(now) {
            return Some(seat);
        }
        if self.looked.is_some_and(|looked| now < looked + LOOK_AGAIN) {
            return None;
        }
        let ranked = self.seats.values().filter_map(|seat| Some((seat.rank(now)?, Arc::clone(seat))));
        let mut ranked: Vec<(Rank, Arc<Seat>)> = ranked.collect();
        ranked.sort_unstable_by_key(|(rank, _)| *rank);
        ranked.truncate(REMEMBERED);
        self.could_go = ranked.into();
        let found = self.next_to_go(now);
        self.looked = if found.is_none() { Some(now) } else { None };
        found
    }

    /// The next of those that could go when it was looked, if it still is where it was.
    fn next_to_go(&mut self, now: u64) -> Option<Arc<Seat>> {
        while let Some((rank, seat)) = self.could_go.pop_front() {
            if seat.rank(now) == Some(rank) {
                return Some(seat);
            }
        }
        None
    }
}

impl Place {
    /// Waits until this place is another's, or nobody has said for too long who they are.
    pub(crate) async fn lost(&self) {
        let limit = if self.seat.is_reserved { RESERVED_IDLE } else { self.places.bounds.unknown_idle };
        tokio::select! {
            () = self.seat.away.notified() => {}
            () = self.seat.idles(limit) => {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.seat.is_gone.swap(true, Ordering::AcqRel) {
            self.places.state().remove(&self.seat);
            self.places.left.notify_waiters();
        }
    }
}

impl Seat {
    /// Somebody has said who they are.
    pub(crate) fn know(&self) {
        self.is_known.store(true, Ordering::Release);
    }

    /// Whether it counts for its address.
    pub(crate) fn is_counted(&self) -> bool {
        self.address.is_some()
    }

    /// Whether this is a place for health and administration.
    pub(crate) fn is_reserved(&self) -> bool {
        self.is_reserved
    }

    /// Whether the client takes what is written to it.
    pub(crate) fn set_writing(&self, is_writing: bool) {
        if self.is_writing.load(Ordering::Relaxed) != is_writing {
            self.idle_since.store(millis(self.begun), Ordering::Release);
            self.is_writing.store(is_writing, Ordering::Release);
        }
    }

    fn rank(&self, now: u64) -> Option<Rank> {
        if self.is_gone.load(Ordering::Acquire) {
            return None;
        }
        let since = self.idle_since.load(Ordering::Acquire);
        let is_busy = self.busy.load(Ordering::Acquire) > 0 || self.is_writing.load(Ordering::Acquire);
        match (self.is_known.load(Ordering::Acquire), is_busy) {
            (false, false) if self.is_reserved && now < since + FRESH => None,
            (false, false) => Some(Rank::UnknownIdle(since)),
            (true, false) => Some(Rank::Idle(since)),
            // However it keeps itself busy: nobody has said who that is.
            (false, true) => (now >= self.came + PATIENCE).then_some(Rank::UnknownBusy(since)),
            (true, true) => None,
        }
    }

    /// Waits until nothing has been under way for so long and nobody is known. In a place that is kept for others, being known does
    /// not help.
    async fn idles(&self, limit: Duration) {
        loop {
            if self.is_known.load(Ordering::Acquire) && !self.is_reserved {
                return std::future::pending().await;
            }
            let is_busy = self.busy.load(Ordering::Acquire) > 0 || self.is_writing.load(Ordering::Acquire);
            let idle =
                Duration::from_millis(millis(self.begun).saturating_sub(self.idle_since.load(Ordering::Acquire)));
            match limit.checked_sub(idle) {
                _ if is_busy => tokio::time::sleep(limit).await,
                Some(left) if !left.is_zero() => tokio::time::sleep(left).await,
                _ => return,
            }
        }
    }
}

impl Busy {
    pub(crate) fn new(seat: &Arc<Seat>) -> Self {
        seat.busy.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(seat))
    }
}

impl Busy {
    pub(crate) fn seat(&self) -> &Seat {
        &self.0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // Said first, so that nobody takes it for one that has been idle for long.
        self.0.idle_since.store(millis(self.0.begun), Ordering::Release);
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(places: usize, per_address: usize) -> Arc<Places> {
        Places::new(Bounds { places, per_address, reserved: 1, unknown_idle: Duration::from_secs(10) })
    }

    fn enter(places: &Arc<Places>, address: &str) -> Option<Place> {
        match places.enter(Some(address.parse().unwrap())) {
            Entry::In(place) => Some(place),
            Entry::Refused | Entry::Full => None,
        }
    }

    fn is_gone(place: &Place) -> bool {
        place.seat.is_gone.load(Ordering::Acquire)
    }

    async fn pass(millis: u64) {
        tokio::time::advance(Duration::from_millis(millis)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_goes_first_and_those_who_are_known_last() {
        let house = places(3, 9);
        let known = enter(&house, "192.0.2.1").unwrap();
        known.seat.know();
        pass(10).await;
        let asked = enter(&house, "192.0.2.2").unwrap();
        pass(10).await;
        let silent = enter(&house, "192.0.2.3").unwrap();
        pass(10).await;
        drop(Busy::new(&asked.seat));
        let fourth = enter(&house, "192.0.2.4").unwrap();
        assert_eq!((is_gone(&known), is_gone(&asked), is_gone(&silent)), (false, false, true));
        let busy = Busy::new(&fourth.seat);
        let fifth = enter(&house, "192.0.2.5").unwrap();
        assert_eq!((is_gone(&known), is_gone(&asked)), (false, true));
        let other = Busy::new(&fifth.seat);
        let sixth = enter(&house, "192.0.2.6").unwrap();
        assert!(is_gone(&known) && !sixth.seat.is_reserved());
        drop((busy, other));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_under_way_stays_and_the_rest_gets_a_place_of_the_few() {
        let house = places(1, 9);
        let first = enter(&house, "192.0.2.1").unwrap();
        first.seat.know();
        let busy = Busy::new(&first.seat);
        let second = enter(&house, "192.0.2.2").unwrap();
        assert!(second.seat.is_reserved() && !is_gone(&first));
        assert!(matches!(house.enter(None), Entry::Full), "the second has just come");
        pass(LOOK_AGAIN.max(FRESH)).await;
        let third = enter(&house, "192.0.2.3").unwrap();
        assert!(third.seat.is_reserved() && is_gone(&second));
        let asks = Busy::new(&third.seat);
        assert!(matches!(house.enter(None), Entry::Full));
        drop((asks, busy));
        pass(LOOK_AGAIN).await;
        assert!(!enter(&house, "192.0.2.4").unwrap().seat.is_reserved());
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_busy_with_what_everybody_may_ask_goes_in_the_end() {
        let house = places(1, 9);
        let first = enter(&house, "192.0.2.1").unwrap();
        let _watches = Busy::new(&first.seat);
        assert!(enter(&house, "192.0.2.2").unwrap().seat.is_reserved(), "it may be about to say who it is");
        pass(PATIENCE).await;
        assert!(!enter(&house, "192.0.2.2").unwrap().seat.is_reserved());
        assert!(is_gone(&first));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_has_so_many_places() {
        let house = places(9, 2);
        let first = enter(&house, "2001:db8::1").unwrap();
        let second = enter(&house, "2001:db8::2").unwrap();
        let busy = (Busy::new(&first.seat), Busy::new(&second.seat));
        let third = enter(&house, "2001:db8::3").unwrap();
        assert!(third.seat.is_reserved(), "a network counts as one");
        assert!(enter(&house, "2001:db8::4").is_none(), "the third has just come");
        assert!(enter(&house, "2001:db8:0:1::1").is_some());
        assert!((0..9).all(|_| matches!(house.enter(None), Entry::In(_))), "a proxy calls for many");
        drop(busy);
        pass(LOOK_AGAIN).await;
        assert!(enter(&house, "2001:db8::3").is_some());
        assert!(is_gone(&first) || is_gone(&second));
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_not_said_who_they_are_may_not_idle() {
        let house = places(9, 9);
        let place = enter(&house, "192.0.2.1").unwrap();
        let start = Instant::now();
        place.lost().await;
        assert_eq!(start.elapsed().as_secs(), 10);

        let asking = enter(&house, "192.0.2.1").unwrap();
        let lost = asking.lost();
        tokio::pin!(lost);
        for _ in 0..4 {
            assert!(tokio::time::timeout(Duration::from_secs(6), lost.as_mut()).await.is_err(), "it asks now and then");
            drop(Busy::new(&asking.seat));
        }
        asking.seat.know();
        assert!(tokio::time::timeout(Duration::from_secs(3600), lost).await.is_err(), "it is known");
    }

    #[test]
    fn one_place_in_fifty_is_kept() {
        assert_eq!([1, 50, 100, 10_000].map(Bounds::reserve_of), [1, 1, 2, 16]);
    }
}
