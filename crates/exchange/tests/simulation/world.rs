//! Several instances on one journal, and what was done to each of them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use exchange::{Agents, Call, Caller, Exchange, Options};
use store::{Store, TenantId, Wake};
use testkit::{rng::Random, temp_store::TempStore};
use tokio::runtime::Handle;

use crate::simulation::{
    agents::{self, Runs},
    line::{Line, Steady, Trace, Weather, really},
};

pub(crate) const LEASE: Duration = Duration::from_secs(10);
pub(crate) const INSTANCES: usize = 3;

/// A journal and the instances on it.
pub(crate) struct World {
    pub(crate) scratch: TempStore,
    pub(crate) steady: Steady,
    pub(crate) runs: Runs,
    pub(crate) tenants: [TenantId; 2],
    places: Mutex<Vec<Place>>,
    history: Mutex<Vec<Trouble>>,
    rng: Mutex<Random>,
    real: Handle,
    trace: Option<Trace>,
    started: Mutex<usize>,
}

/// Where an instance is, or was.
#[derive(Clone)]
struct Place {
    number: usize,
    line: Arc<Line>,
    exchange: Exchange,
    up: bool,
}

/// Something that was done to one instance and not to the others.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub(crate) instance: usize,
    pub(crate) what: &'static str,
    pub(crate) from: f64,
    pub(crate) to: f64,
}

/// An instance as callers and troublemakers see it.
#[derive(Clone)]
pub(crate) struct Instance {
    pub(crate) place: usize,
    pub(crate) number: usize,
    pub(crate) line: Arc<Line>,
    pub(crate) exchange: Exchange,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub(crate) async fn new(
        scratch: TempStore,
        steady: Steady,
        mut rng: Random,
        real: Handle,
        trace: Option<Trace>,
    ) -> Arc<Self> {
        let first = open(&scratch, &steady, &real);
        let mut tenants = Vec::new();
        for name in ["one", "two"] {
            let store = Arc::clone(&first);
            let made = really(&real, async move { store.create_tenant(name).await });
            tenants.push(made.expect("a tenant can be made").id);
        }
        really(&real, async move { first.close().await });
        let world = Arc::new(Self {
            scratch,
            steady,
            runs: Runs::default(),
            tenants: [tenants[0], tenants[1]],
            places: Mutex::default(),
            history: Mutex::default(),
            rng: Mutex::new(rng.fork()),
            real,
            trace,
            started: Mutex::new(0),
        });
        for place in 0..INSTANCES {
            world.start(place).await;
        }
        world
    }

    pub(crate) fn call(&self, tenant: usize) -> Call {
        Call::new(Caller::new(self.tenants[tenant], ["one", "two"][tenant]))
    }

    /// Starts an instance in this place.
    pub(crate) async fn start(&self, place: usize) {
        let store = open(&self.scratch, &self.steady, &self.real);
        let number = {
            let mut started = lock(&self.started);
            *started += 1;
            *started
        };
        let rng = lock(&self.rng).fork();
        let line = Line::new(store, self.steady.clone(), rng, self.real.clone(), self.trace.clone());
        let agents = Agents::default();
        agents::entries(number, &self.runs, &self.steady).into_iter().for_each(|entry| agents.insert(entry));
        let options = Options {
            lease: LEASE,
            blocking_cap: Duration::from_secs(20),
            cancel_grace: Duration::from_secs(2),
            // Wall time is not the story's.
            retention: exchange::RetentionRules::forever(),
            ..Options::default()
        };
        let exchange = Exchange::start(Arc::clone(&line) as Arc<dyn Store>, agents, options);
        let exchange = exchange.await.expect("an exchange can be started");
        let new = Place { number, line, exchange, up: true };
        let mut places = lock(&self.places);
        if place < places.len() {
            places[place] = new;
        } else {
            places.push(new);
        }
    }

    /// The instances that answer, or would.
    pub(crate) fn up(&self) -> Vec<Instance> {
        let places = lock(&self.places);
        let up = places.iter().enumerate().filter(|(_, place)| place.up);
        up.map(|(index, place)| Instance {
            place: index,
            number: place.number,
            line: Arc::clone(&place.line),
            exchange: place.exchange.clone(),
        })
        .collect()
    }

    /// Nobody calls it any more.
    pub(crate) fn take_down(&self, place: usize) {
        lock(&self.places)[place].up = false;
    }

    /// Writes down what was done to an instance from some moment until now.
    pub(crate) fn note(&self, instance: usize, what: &'static str, from: f64) {
        let to = self.steady.seconds();
        lock(&self.history).push(Trouble { instance, what, from, to });
    }

    pub(crate) fn troubles(&self) -> Vec<Trouble> {
        lock(&self.history).clone()
    }

    /// Makes everything fine, and every place taken.
    pub(crate) async fn mend(&self) {
        for place in 0..INSTANCES {
            let up = lock(&self.places)[place].up;
            if up {
                lock(&self.places)[place].line.set(Weather::Fine);
            } else {
                self.start(place).await;
            }
        }
    }

    /// Another look at the journal, by nobody in particular.
    pub(crate) async fn observer(&self) -> Arc<dyn Store> {
        let store = open(&self.scratch, &self.steady, &self.real);
        Line::new(store, self.steady.clone(), Random::seeded(0), self.real.clone(), self.trace.clone())
    }
}

fn open(scratch: &TempStore, steady: &Steady, real: &Handle) -> Arc<dyn Store> {
    really(real, scratch.opening(Some(Wake::Off), Duration::from_secs(2), steady.ticks()))
}
