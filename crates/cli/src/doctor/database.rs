//! What PostgreSQL gives: whether it answers, is new enough, keeps what it is given, and who works on it.

use store::{
    Location,
    postgres::{Inspection, Url, inspect},
};

use crate::{config::Config, findings::Finding, journal};

/// The first version that has all that the journal needs.
const MIN_VERSION: i32 = 130_000;

/// Connections of an instance beside those that read: the writer, administration, notifications, tokens, the proof of life, and those that
/// wait for locks.
const BESIDE: usize = 12;

/// Everything about the database. One look at it, several findings.
pub(super) async fn examine(config: &Config, location: &Location, url: &Url) -> Vec<Finding> {
    let found = match inspect(url).await {
        Ok(found) => found,
        Err(error) => return vec![Finding::failure("postgresql", journal::failure(location, &error))],
    };
    let mut findings = vec![server(location, &found), schema(&found), durability(&found), connections(config, &found)];
    findings.extend(instances(&found));
    findings
}

fn server(location: &Location, found: &Inspection) -> Finding {
    let subject = "postgresql";
    let line = if found.encrypted { "encrypted" } else { "not encrypted" };
    let detail = format!("{} at {location}, {line}", found.version);
    if found.version_number < MIN_VERSION {
        return Finding::fail(subject, format!("{detail}: it is too old"), "use PostgreSQL 13 or newer");
    }
    Finding::ok(subject, detail)
}

fn schema(found: &Inspection) -> Finding {
    let subject = "journal";
    let known = found.known_schema;
    if let Some(why) = &found.unwritable {
        let hint = "give the role what it needs: it has to own the database, or its schema `public`";
        return Finding::fail(subject, format!("it cannot be written: {why}"), hint);
    }
    let Some(schema) = found.schema else {
        return Finding::ok(subject, "none yet; the first start makes it");
    };
    let mut detail = format!("schema {schema}, {} KiB", found.bytes >> 10);
    if let Some(content) = &found.journal {
        detail.push_str(&format!(", {} tasks, {} events", content.tasks, content.events));
    }
    if schema > known {
        let hint = "run the version that wrote it, or use another database";
        return Finding::fail(subject, format!("{detail}: a newer version wrote it (this one knows {known})"), hint);
    }
    if schema < known {
        let hint =
            "copy it first, with `pg_dump` or the `sb` that wrote it, if you may want to go back; see docs/deploy.md";
        return Finding::warn(subject, format!("{detail}: the next start brings it to {known}"), hint);
    }
    Finding::ok(subject, detail)
}

fn durability(found: &Inspection) -> Finding {
    let subject = "durability";
    let commit = &found.synchronous_commit;
    let fsync = if found.fsync { "on" } else { "off" };
    let detail = format!("synchronous_commit {commit}, fsync {fsync}");
    if !found.fsync {
        let hint = "set fsync = on in postgresql.conf: without it a crash of the machine may lose or damage everything";
        return Finding::fail(subject, detail, hint);
    }
    match commit.as_str() {
        "on" | "remote_apply" | "remote_write" | "local" => Finding::ok(subject, detail),
        _ => Finding::fail(
            subject,
            detail,
            "what is acknowledged must be on disk: let the role's synchronous_commit be on",
        ),
    }
}

fn connections(config: &Config, found: &Inspection) -> Finding {
    let subject = "connections";
    let wanted = config.open.connections + BESIDE;
    let there = usize::try_from(found.max_connections).unwrap_or_default();
    let detail = format!("this instance may use {wanted}, the server has {there} for all");
    if wanted >= there {
        return Finding::fail(subject, detail, "lower store_connections, or raise the server's max_connections");
    }
    Finding::ok(subject, detail)
}

fn instances(found: &Inspection) -> Option<Finding> {
    let subject = "instances";
    let content = found.journal.as_ref()?;
    let detail = format!("{} alive, {} gone without a word", content.live.len(), content.dead.len());
    Some(if content.live.is_empty() && !content.dead.is_empty() {
        Finding::warn(subject, detail, "start a server: it takes over what they left")
    } else {
        Finding::ok(subject, detail)
    })
}

#[cfg(test)]
mod tests {
    use store::postgres::Content;

    use super::*;
    use crate::findings::Level;

    fn well() -> Inspection {
        Inspection {
            version: "15.8".into(),
            version_number: 150_008,
            schema: Some(1),
            known_schema: 1,
            unwritable: None,
            fsync: true,
            synchronous_commit: "on".into(),
            encrypted: true,
            max_connections: 100,
            bytes: 1 << 20,
            journal: Some(Content { tasks: 3, events: 9, live: vec!["a".into()], dead: Vec::new() }),
        }
    }

    #[test]
    fn a_database_is_judged() {
        let location = Location::parse("postgres://sb:secret@db/agents").unwrap();
        assert_eq!(server(&location, &well()).level, Level::Ok);
        assert!(!server(&location, &well()).detail.contains("secret"));
        assert_eq!(server(&location, &Inspection { version_number: 120_000, ..well() }).level, Level::Fail);
        assert_eq!(schema(&well()).level, Level::Ok);
        assert_eq!(schema(&Inspection { schema: Some(2), ..well() }).level, Level::Fail);
        assert_eq!(schema(&Inspection { known_schema: 2, ..well() }).level, Level::Warn);
        assert_eq!(schema(&Inspection { schema: None, journal: None, ..well() }).level, Level::Ok);
        assert_eq!(schema(&Inspection { unwritable: Some("no".into()), ..well() }).level, Level::Fail);
        assert_eq!(durability(&well()).level, Level::Ok);
        assert_eq!(durability(&Inspection { fsync: false, ..well() }).level, Level::Fail);
        for commit in ["off", "local"] {
            let found = Inspection { synchronous_commit: commit.into(), ..well() };
            // With `local` a commit is on this server's disk.
            assert_eq!(durability(&found).level == Level::Ok, commit == "local", "{commit}");
        }
        assert_eq!(instances(&well()).unwrap().level, Level::Ok);
        let gone = Content { dead: vec!["a".into()], ..Content::default() };
        assert_eq!(instances(&Inspection { journal: Some(gone), ..well() }).unwrap().level, Level::Warn);
        assert!(instances(&Inspection { journal: None, ..well() }).is_none());
    }
}
