//! Servers under load while faults happen to them.
//!
//! A [`ChaosRun`] starts [`Instances`] of one [`Installation`], gives them a workload, lets a [`Plan`] of [`Fault`]s happen
//! to them, and ends with a [`Report`] of the promises that were broken. There are three workloads: [`Tasks`],
//! [`Webhooks`] and [`Queue`]. Suites with a course of their own use the instances and the faults without a run.
//!
//! Everything is done to the built binary, over the wire. Each check has negative controls: the same run against servers
//! that break a promise on purpose (`SB_FAULT`, debug builds only) must find it broken. `SB_SEED` repeats the choices of
//! a run. Results are in `docs/faults.md`.

mod client;
mod disk;
mod fault;
mod instances;
mod network;
mod postgres;
mod programs;
mod report;
mod run;
mod workloads;
mod write_lock;

pub(crate) use disk::{Disk, with_small_disk};
pub(crate) use fault::Fault;
pub(crate) use instances::{ADMIN_TOKEN, Installation, Instances, becomes, readiness};
pub(crate) use network::{LastCommit, Network, Passage};
pub(crate) use postgres::{Postgres, connect};
pub(crate) use programs::{Job, POLICIES, Programs, attempts, begin};
pub(crate) use run::{ChaosRun, Plan};
pub(crate) use testkit::nats::Nats;
pub(crate) use workloads::{Queue, Tasks, Webhooks, webhooks};

use crate::harness::{Ended, Home, PATIENCE, Server, TOKEN, http, log, random, sse};
