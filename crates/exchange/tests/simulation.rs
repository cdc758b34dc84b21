//! A simulation: several instances in one process on one real journal, in virtual time, while everything goes wrong that
//! can: instances are killed, stopped, paused, cut off and slowed down, the database or the whole machine goes away for up to an hour, wall
//! clocks say something else each time they are read, callers repeat themselves and vanish. After each story
//! every promise is checked.
//!
//! `SB_SEED=n` plays one story again and tells it. `SB_STORIES=20000` plays so many; `check --long` does, in a build that is optimized.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod line;
mod story;
mod verdict;
mod world;

use std::{
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use line::{Steady, Trace, Weather};
use testkit::{rng::Random, temp_store::TempStore};
use tokio::runtime::{Builder, Handle};
use verdict::Findings;
use world::World;

/// The story that is played.
static STORY: AtomicU64 = AtomicU64::new(0);
/// How often a wall clock was read in it, and how many ids were made.
static READINGS: AtomicU64 = AtomicU64::new(0);
static IDS: AtomicU64 = AtomicU64::new(0);

/// What a wall clock says: up to an hour off, either way, and never the same twice.
fn chaos(_: i64) -> i64 {
    const NOON: i64 = 1_800_000_000_000;
    let reading = READINGS.fetch_add(1, Relaxed);
    let throw = Random::seeded(STORY.load(Relaxed) ^ reading << 32).below(7_200_000);
    NOON + i64::try_from(throw).unwrap() - 3_600_000
}

/// The next id of a story. Ids sort by age, and end in chance.
fn next_id() -> u128 {
    let n = IDS.fetch_add(1, Relaxed);
    let end = Random::seeded(STORY.load(Relaxed) ^ n << 32).next();
    u128::from(n) << 80 | u128::from(end)
}

/// Plays one story and gives what was wrong afterwards.
fn play(seed: u64, trace: Option<Trace>) -> Findings {
    STORY.store(seed, Relaxed);
    READINGS.store(0, Relaxed);
    IDS.store(0, Relaxed);
    store::clock::bend(Some(chaos));
    store::number_ids(Some(next_id));
    in_virtual_time(|real| async move { tell(seed, &real, trace).await })
}

/// Runs something in virtual time, with a runtime for what takes real time.
fn in_virtual_time<T, F: Future<Output = T>>(work: impl FnOnce(Handle) -> F) -> T {
    let real = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let virtual_time = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let done = virtual_time.block_on(work(real.handle().clone()));
    virtual_time.shutdown_background();
    real.shutdown_background();
    done
}

/// A world of its own, in memory where that is possible.
async fn world(rng: Random, real: &Handle, trace: Option<Trace>) -> (Arc<World>, tempfile::TempDir) {
    let memory = std::path::Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let scratch = TempStore::new(dir.path());
    let steady = Steady::new(scratch.virtual_clock());
    (World::new(scratch, steady, rng, real.clone(), trace).await, dir)
}

async fn tell(seed: u64, real: &Handle, trace: Option<Trace>) -> Findings {
    let mut rng = Random::seeded(seed);
    let (world, _dir) = world(rng.fork(), real, trace).await;
    let told = story::play(&world, &mut rng).await;
    let mut findings = verdict::judge(&world, &told).await;
    findings.extend(farewell(&world).await);
    if std::env::var_os("SB_SEED").is_some() {
        for trouble in world.troubles() {
            eprintln!("{trouble:?}");
        }
        for ((task, turn), runs) in world.runs.all() {
            eprintln!("{task} turn {turn}: {runs:#?}");
        }
    }
    findings
}

/// Plays a story and gives every call of it too.
fn traced(seed: u64) -> (Findings, Vec<String>) {
    let trace = Trace::default();
    let findings = play(seed, Some(Arc::clone(&trace)));
    let calls = std::mem::take(&mut *trace.lock().unwrap());
    (findings, calls)
}

/// Everyone leaves, and leaves nothing behind.
async fn farewell(world: &Arc<World>) -> Findings {
    for instance in world.up() {
        instance.exchange.shut_down(Duration::from_secs(5)).await;
        store::Installation::close(instance.line.as_ref()).await;
    }
    let left = world.scratch.look(&["SELECT id FROM instances"]);
    left[0].iter().map(|row| format!("{row:?} has not signed off")).collect()
}

/// Plays stories until one goes wrong, and says how to play that one again.
fn stories(first: u64, count: u64) {
    if let Some(seed) = std::env::var("SB_SEED").ok().and_then(|seed| seed.parse().ok()) {
        let (findings, calls) = traced(seed);
        for call in calls {
            eprintln!("{call}");
        }
        assert!(findings.is_empty(), "story {seed}:\n  {}", findings.join("\n  "));
        return;
    }
    // A promise that is broken on purpose breaks others; the control goes on until what it is about is noticed.
    let wanted = std::env::var("SB_WANTED").unwrap_or_default();
    for seed in first..first + count {
        let mut findings = play(seed, None);
        if !findings.iter().any(|finding| finding.contains(&wanted)) {
            findings.retain(|_| wanted.is_empty());
        }
        assert!(
            findings.is_empty(),
            "story {seed}:\n  {}\nplay it again: SB_SEED={seed} cargo nextest run -p exchange --no-capture simulation::part_{}",
            findings.join("\n  "),
            first / count,
        );
        if (seed + 1).is_multiple_of(500) {
            eprintln!("{} stories of {count}", seed + 1 - first);
        }
    }
    eprintln!("stories {first} to {}: nothing went wrong", first + count - 1);
}

/// Stories of one part of two, which run side by side. `SB_STORIES` is the number of both.
fn part(n: u64) {
    let on_postgres = std::env::var("SB_TEST_STORE").as_deref() == Ok("postgres");
    let wanted = std::env::var("SB_STORIES").ok().map(|count| count.parse::<u64>().expect("SB_STORIES is a number"));
    let count = wanted.unwrap_or(if on_postgres { 20 } else { 300 }) / 2;
    stories(n * count, count);
}

#[test]
fn part_0() {
    part(0);
}

#[test]
fn part_1() {
    part(1);
}

/// What a story finds can only be looked into if it can be played again.
#[test]
fn sqlite_a_story_is_the_same_whenever_it_is_played() {
    for seed in [3, 16_757] {
        let (first, again) = (traced(seed), traced(seed));
        assert_eq!(first.0, again.0);
        let differ = first.1.iter().zip(&again.1).position(|(first, again)| first != again);
        if let Some(at) = differ {
            panic!("story {seed} differs at call {at} of {}:\n{}\n{}", first.1.len(), first.1[at], again.1[at]);
        }
        assert_eq!(first.1.len(), again.1.len(), "story {seed}");
        assert!(first.1.len() > 100, "it has calls");
    }
}

/// The reads between a claim and the agent's first step take as long as the journal takes. A turn that was taken over
/// meanwhile does not begin.
#[test]
fn an_agent_does_not_begin_under_a_lease_that_was_taken_over_while_its_turn_was_read() {
    let runs = in_virtual_time(|real| async move {
        let (world, _dir) = world(Random::seeded(1), &real, None).await;
        let [first, second, third] = &world.up()[..] else { panic!("three instances") };
        let message = a2a::Message {
            message_id: "m".into(),
            role: a2a::Role::User,
            parts: vec![a2a::Part::text(agents::script(2, 2000, 'c'))],
            ..a2a::Message::default()
        };
        let configuration = a2a::SendMessageConfiguration { return_immediately: true, ..Default::default() };
        let request = a2a::SendMessageRequest {
            tenant: "resume".into(),
            message,
            configuration: Some(configuration),
            ..Default::default()
        };
        first.exchange.send(&world.call(0), request).await.unwrap();
        // The turn says its first piece and rests. Only the first instance is there to go on with it, and stands still where it reads
        // what the turn had kept.
        tokio::time::sleep(Duration::from_millis(3000)).await;
        second.line.set(Weather::Stopped);
        third.line.set(Weather::Stopped);
        first.line.stop_at("read");
        while first.line.weather() == Weather::Fine {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        second.line.set(Weather::Fine);
        third.line.set(Weather::Fine);
        tokio::time::sleep(world::LEASE * 3).await;
        first.line.set(Weather::Fine);
        tokio::time::sleep(world::LEASE).await;
        let runs = world.runs.all();
        assert_eq!(farewell(&world).await, Findings::new());
        runs
    });
    let attempts: Vec<(usize, u32)> = runs.values().flatten().map(|run| (run.instance, run.attempt)).collect();
    let taken_over_by = attempts.last().unwrap().0;
    assert_ne!(taken_over_by, 1);
    assert_eq!(attempts, [(1, 1), (taken_over_by, 2)]);
}

#[test]
fn what_the_journal_can_never_take_fails_the_turn() {
    in_virtual_time(|real| async move {
        let (world, _dir) = world(Random::seeded(1), &real, None).await;
        let instance = world.up().remove(0);
        instance.line.choosy.store(true, Relaxed);
        let message = a2a::Message {
            message_id: "m".into(),
            role: a2a::Role::User,
            parts: vec![a2a::Part::text(agents::script(2, 10, 'c'))],
            ..a2a::Message::default()
        };
        let request = a2a::SendMessageRequest { tenant: "retry".into(), message, ..Default::default() };
        let sent = tokio::time::timeout(Duration::from_secs(10), instance.exchange.send(&world.call(0), request)).await;
        let response = sent.expect("it ends at once").unwrap().reply.response().unwrap();
        let body = serde_json::to_string(&response).unwrap();
        assert!(body.contains("TASK_STATE_FAILED") && body.contains("cannot be stored"), "{body}");
    });
}

/// The same stories with one promise broken on purpose must go wrong.
fn control(fault: &str, finding: &str) {
    let test = std::env::current_exe().unwrap();
    for seed in ["simulation::part_0", "simulation::part_1"] {
        let mut command = Command::new(&test);
        command
            .args(["--exact", seed, "--nocapture"])
            .env("SB_FAULT", fault)
            .env("SB_WANTED", finding)
            .env_remove("SB_STORIES")
            .env_remove("SB_SEED");
        let output = command.stdin(Stdio::null()).output().unwrap();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let mut story = said.lines().skip_while(|line| !line.starts_with("story"));
            let story: Vec<&str> = story.by_ref().take_while(|line| !line.starts_with("play")).collect();
            assert!(story.iter().any(|line| line.contains(finding)), "{fault}: it failed in another way: {said}");
            eprintln!("{fault}: {}", story.join("\n"));
            return;
        }
    }
    panic!("{fault}: nothing was noticed");
}

macro_rules! controls {
    ($($name:ident: $fault:literal => $finding:literal;)*) => {
        $(
            #[test]
            fn $name() {
                control($fault, $finding);
            }
        )*
    };
}

controls! {
    control_sqlite_taking_over_what_runs_here_is_noticed: "takes-own" => "on one instance";
    control_sqlite_leases_on_wall_clocks_are_noticed: "wall-leases" => "on an instance that was well";
    control_sqlite_taking_over_without_a_last_call_is_noticed: "takeover-at-once" => "instance that was well";
    control_sqlite_a_stop_that_ignores_policies_is_noticed: "release-again" => "began twice";
    control_sqlite_a_task_that_stays_held_is_noticed: "stay-held" => "left without an id";
    control_sqlite_a_lease_without_a_fence_is_noticed: "no-fence" => "two attempts in one artifact";
}
