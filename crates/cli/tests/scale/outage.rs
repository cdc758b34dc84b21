//! A PostgreSQL that is gone for a while. The leases of all run out in that time, and no instance is dead.

use std::time::Duration;

use crate::chaos::{Fault, Installation, Instances, Programs, begin};

struct Outage {
    is_killed: bool,
    instances: usize,
    config: &'static str,
    /// How long there is no PostgreSQL.
    away: Duration,
    /// How much later each instance finds it again than the one before.
    apart: Duration,
    /// How long programs still run after that.
    after: Duration,
    installation: Installation,
}

impl Outage {
    /// Longer than a lease.
    fn long(instances: usize) -> Self {
        let (away, after) = (Duration::from_secs(5), Duration::from_secs(6));
        // Each tries again within a second; all of them must be back before the grace of the first is over.
        let (apart, installation) = (Duration::from_millis(100), Installation::on_its_own_postgres());
        Self { is_killed: true, instances, config: "lease = \"3s\"\n", away, apart, after, installation }
    }

    /// A restart, and leases as they are by default. An instance that took others for dead because their sessions are gone
    /// would look for them every five seconds.
    fn brief(instances: usize) -> Self {
        let (away, after) = (Duration::from_secs(1), Duration::from_secs(12));
        let (apart, installation) = (Duration::from_millis(1500), Installation::on_its_own_postgres());
        Self { is_killed: false, instances, config: "", away, apart, after, installation }
    }

    /// Returns what was disturbed by it.
    async fn run(self) -> Vec<String> {
        let Self { is_killed, away, apart, .. } = self;
        let installation = self.installation.with_config(self.config);
        let (long, short) = ((away + self.after).as_secs_f32(), away.as_secs_f32() / 2.0);
        let agents = [
            ("fail-long", "fail", 8, long),
            ("ask-long", "ask", 8, long),
            ("retry-long", "retry", 8, long),
            ("fail-short", "fail", 8, short),
            ("ask-short", "ask", 8, short),
        ];
        let programs = Programs::of(&installation, &agents);
        let mut instances = Instances::start_with_networks(installation, self.instances).await;
        let mut jobs = Vec::new();
        for server in instances.servers() {
            for (name, ..) in agents {
                jobs.push(begin(&server.api(), name, "hello").await);
            }
        }
        programs.have_started(jobs.len()).await;
        // A second start of one of them need not take as long.
        agents.into_iter().for_each(|(name, ..)| programs.set_pace(name, 0.5));
        instances.apply(&Fault::DatabaseOutage { is_killed, away, apart }, 0).await;
        programs.disturbances(&instances[0].api(), &jobs).await
    }
}

#[tokio::test]
async fn an_outage_for_longer_than_a_lease_disturbs_no_turn() {
    let one = Box::pin(Outage::long(1).run());
    let three = Box::pin(Outage::long(3).run());
    let (one, three) = tokio::join!(one, three);
    assert_eq!([one, three].concat(), [""; 0]);
}

#[tokio::test]
async fn a_restart_of_the_database_disturbs_no_turn() {
    assert_eq!(Outage::brief(3).run().await, [""; 0]);
}

#[tokio::test]
async fn control_a_takeover_after_an_outage_is_noticed() {
    let mut outage = Outage { apart: Duration::from_millis(1500), ..Outage::long(3) };
    outage.installation = outage.installation.breaking("takeover-at-once");
    let found = outage.run().await;
    assert!(!found.is_empty(), "turns of the living were to be taken over");
}
