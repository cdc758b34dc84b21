//! Reading back: snapshots, logs, histories, lists, and that others' tasks do not exist.

use std::{collections::HashMap, sync::Arc, time::Duration};

use a2a::{
    Message, Role,
    TaskState::{Completed, Failed, InputRequired, Submitted, Working},
};

use super::world::*;
use store::{
    AgentId, Append, Draft, Error, EventKind, FeedEvent, FeedLimit, Filter, Lease, LeasedTurn, Most, PageKey, Position,
    Removal, Room, Store, Tailed, Target, TaskId, Turn, TurnEnd, View, clock,
};

pub(super) async fn a_task_is_read_as_one_sum(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    let drafts = vec![artifact(task, "a", "one ", false), artifact(task, "a", "two", true)];
    world.append(&lease, drafts).await.unwrap();
    world.end(&lease, Completed, Some("done")).await.unwrap();
    let snapshot = world.task(task).await;
    assert_eq!((snapshot.seq, snapshot.state, &snapshot.agent), (5, Completed, &world.agent));
    let last = world.events(task).await.pop().unwrap();
    assert_eq!(snapshot.status_at, last.at);
    let typed = snapshot.to_task().unwrap();
    assert_eq!((typed.id, typed.context_id), (task.to_string(), CONTEXT.to_owned()));
    assert_eq!(typed.status.message.map(|m| says(&m)), Some("done".into()));
    assert_eq!(all_say(&typed.history), ["hello"]);
    assert_eq!(typed.artifacts.len(), 1);
    let head = world.store.head(world.tenant, task).await.unwrap();
    assert_eq!((head.seq, head.state, head.hidden, &*head.context), (5, Completed, false, CONTEXT));
}

pub(super) async fn history_is_cut_from_the_front(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let task = world.asking("which?").await;
    world.accept(world.more(task, "that")).await.unwrap();
    for (limit, expected) in [
        (None, vec!["go", "which?", "that"]),
        (Some(9), vec!["go", "which?", "that"]),
        (Some(2), vec!["which?", "that"]),
        (Some(0), vec![]),
    ] {
        let view = View { history: limit, artifacts: true, ..View::FULL };
        let snapshot = world.store.task(world.tenant, task, view).await.unwrap();
        assert_eq!(bytes_say(&snapshot.history), expected, "{limit:?}");
    }
}

pub(super) async fn the_log_is_read_in_pages(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("hello").await;
    let drafts = (0..8).map(|n| artifact(task, "a", &n.to_string(), true)).collect();
    world.append(&lease, drafts).await.unwrap();
    let all = world.events(task).await;
    assert_eq!(all.len(), 10);
    let mut read = Vec::new();
    while read.len() < all.len() {
        let page = world.store.events(world.tenant, task, read.len() as u64, 3).await.unwrap();
        assert!(!page.is_empty() && page.len() <= 3);
        read.extend(page);
    }
    assert_eq!(read, all);
    assert!(world.store.events(world.tenant, task, 10, 3).await.unwrap().is_empty());
    assert!(world.store.events(world.tenant, task, u64::MAX, 3).await.unwrap().is_empty());
}

pub(super) async fn what_is_large_is_read_when_there_is_room(store: Arc<dyn Store>) {
    // A message has its text in its id as well.
    const LARGE: u64 = 100_000;
    let world = World::new(store).await;
    let text = "x".repeat(100_000);
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let (task, lease) = world.running(&text).await;
        world.append(&lease, vec![artifact(task, "a", &text, false)]).await.unwrap();
        world.end(&lease, Completed, None).await.unwrap();
        tasks.push(task);
    }
    let task = tasks[0];
    let bare = View { history: Some(0), artifacts: false, most: 1000 };
    assert!(world.store.task(world.tenant, task, bare).await.is_ok());
    for (view, at_least) in [
        (View { history: Some(1), ..bare }, 2 * LARGE),
        (View { artifacts: true, ..bare }, LARGE),
        (View { history: None, artifacts: true, ..bare }, 3 * LARGE),
    ] {
        let Err(Error::Heavy { bytes }) = world.store.task(world.tenant, task, view).await else { panic!("{view:?}") };
        assert!((at_least..at_least + 1000).contains(&bytes), "{bytes} {view:?}");
        let read = world.store.task(world.tenant, task, View { most: bytes, ..view }).await.unwrap();
        assert_eq!(read, world.store.task(world.tenant, task, View { most: u64::MAX, ..view }).await.unwrap());
    }

    // A list is as long as there is room for, and goes on behind that.
    let list = async |most: u64, after: Option<PageKey>| {
        let view = View { most, ..View::FULL };
        let filter =
            Filter { agent: None, among: Vec::new(), context: None, state: None, since: None, after, limit: 10, view };
        world.store.list(world.tenant, filter).await
    };
    assert!(matches!(list(LARGE, None).await, Err(Error::Heavy { bytes }) if bytes > 3 * LARGE));
    let first = list(7 * LARGE, None).await.unwrap();
    assert_eq!((first.tasks.len(), first.total), (2, 3));
    let second = list(7 * LARGE, first.next).await.unwrap();
    assert_eq!((second.tasks.len(), second.total, second.next), (1, 3, None));
    let mut found: Vec<TaskId> = first.tasks.iter().chain(&second.tasks).map(|it| it.task).collect();
    found.sort();
    tasks.sort();
    assert_eq!(found, tasks);
    assert_eq!(list(10 * LARGE, None).await.unwrap().tasks.len(), 3);

    // And so is a log.
    let read =
        async |after: u64, bytes: u64| world.store.read(world.tenant, task, after, Most { events: 10, bytes }).await;
    assert!(matches!(read(0, 1000).await, Err(Error::Heavy { bytes }) if bytes > LARGE));
    let all = world.events(task).await;
    let (head, more) = read(0, 2 * LARGE + 5000).await.unwrap();
    assert_eq!((head.as_slice(), more), (&all[..2], true));
    let (rest, more) = read(2, 2 * LARGE + 5000).await.unwrap();
    assert_eq!((rest.as_slice(), more), (&all[2..], false));
}

pub(super) async fn the_whole_log_is_read_from_a_place(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    assert_eq!(world.store.tail(&Position::default(), 10).await.unwrap(), (vec![], Position::default()));
    let (first, lease) = world.running("one").await;
    let elsewhere = other.waiting("two").await;
    world.append(&lease, vec![artifact(first, "a", "made", false)]).await.unwrap();
    let (hidden, _) = world.held("three").await;
    world.end(&lease, Completed, Some("done")).await.unwrap();
    let mut expected = Vec::new();
    for (tenant, task) in [(world.tenant, first), (other.tenant, elsewhere), (world.tenant, hidden)] {
        let events = world.store.events(tenant, task, 0, 100).await.unwrap();
        expected.extend(events.into_iter().map(|event| Tailed { tenant, task, event }));
    }

    let (mut at_once, end) = follow(&*world.store, Position::default(), expected.len(), 100).await;
    let (mut in_pages, same_end) = follow(&*world.store, Position::default(), expected.len(), 2).await;
    assert_eq!(end, same_end);
    let order = |tailed: &Tailed| (tailed.task, tailed.event.seq);
    expected.sort_by_key(order);
    at_once.sort_by_key(order);
    in_pages.sort_by_key(order);
    assert_eq!(at_once, expected);
    assert_eq!(in_pages, expected);

    assert_eq!(world.store.tail(&end, 10).await.unwrap(), (vec![], end), "there is no more");
    world.store.mark_cancel(other.tenant, elsewhere).await.unwrap();
    let (more, _) = follow(&*world.store, end, 1, 10).await;
    assert_eq!((more[0].tenant, more[0].task, more[0].event.seq), (other.tenant, elsewhere, 2));
}

pub(super) async fn a_tail_that_follows_misses_nothing(store: Arc<dyn Store>) {
    let world = Arc::new(World::new(store).await);
    let mut writers = Vec::new();
    for _ in 0..8 {
        let world = Arc::clone(&world);
        writers.push(tokio::spawn(async move {
            for n in 0..10 {
                let (task, lease) = world.running("go").await;
                world.append(&lease, vec![artifact(task, "a", &n.to_string(), false)]).await.unwrap();
                world.end(&lease, Completed, None).await.unwrap();
            }
        }));
    }
    // Created, working, artifact, completed.
    let (tailed, end) = follow(&*world.store, Position::default(), 8 * 10 * 4, 7).await;
    for writer in writers {
        writer.await.unwrap();
    }
    let mut logs: HashMap<TaskId, Vec<u64>> = HashMap::new();
    for tailed in tailed {
        logs.entry(tailed.task).or_default().push(tailed.event.seq);
    }
    assert_eq!(logs.len(), 80);
    for (task, mut log) in logs {
        log.sort_unstable();
        assert_eq!(log, [1, 2, 3, 4], "{task}");
    }
    assert_eq!(world.store.tail(&end, 10).await.unwrap().0, []);
}

/// Reads a feed until so many events have come, and then to the end of the log.
async fn feed(
    world: &World,
    agents: &[AgentId],
    mut from: Position,
    limit: FeedLimit,
    n: usize,
) -> (Vec<FeedEvent>, Position) {
    let mut fed = Vec::new();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        assert!(tokio::time::Instant::now() < deadline, "{} of {n} events came", fed.len());
        let page = world.store.feed(world.tenant, agents, &from, limit).await.unwrap();
        assert!(page.events.len() <= limit.most.events);
        assert!(page.events.iter().all(|fed| fed.position > from && fed.position <= page.position));
        fed.extend(page.events);
        from = page.position;
        if !page.more && fed.len() >= n {
            return (fed, from);
        }
        if !page.more {
            tick().await;
        }
    }
}

const WIDE: FeedLimit = FeedLimit { scanned: 1000, most: Most { events: 1000, bytes: u64::MAX } };

pub(super) async fn a_feed_has_the_visible_events_of_one_tenant(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    let begin = Position::default();
    let (task, lease) = world.running("one").await;
    let (others, others_lease) = other.running("two").await;
    world
        .append(&lease, vec![artifact(task, "a", "made", false), Draft::note("{}".into(), clock::now())])
        .await
        .unwrap();
    other.end(&others_lease, Failed, Some("no")).await.unwrap();
    world.end(&lease, Completed, None).await.unwrap();
    // Not shown, and shown later by its first output.
    let (hidden, hidden_lease) = world.held("three").await;

    let seen =
        |fed: &[FeedEvent]| -> Vec<(TaskId, EventKind)> { fed.iter().map(|fed| (fed.task, fed.event.kind)).collect() };
    let mine = vec![(task, CREATED), (task, STARTED), (task, ARTIFACT), (task, ends(Completed))];
    let (fed, place) = feed(&world, &[], begin, WIDE, 4).await;
    assert_eq!(seen(&fed), mine);
    assert_eq!((&fed[0].agent, &*fed[0].context), (&world.agent, CONTEXT));
    let log = world.events(task).await;
    let artifact = log.iter().find(|event| event.kind == ARTIFACT).unwrap();
    assert_eq!((&fed[2].event, fed[3].event.seq), (artifact, log.len() as u64));
    assert!(fed[0].event.body.is_empty(), "what a task was begun with is not read");
    let (theirs, _) = feed(&other, &[], begin, WIDE, 3).await;
    assert_eq!(seen(&theirs), [(others, CREATED), (others, STARTED), (others, ends(Failed))]);
    let agents = |name: &str| [agent(name)];
    assert_eq!(seen(&feed(&world, &agents("echo"), begin, WIDE, 4).await.0), mine);
    assert_eq!(feed(&world, &agents("another"), begin, WIDE, 0).await.0, []);

    // From there on, and from the end of the log.
    world.append(&hidden_lease, vec![status(hidden, Working, None)]).await.unwrap();
    let (fed, place) = feed(&world, &[], place, WIDE, 1).await;
    assert_eq!(seen(&fed), [(hidden, is(Working))]);
    assert_eq!(feed(&world, &[], place, WIDE, 0).await.0, []);
    assert!(place <= world.store.log_end().await.unwrap());
    let last = fed.last().unwrap().position;
    assert_eq!(Position::from_bytes(last.to_bytes()), last);
}

pub(super) async fn a_feed_reads_a_bounded_part_at_a_time(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    for _ in 0..20 {
        other.waiting("somebody else's").await;
    }
    let (task, lease) = world.running("mine").await;
    let large = "x".repeat(5000);
    world.append(&lease, vec![artifact(task, "a", &large, false), artifact(task, "b", &large, false)]).await.unwrap();
    world.end(&lease, Completed, None).await.unwrap();

    // Others' events take pages, and bring the reader on.
    let narrow = FeedLimit { scanned: 6, ..WIDE };
    let (fed, _) = feed(&world, &[], Position::default(), narrow, 5).await;
    assert_eq!(fed.len(), 5);
    let first = world.store.feed(world.tenant, &[], &Position::default(), narrow).await.unwrap();
    assert!(first.events.is_empty() && first.more && first.position > Position::default());

    // What is too much by itself is said, and where the reader stands then.
    let small = FeedLimit { most: Most { events: 1000, bytes: 4000 }, ..WIDE };
    let mut place = Position::default();
    let mut met = 0;
    loop {
        match world.store.feed(world.tenant, &[], &place, small).await {
            Ok(page) => {
                met += page.events.len();
                place = page.position;
            }
            Err(Error::Heavy { bytes }) => {
                assert!(bytes > 5000 && met == 2, "{bytes} after {met}");
                let enough = FeedLimit { most: Most { events: 1000, bytes }, ..WIDE };
                let page = world.store.feed(world.tenant, &[], &place, enough).await.unwrap();
                assert_eq!((page.events.len(), page.more), (1, true));
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Tails the log until so many events have come.
async fn follow(store: &dyn Store, mut from: Position, n: usize, page: usize) -> (Vec<Tailed>, Position) {
    let mut tailed = Vec::new();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while tailed.len() < n {
        assert!(tokio::time::Instant::now() < deadline, "{} of {n} events came", tailed.len());
        let (more, position) = store.tail(&from, page).await.unwrap();
        assert!(more.len() <= page);
        if more.is_empty() {
            tick().await;
        }
        tailed.extend(more);
        from = position;
    }
    (tailed, from)
}

pub(super) async fn a_turn_hears_what_was_said_before(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("one").await;
    world.accept(world.more(task, "two")).await.unwrap();
    let hears = || async { all_say(&world.store.history(world.tenant, task, u64::MAX).await.unwrap()) };
    assert_eq!(hears().await, ["one"], "what waits has not been heard");
    world.end(&lease, Completed, Some("first")).await.unwrap();
    assert_eq!(hears().await, ["one", "first", "two"]);
    world.end(&lease, InputRequired, Some("second")).await.unwrap();
    assert_eq!(hears().await, ["one", "first", "two", "second"]);
    world.accept(world.leased(world.more(task, "three"))).await.unwrap();
    assert_eq!(hears().await, ["one", "first", "two", "second", "three"]);
}

pub(super) async fn large_messages_are_read_when_there_is_room(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let large = "x".repeat(Turn::WITH_LEASE);
    let task = world.waiting(&large).await;
    let LeasedTurn { lease, turn, .. } = world.lease_one().await;
    assert!(turn.unread > large.len() as u64 && turn.message == Message::default(), "{} bytes", turn.unread);
    let read = world.store.turn_message(world.tenant, task, 1).await.unwrap();
    assert_eq!(says(&read), large);

    // The same of a turn that follows another one.
    world.accept(world.more(task, &large)).await.unwrap();
    world.accept(world.more(task, "small")).await.unwrap();
    let next = world.end(&lease, Completed, None).await.unwrap().next.unwrap();
    assert!(next.number == 2 && next.unread > large.len() as u64, "{} bytes", next.unread);
    assert_eq!(says(&world.store.turn_message(world.tenant, task, 2).await.unwrap()), large);
    let history = async |most| world.store.history(world.tenant, task, most).await;
    let Err(Error::Heavy { bytes }) = history(100).await else { panic!("two large messages are more") };
    assert_eq!(bytes, turn.unread + next.unread);
    assert_eq!(history(bytes).await.unwrap().len(), 2);
    let next = world.end(&lease, Completed, None).await.unwrap().next.unwrap();
    assert_eq!((says(&next.message).as_str(), next.unread), ("small", 0));
    world.end(&lease, Completed, None).await.unwrap();
    assert!(matches!(world.store.turn_message(world.tenant, task, 3).await, Err(Error::NotFound)));

    let context =
        async |most| world.store.context_history(world.tenant, &world.agent, CONTEXT, TaskId::mint(), 100, most).await;
    let Err(Error::Heavy { bytes: all }) = context(100).await else { panic!("two large messages are more") };
    assert!(all > bytes && all < bytes + 1000, "{all}");
    assert_eq!(context(all).await.unwrap().len(), 3);
}

pub(super) async fn a_turn_hears_replies_that_are_in_artifacts(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("one").await;
    world.accept(world.more(task, "two")).await.unwrap();
    world.accept(world.more(task, "three")).await.unwrap();
    let hears = || async { all_say(&world.store.history(world.tenant, task, u64::MAX).await.unwrap()) };

    let progress = Message { message_id: format!("{task}-s1-1"), ..message(task, Role::Agent, "nearly there") };
    let made = vec![
        artifact(task, "a", "fir", false),
        artifact(task, "b", "and more", false),
        Draft::status(task, CONTEXT, Working, Some(progress), None, clock::now()).unwrap(),
        artifact(task, "a", "st", true),
        artifact(task, "a", "", true),
    ];
    world.append(&lease, made).await.unwrap();
    assert_eq!(hears().await, ["one", "nearly there"], "the turn that runs has not replied");
    world.end(&lease, Completed, None).await.unwrap();
    let first = ["one", "nearly there", "first\nand more", "two"];
    assert_eq!(hears().await, first);
    let told = world.store.history(world.tenant, task, u64::MAX).await.unwrap();
    assert_eq!((&told[2].message_id, told[2].role), (&task.reply_id(1), Role::Agent));
    assert_eq!((&*told[2].task_id, &*told[2].context_id), (&*task.to_string(), CONTEXT));

    // A turn that ends with a message of its own has said what there is to say.
    world.append(&lease, vec![artifact(task, "c", "a long report", false)]).await.unwrap();
    let last_word = Message { message_id: task.reply_id(2), ..message(task, Role::Agent, "it is done") };
    let end = Draft::status(task, CONTEXT, Completed, Some(last_word), None, clock::now()).unwrap();
    world.finish(&lease, TurnEnd::Status(end)).await.unwrap();
    let both: Vec<&str> = first.into_iter().chain(["it is done", "three"]).collect();
    assert_eq!(hears().await, both);
    world.append(&lease, vec![artifact(task, "d", "third", false)]).await.unwrap();
    world.end(&lease, Completed, None).await.unwrap();

    let context = |limit| {
        let (store, tenant, agent) = (&world.store, world.tenant, &world.agent);
        async move {
            all_say(&store.context_history(tenant, agent, CONTEXT, TaskId::mint(), limit, u64::MAX).await.unwrap())
        }
    };
    let all: Vec<&str> = both.into_iter().chain(["third"]).collect();
    assert_eq!(context(20).await, all);
    assert_eq!(context(3).await, ["it is done", "three", "third"]);
    assert_eq!(bytes_say(&world.task(task).await.history), ["one", "two", "three", "nearly there", "it is done"]);
}

pub(super) async fn a_turn_hears_only_so_much(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (task, lease) = world.running("one").await;
    world.accept(world.more(task, "two")).await.unwrap();
    world
        .append(&lease, vec![artifact(task, "a", "hello ", false), artifact(task, "a", &"ä".repeat(200_000), true)])
        .await
        .unwrap();
    world.append(&lease, vec![artifact(task, "a", "and more", true)]).await.unwrap();
    world.end(&lease, Completed, None).await.unwrap();
    let told = all_say(&world.store.history(world.tenant, task, u64::MAX).await.unwrap());
    assert_eq!(told.len(), 3);
    assert!(told[1].starts_with("hello ää") && told[1].ends_with('ä'), "a beginning without a hole");
    assert_eq!(told[1].len(), 64 << 10);
    world.end(&lease, Completed, Some("done")).await.unwrap();

    // Of many long turns the newest are told.
    for n in 0..24 {
        let (task, lease) = world.running(&format!("ask {n}")).await;
        let chunks = (0..3).map(|m| artifact(task, "a", &format!("{n}{}", "x".repeat(50_000)), m > 0)).collect();
        world.append(&lease, chunks).await.unwrap();
        world.end(&lease, Completed, None).await.unwrap();
    }
    let context =
        world.store.context_history(world.tenant, &world.agent, CONTEXT, TaskId::mint(), 100, u64::MAX).await.unwrap();
    let told = all_say(&context);
    assert!(told.iter().map(String::len).sum::<usize>() < 4 << 20, "there is an end to it");
    let last = told.last().unwrap();
    assert!(last.starts_with("23x") && last.len() == 64 << 10, "{} {}", &last[..3], last.len());
    assert_eq!(told.iter().filter(|text| text.starts_with("ask")).count(), 24, "every message is told");
}

pub(super) async fn lists_are_newest_first_in_pages(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let mut tasks = Vec::new();
    for n in 0..7 {
        let (task, mut accept) = world.begin("hello");
        // Some share a millisecond: then the id decides.
        accept.at = a2a::Timestamp::from_millis(1_000_000 + n / 3);
        world.accept(accept).await.unwrap();
        tasks.push(task);
    }
    tasks.reverse();
    let mut seen: Vec<TaskId> = Vec::new();
    let mut after = None;
    loop {
        let filter = Filter { after, limit: 3, ..everything() };
        let page = world.store.list(world.tenant, filter).await.unwrap();
        assert_eq!(page.total, 7);
        seen.extend(page.tasks.iter().map(|task| task.task));
        let Some(next) = page.next else { break };
        let last = page.tasks.last().unwrap();
        assert_eq!(next, PageKey { status_at: last.status_at, task: last.task });
        after = Some(next);
    }
    assert_eq!(seen, tasks);
    // A page that holds exactly the rest has no next.
    let page = world.store.list(world.tenant, Filter { limit: 7, ..everything() }).await.unwrap();
    assert_eq!((page.tasks.len(), page.next), (7, None));

    // A new status moves a task to the front.
    let due = world.lease_one_of(tasks[6]).await;
    let page = world.store.list(world.tenant, Filter { limit: 1, ..everything() }).await.unwrap();
    assert_eq!(page.tasks[0].task, due.task);
}

pub(super) async fn lists_of_many_agents_are_one(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let mut tasks = Vec::new();
    for n in 0..250 {
        // Each agent's tasks are far apart in the list.
        world.agent = format!("agent-{}", n % 125).parse().unwrap();
        let (task, mut accept) = world.begin("hello");
        accept.at = a2a::Timestamp::from_millis(1_000_000 + n / 2);
        world.accept(accept).await.unwrap();
        tasks.push(task);
    }
    tasks.reverse();
    let mut seen: Vec<TaskId> = Vec::new();
    let mut after = None;
    loop {
        let page = world.store.list(world.tenant, Filter { after, limit: 60, ..everything() }).await.unwrap();
        assert_eq!(page.total, 250);
        seen.extend(page.tasks.iter().map(|task| task.task));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, tasks);
    let since = Some(a2a::Timestamp::from_millis(1_000_000 + 120));
    let page = world.store.list(world.tenant, Filter { since, limit: 60, ..everything() }).await.unwrap();
    assert_eq!((page.total, page.tasks.len(), page.next), (10, 10, None));
    let agent = Some("agent-7".parse().unwrap());
    let page = world.store.list(world.tenant, Filter { agent, limit: 60, ..everything() }).await.unwrap();
    let found: Vec<TaskId> = page.tasks.iter().map(|task| task.task).collect();
    assert_eq!(found, [tasks[249 - 132], tasks[249 - 7]]);
}

impl World {
    /// Leases one task, which is `task`.
    async fn lease_one_of(&self, task: TaskId) -> Lease {
        let mut leased = self.store.claim(self.claim(vec![Room::new(self.agent.clone(), 1)])).await.unwrap();
        let turn = leased.pop().unwrap();
        assert_eq!(turn.lease.task, task, "the oldest is leased first");
        turn.lease
    }
}

pub(super) async fn lists_are_filtered_and_counted(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let (first, lease) = world.running("one").await;
    world.end(&lease, Completed, None).await.unwrap();
    tick().await;
    let second = world.waiting("two").await;
    let since = world.task(second).await.status_at;
    tick().await;
    world.agent = agent("other");
    let (third, lease) = world.running("three").await;
    world.end(&lease, Completed, None).await.unwrap();
    world.held("hidden").await;

    let list = |filter: Filter| async {
        let page = world.store.list(world.tenant, filter).await.unwrap();
        let tasks: Vec<TaskId> = page.tasks.iter().map(|task| task.task).collect();
        assert_eq!(page.total, tasks.len() as u64, "the total is that of the filter");
        tasks
    };
    let echo = Some(agent("echo"));
    assert_eq!(list(everything()).await, [third, second, first]);
    assert_eq!(list(Filter { agent: echo.clone(), ..everything() }).await, [second, first]);
    assert_eq!(list(Filter { state: Some(Completed), ..everything() }).await, [third, first]);
    assert_eq!(list(Filter { agent: echo, state: Some(Completed), ..everything() }).await, [first]);
    assert_eq!(list(Filter { state: Some(Failed), ..everything() }).await, []);
    assert_eq!(list(Filter { since: Some(since), ..everything() }).await, [third, second]);
    assert_eq!(list(Filter { context: Some(CONTEXT.into()), ..everything() }).await, [third, second, first]);
    assert_eq!(list(Filter { context: Some("none".into()), ..everything() }).await, []);
    let view = View { history: Some(0), artifacts: false, ..View::FULL };
    let page = world.store.list(world.tenant, Filter { view, ..everything() }).await.unwrap();
    assert!(page.tasks.iter().all(|task| task.history.is_empty()));
}

pub(super) async fn totals_follow_every_change(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let counts = || async {
        let mut counts = Vec::new();
        for state in [Submitted, Working, InputRequired, Completed, a2a::TaskState::Canceled] {
            let filter = Filter { state: Some(state), ..everything() };
            counts.push(world.store.list(world.tenant, filter).await.unwrap().total);
        }
        counts
    };
    let task = world.waiting("hello").await;
    assert_eq!(counts().await, [1, 0, 0, 0, 0]);
    let turn = world.lease_one().await;
    assert_eq!(counts().await, [0, 1, 0, 0, 0]);
    world.append(&turn.lease, vec![status(task, Working, Some("still"))]).await.unwrap();
    assert_eq!(counts().await, [0, 1, 0, 0, 0]);
    world.end(&turn.lease, InputRequired, None).await.unwrap();
    assert_eq!(counts().await, [0, 0, 1, 0, 0]);
    let lease = world.accept(world.leased(world.more(task, "more"))).await.unwrap().lease.unwrap();
    assert_eq!(counts().await, [0, 1, 0, 0, 0]);
    world.end(&lease, Completed, None).await.unwrap();
    let canceled = world.waiting("hello").await;
    world.store.mark_cancel(world.tenant, canceled).await.unwrap();
    assert_eq!(counts().await, [0, 0, 0, 1, 1]);
    let (held, lease) = world.held("hello").await;
    assert_eq!(counts().await, [0, 0, 0, 1, 1]);
    world.finish(&lease, reply(held, "direct")).await.unwrap();
    assert_eq!(counts().await, [0, 0, 0, 1, 1]);
}

pub(super) async fn others_tasks_do_not_exist(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    let (task, lease) = world.running("secret").await;
    let before = (world.task(task).await, world.events(task).await);
    let (store, tenant) = (&other.store, other.tenant);
    let stolen = Lease { tenant, ..lease.clone() };

    assert!(matches!(store.head(tenant, task).await, Err(Error::NotFound)));
    assert!(matches!(store.task(tenant, task, View::FULL).await, Err(Error::NotFound)));
    assert!(matches!(store.events(tenant, task, 0, 10).await, Err(Error::NotFound)));
    assert!(matches!(store.history(tenant, task, u64::MAX).await, Err(Error::NotFound)));
    assert!(matches!(store.turn_message(tenant, task, 1).await, Err(Error::NotFound)));
    assert!(matches!(store.mark_cancel(tenant, task).await, Err(Error::NotFound)));
    assert!(matches!(store.force_cancel(tenant, task).await, Err(Error::NotFound)));
    assert!(matches!(store.reveal(tenant, task).await, Err(Error::NotFound)));
    assert!(matches!(store.wake(tenant, task).await, Err(Error::NotFound)));
    assert!(matches!(store.delete(tenant, "tester", Removal::Task(task), 1).await, Err(Error::NotFound)));
    assert!(matches!(store.delete(tenant, "tester", Removal::Context(CONTEXT.into()), 1).await, Err(Error::NotFound)));
    assert!(store.unfinished(tenant, CONTEXT, 10).await.unwrap().is_empty());
    assert!(matches!(other.accept(other.more(task, "more")).await, Err(Error::NotFound)));
    let end = Append { drafts: vec![], end: Some(TurnEnd::Release { begun: true }), ..Append::default() };
    assert!(matches!(store.append(&stolen, end).await, Err(Error::NotFound)));
    assert_eq!(store.renew(std::slice::from_ref(&stolen), NOTHING).await.unwrap(), [stolen]);
    let page = store.list(tenant, everything()).await.unwrap();
    assert_eq!((page.tasks.len(), page.total), (0, 0));
    let context = store.context_history(tenant, &other.agent, CONTEXT, TaskId::mint(), 10, u64::MAX).await.unwrap();
    assert!(context.is_empty());

    // Each has a task of the same agent, in a context of the same name and in the same state.
    let (own, _lease) = other.running("own").await;
    for (of, task) in [(&world, task), (&other, own)] {
        for context in [None, Some(CONTEXT.to_owned())] {
            let page = store.list(of.tenant, Filter { context, ..everything() }).await.unwrap();
            let tasks: Vec<TaskId> = page.tasks.iter().map(|found| found.task).collect();
            assert_eq!((tasks, page.total), (vec![task], 1));
        }
    }

    assert_eq!((world.task(task).await, world.events(task).await), before);
    world.end(&lease, Completed, None).await.unwrap();
}

pub(super) async fn a_context_remembers_its_older_tasks(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let (first, lease) = world.running("one").await;
    world.end(&lease, Completed, Some("first")).await.unwrap();
    let (second, lease) = world.held("two").await;
    world.finish(&lease, reply(second, "second")).await.unwrap();
    let (third, _lease) = world.running("three").await;
    world.agent = agent("other");
    world.running("foreign").await;
    world.agent = agent("echo");
    let before = TaskId::mint();
    world.running("later").await;

    let hears = |before, limit| {
        let (store, tenant, agent) = (&world.store, world.tenant, &world.agent);
        async move { all_say(&store.context_history(tenant, agent, CONTEXT, before, limit, u64::MAX).await.unwrap()) }
    };
    assert_eq!(hears(before, 10).await, ["one", "first", "two", "second", "three"]);
    assert_eq!(hears(third, 10).await, ["one", "first", "two", "second"]);
    assert_eq!(hears(before, 2).await, ["second", "three"]);
    assert_eq!(hears(before, 0).await, Vec::<String>::new());
    assert_eq!(hears(first, 10).await, Vec::<String>::new());
    let none = world.store.context_history(world.tenant, &world.agent, "none", before, 10, u64::MAX).await.unwrap();
    assert!(none.is_empty());
}

pub(super) async fn children_name_their_parent(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let other = world.other().await;
    let parent = world.waiting("work").await;
    let begin = async |world: &World, origin: Option<String>| {
        let (task, mut accept) = world.begin("part of it");
        if let Target::New { origin: stored, .. } = &mut accept.target {
            *stored = origin.map(Into::into);
        }
        world.accept(accept).await.unwrap();
        task
    };
    let named = |parent: TaskId| Some(format!(r#"{{"correlation":"c","parent":"{parent}"}}"#));
    let first = begin(&world, named(parent)).await;
    begin(&world, None).await;
    begin(&world, named(first)).await;
    let second = begin(&world, named(parent)).await;
    begin(&other, named(parent)).await;
    let children = async |limit| world.store.children(world.tenant, parent, limit).await.unwrap();
    assert_eq!(children(10).await, [first, second]);
    assert_eq!(children(1).await, [first]);
    assert_eq!(world.store.children(world.tenant, second, 10).await.unwrap(), []);
}
