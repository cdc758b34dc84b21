//! Workloads, each with a check of what is promised to its clients.

mod queue;
mod tasks;
pub(crate) mod webhooks;

pub(crate) use queue::Queue;
pub(crate) use tasks::Tasks;
pub(crate) use webhooks::Webhooks;

use super::{
    Installation, Instances, client, http, log, random,
    report::{self, Report},
    run::Workload,
    sse,
};
