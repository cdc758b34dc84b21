//! The columns of `a2a_tasks`, once: every statement that reads or writes whole rows is made from this list, and every
//! store binds the same values. A new column is a migration, a line here and its two conversions.

use bytes::Bytes;

use super::{
    Hidden, TaskRow,
    row::{Aftermath, Dead, Parking},
};
use crate::{Result, TaskId, TenantId, Tokens, codec};

/// Hands the columns beside the keys to a macro, as `[name type-in-SQL type-here]`: those that are written once, and after
/// the semicolon those that change.
macro_rules! task_columns {
    ($with:ident) => {
        $with! {
            [tenant_id bigint i64]
            [agent_id text &'a str]
            [context_id text &'a str]
            [created_at bigint i64]
            [remembers boolean bool]
            [queued boolean bool]
            [from_agent text &'a str]
            [priority bigint i64]
            [max_attempts bigint Option<i64>]
            [replays text Option<&'a str>];
            [state text &'a str]
            [updated_at bigint i64]
            [status_at bigint i64]
            [status_message text Option<&'a str>]
            [status_turn bigint i64]
            [seq bigint i64]
            [hidden bigint i64]
            [due_at bigint Option<i64>]
            [owner text Option<&'a str>]
            [generation bigint i64]
            [attempt bigint i64]
            [turn bigint i64]
            [waiting bigint i64]
            [cancel_mark boolean bool]
            [releases bigint i64]
            [interrupted boolean bool]
            [overdue boolean bool]
            [parking bigint i64]
            [kept bigint i64]
            [kept_before bigint i64]
            [pushes bigint i64]
            [dead bigint i64]
            [errors text Option<&'a str>]
            [origin text Option<&'a str>]
            [aftermath bigint i64]
            [input_tokens bigint i64]
            [output_tokens bigint i64]
        }
    };
}
pub(crate) use task_columns;

/// A column: its name and its type in SQL.
pub(crate) type Column = (&'static str, &'static str);

macro_rules! define {
    ($([$once:ident $once_sql:ident $once_type:ty])*; $([$name:ident $sql:ident $type:ty])*) => {
        /// A row as its columns hold it, without its keys.
        pub(crate) struct Columns<'a> {
            $(pub(crate) $once: $once_type,)*
            $(pub(crate) $name: $type,)*
        }

        /// The columns that are written once.
        pub(crate) const ONCE: &[Column] = &[$((stringify!($once), stringify!($once_sql))),*];
        /// The columns that change.
        pub(crate) const CHANGING: &[Column] = &[$((stringify!($name), stringify!($sql))),*];
    };
}
task_columns!(define);

/// The expression of a column where nothing is read that is as long as its tenant has made it.
pub(crate) fn bare(name: &str, expression: &str) -> String {
    if name == "status_message" { "NULL".to_owned() } else { expression.to_owned() }
}

/// All columns beside the keys, in order.
pub(crate) fn all() -> impl Iterator<Item = &'static Column> {
    ONCE.iter().chain(CHANGING)
}

/// A list of something about each column.
pub(crate) fn list<'c>(columns: impl Iterator<Item = &'c Column>, of: impl Fn(&'c Column) -> String) -> String {
    columns.map(of).collect::<Vec<_>>().join(", ")
}

impl<'a> Columns<'a> {
    /// What is to be written of a row.
    pub(crate) fn of(row: &'a TaskRow) -> Self {
        Self {
            tenant_id: row.tenant.0,
            agent_id: row.agent.as_str(),
            context_id: &row.context,
            created_at: row.created_at,
            remembers: row.remembers,
            queued: row.queued,
            from_agent: &row.from,
            priority: row.priority.into(),
            max_attempts: row.max_attempts.map(i64::from),
            replays: row.replays.as_deref(),
            origin: row.origin.as_deref(),
            state: codec::state_name(row.state),
            updated_at: row.updated_at,
            status_at: row.status_at,
            // JSON of ours is UTF-8: it was made by a serialiser.
            status_message: row.status_message.as_ref().and_then(|json| codec::text(json).ok()),
            status_turn: row.status_turn.into(),
            seq: codec::signed(row.seq),
            hidden: row.hidden as i64,
            due_at: row.due_at,
            owner: row.owner.as_deref(),
            generation: codec::signed(row.generation),
            attempt: row.attempt.into(),
            turn: row.turn.into(),
            waiting: row.waiting.into(),
            cancel_mark: row.cancel_mark,
            releases: row.releases.into(),
            interrupted: row.interrupted,
            overdue: row.overdue,
            parking: row.parking as i64,
            kept: codec::signed(row.kept),
            kept_before: codec::signed(row.kept_before),
            pushes: row.pushes.into(),
            dead: row.dead as i64,
            errors: row.errors.as_deref(),
            aftermath: row.aftermath as i64,
            input_tokens: codec::signed(row.tokens.input),
            output_tokens: codec::signed(row.tokens.output),
        }
    }

    /// The row that was read.
    pub(crate) fn row(self, pk: i64, task: TaskId) -> Result<TaskRow> {
        let (tenant, agent) = (TenantId(self.tenant_id), codec::parse_agent(self.agent_id)?);
        let (hidden, created_at) = (Hidden::from_code(self.hidden), codec::time(self.created_at));
        let mut row = TaskRow::new(pk, task, tenant, agent, self.context_id.into(), hidden, created_at);
        row.remembers = self.remembers;
        row.queued = self.queued;
        row.from = self.from_agent.into();
        row.priority = u8::try_from(self.priority).unwrap_or(0);
        row.max_attempts = self.max_attempts.map(codec::small);
        row.replays = self.replays.map(str::to_owned);
        row.origin = self.origin.map(Into::into);
        row.dead = Dead::from_code(self.dead);
        row.errors = self.errors.map(str::to_owned);
        row.aftermath = Aftermath::from_code(self.aftermath);
        row.tokens = Tokens { input: codec::unsigned(self.input_tokens), output: codec::unsigned(self.output_tokens) };
        row.state = codec::parse_state(self.state)?;
        row.updated_at = self.updated_at;
        row.status_at = self.status_at;
        row.status_message = self.status_message.map(|json| Bytes::copy_from_slice(json.as_bytes()));
        row.status_turn = codec::small(self.status_turn);
        row.seq = codec::unsigned(self.seq);
        row.due_at = self.due_at;
        row.owner = self.owner.map(str::to_owned);
        row.generation = codec::unsigned(self.generation);
        row.attempt = codec::small(self.attempt);
        row.turn = codec::small(self.turn);
        row.waiting = codec::small(self.waiting);
        row.cancel_mark = self.cancel_mark;
        row.releases = codec::small(self.releases);
        row.interrupted = self.interrupted;
        row.overdue = self.overdue;
        row.parking = Parking::from_code(self.parking);
        row.kept = codec::unsigned(self.kept);
        row.kept_before = codec::unsigned(self.kept_before);
        row.pushes = codec::small(self.pushes);
        Ok(row.stored())
    }
}
