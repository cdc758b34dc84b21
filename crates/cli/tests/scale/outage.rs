//! A PostgreSQL that is gone for a while. The leases of all run out in that time, and nobody is dead.

use std::time::Duration;

use super::{
    detour::{Detour, Passage},
    postgres::Postgres,
    programs::{Programs, begin},
    rig::{Server, Setting},
};

/// What happens to the database, and to whom.
struct Outage {
    /// It dies. Otherwise it is told to stop.
    dies: bool,
    instances: usize,
    config: &'static str,
    /// How long there is no PostgreSQL.
    away: Duration,
    /// How much later each instance finds it again than the one before.
    apart: Duration,
    /// How long after that programs still run.
    after: Duration,
    fault: Option<&'static str>,
}

impl Outage {
    /// Longer than a lease.
    fn long(instances: usize) -> Self {
        let (away, after) = (Duration::from_secs(5), Duration::from_secs(6));
        // Each tries again within a second; all of them must be back before the patience of the first is over.
        let apart = Duration::from_millis(100);
        Self { dies: true, instances, config: "lease = \"3s\"\n", away, apart, after, fault: None }
    }

    /// A restart, and leases as they are by default. Whoever thinks others dead because their sessions are gone looks for
    /// them every five seconds.
    fn brief(instances: usize) -> Self {
        let (away, after) = (Duration::from_secs(1), Duration::from_secs(12));
        let apart = Duration::from_millis(1500);
        Self { dies: false, instances, config: "", away, apart, after, fault: None }
    }

    /// Says what was disturbed by it.
    async fn run(self) -> Vec<String> {
        let postgres = Postgres::start();
        let mut setting = Setting::on(postgres.url()).with_config(self.config).with_fault(self.fault);
        let programs = Programs::of(&setting);
        let long = (self.away + self.after).as_secs_f32();
        let short = self.away.as_secs_f32() / 2.0;
        let agents = [("fail", long), ("ask", long), ("retry", long), ("fail", short), ("ask", short)];
        let agents = agents.map(|(policy, seconds)| (format!("{policy}-{seconds}"), policy, seconds));
        for (name, policy, seconds) in &agents {
            programs.add(name, policy, 8, *seconds);
        }
        let mut instances: Vec<Server> = Vec::new();
        let mut ways = Vec::new();
        for name in ["a", "b", "c"].into_iter().take(self.instances) {
            let way = Detour::to(postgres.url()).await;
            setting.store = Some(way.url().to_owned());
            instances.push(setting.start(name).await);
            ways.push(way);
        }
        let mut jobs = Vec::new();
        for instance in &instances {
            for (name, ..) in &agents {
                jobs.push(begin(&instance.api(), name, "hello").await);
            }
        }
        programs.have_started(jobs.len()).await;
        // Whoever starts one of them again need not wait for it as long.
        agents.iter().for_each(|(name, ..)| programs.set_pace(name, 0.5));

        if self.dies {
            postgres.kill9()
        } else {
            postgres.stop()
        }
        ways.iter().for_each(|way| way.set(Passage::Cut));
        tokio::time::sleep(self.away).await;
        postgres.start_again();
        for way in &ways {
            way.set(Passage::Open);
            tokio::time::sleep(self.apart).await;
        }
        for instance in &instances {
            instance.becomes(200, Duration::from_secs(15)).await;
        }
        programs.disturbances(&instances[0].api(), &jobs).await
    }
}

#[tokio::test]
async fn an_outage_for_longer_than_a_lease_disturbs_no_turn_of_one_instance() {
    assert_eq!(Outage::long(1).run().await, [""; 0]);
}

#[tokio::test]
async fn an_outage_for_longer_than_a_lease_disturbs_no_turn_of_three_instances() {
    assert_eq!(Outage::long(3).run().await, [""; 0]);
}

#[tokio::test]
async fn a_restart_of_the_database_disturbs_no_turn_of_three_instances() {
    assert_eq!(Outage::brief(3).run().await, [""; 0]);
}

#[tokio::test]
async fn control_a_takeover_after_an_outage_is_noticed() {
    let (apart, fault) = (Duration::from_millis(1500), Some("takeover-at-once"));
    let found = Outage { apart, fault, ..Outage::long(3) }.run().await;
    assert!(!found.is_empty(), "turns of the living were to be taken over");
}
