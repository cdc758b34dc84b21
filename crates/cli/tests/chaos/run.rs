//! One run: instances, a workload, a plan of faults, and the report.

use std::time::{Duration, Instant};

use super::{Fault, Installation, Instances, becomes, random::Random, report::Report};

/// How long an instance may take to be ready again after the last fault.
const RECOVERY: Duration = Duration::from_secs(20);

/// A run. All choices follow from one seed, which is printed.
pub(crate) struct ChaosRun<W> {
    pub(crate) installation: Installation,
    pub(crate) instances: usize,
    pub(crate) plan: Plan,
    pub(crate) workload: W,
}

/// Which faults happen to random instances, how often and for how long.
pub(crate) struct Plan {
    pub(crate) fault: Fault,
    /// Milliseconds between two faults, at least and at most.
    pub(crate) every: (u64, u64),
    pub(crate) lasts: Duration,
    /// The plan goes on until there were so many faults.
    pub(crate) at_least: usize,
}

/// Load for instances, and a check of what they made of it.
pub(crate) trait Workload {
    /// The configuration file that instances need for it.
    fn config(&self) -> String;

    /// Adds agents before the first instance starts.
    fn prepare(&self, _installation: &Installation) {}

    /// Starts clients, which go on by themselves.
    async fn start(&mut self, instances: &Instances, random: &mut Random);

    /// Whether clients have nothing more to begin, which ends the plan when there were enough faults.
    fn is_over(&self) -> bool {
        false
    }

    /// Ends the clients when what they began is done, and waits until the instances have done the rest.
    async fn drain(&mut self, instances: &Instances, random: &mut Random);

    /// Compares what clients were told with what is there.
    async fn check(self, instances: &Instances, random: &mut Random) -> Report;
}

impl Plan {
    /// Kills an instance every so many milliseconds, and starts it again at once.
    pub(crate) fn kills(every: (u64, u64), lasts: Duration) -> Self {
        Self { fault: Fault::KILL, every, lasts, at_least: 0 }
    }

    /// Returns how many faults happened.
    async fn happen(&self, instances: &mut Instances, random: &mut Random, is_over: impl Fn() -> bool) -> usize {
        let begun = Instant::now();
        let mut faults = 0;
        loop {
            let pause = self.every.0 + random.below(self.every.1 - self.every.0 + 1);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if faults >= self.at_least && (is_over() || begun.elapsed() > self.lasts) {
                return faults;
            }
            let victim = random.index(instances.len());
            instances.apply(&self.fault, victim).await;
            faults += 1;
        }
    }
}

impl<W: Workload> ChaosRun<W> {
    pub(crate) async fn run(self) -> Report {
        let Self { installation, instances, plan, mut workload } = self;
        let begun = Instant::now();
        let mut random = Random::new();
        let installation = installation.with_config(&workload.config());
        workload.prepare(&installation);
        let mut instances = Instances::start(installation, instances).await;
        workload.start(&instances, &mut random).await;
        let faults = plan.happen(&mut instances, &mut random, || workload.is_over()).await;
        workload.drain(&instances, &mut random).await;
        for server in instances.servers() {
            becomes(server, 200, RECOVERY).await;
        }
        let mut report = workload.check(&instances, &mut random).await;
        report.count("faults", faults);
        report.count("seconds", usize::try_from(begun.elapsed().as_secs()).unwrap_or_default());
        eprintln!("{report}");
        report
    }
}
