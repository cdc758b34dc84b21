//! Tests of the journal on SQLite and PostgreSQL.
//! All suites are one program, so that what they share is compiled and linked once.

mod archive;
mod journal;
mod nats;
mod postgres;
mod postgres_instances;
mod postgres_reading;
mod sqlite;
