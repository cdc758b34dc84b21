//! Query parameters, in camelCase and in snake_case, read into the fields that the protocol gives them.

use a2a::{
    Error, ListTaskPushNotificationConfigsRequest, ListTasksRequest, TaskState, Timestamp, Zoned, error::excerpt,
};
use percent_encoding::percent_decode_str;

/// The parameters of one request, decoded, in order.
#[derive(Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Takes a query string apart.
    pub(crate) fn parse(query: Option<&str>) -> Result<Self, Error> {
        let mut pairs = Vec::new();
        for pair in query.unwrap_or_default().split('&') {
            if pair.is_empty() {
                continue;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((decode(name)?, decode(value)?));
        }
        Ok(Self { pairs })
    }

    /// The first value under either name, however often it is there.
    pub(crate) fn any(&self, name: &str, alias: &str) -> Option<&str> {
        self.pairs.iter().find(|(key, _)| key == name || key == alias).map(|(_, value)| value.as_str())
    }

    /// The value under one of these names. An empty value is none; a second one is the error of `field`.
    pub(crate) fn one_of(&self, field: &str, names: &[&str]) -> Result<Option<&str>, Error> {
        let mut values = self.pairs.iter().filter(|(key, _)| names.contains(&key.as_str()));
        let first = values.next().map(|(_, value)| value.as_str());
        if values.next().is_some() {
            return Err(Error::invalid(field, "must be given once"));
        }
        Ok(first.filter(|value| !value.is_empty()))
    }

    /// The agent that is meant.
    pub(crate) fn tenant(&self) -> Result<&str, Error> {
        Ok(self.one_of("tenant", &["tenant"])?.unwrap_or_default())
    }

    /// `historyLength`.
    pub(crate) fn history_length(&self) -> Result<Option<i32>, Error> {
        self.number("historyLength", "history_length")
    }

    /// All that ListTasks takes.
    pub(crate) fn list_tasks(&self) -> Result<ListTasksRequest, Error> {
        Ok(ListTasksRequest {
            tenant: self.tenant()?.to_owned(),
            context_id: self.text("contextId", "context_id")?,
            status: self.status()?,
            page_size: self.number("pageSize", "page_size")?,
            page_token: self.text("pageToken", "page_token")?,
            history_length: self.history_length()?,
            status_timestamp_after: self.timestamp("statusTimestampAfter", "status_timestamp_after")?.map(Zoned),
            include_artifacts: self.flag("includeArtifacts", "include_artifacts")?,
        })
    }

    /// All that ListTaskPushNotificationConfigs takes beside the task.
    pub(crate) fn list_push(&self, task_id: String) -> Result<ListTaskPushNotificationConfigsRequest, Error> {
        Ok(ListTaskPushNotificationConfigsRequest {
            tenant: self.tenant()?.to_owned(),
            task_id,
            page_size: self.number("pageSize", "page_size")?.unwrap_or_default(),
            page_token: self.text("pageToken", "page_token")?,
        })
    }

    /// Whether what has not ended is to be canceled before it goes.
    pub(crate) fn cancel(&self) -> Result<bool, Error> {
        Ok(self.flag("cancel", "cancel")?.unwrap_or(false))
    }

    /// Whether the tasks are asked for that a task has begun. Looking for them costs more than the task itself.
    pub(crate) fn children(&self) -> Result<bool, Error> {
        Ok(self.flag("children", "children")?.unwrap_or(false))
    }

    fn text(&self, name: &str, alias: &str) -> Result<String, Error> {
        Ok(self.one_of(name, &[name, alias])?.unwrap_or_default().to_owned())
    }

    fn number(&self, name: &str, alias: &str) -> Result<Option<i32>, Error> {
        let Some(text) = self.one_of(name, &[name, alias])? else {
            return Ok(None);
        };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Error::invalid(name, format!("must be a whole number, not {}", excerpt(text)))),
        }
    }

    fn status(&self) -> Result<TaskState, Error> {
        let Some(text) = self.one_of("status", &["status"])? else {
            return Ok(TaskState::Unspecified);
        };
        let state = match text.parse() {
            Ok(number) => TaskState::from_number(number),
            Err(_) => TaskState::from_name(text),
        };
        state.ok_or_else(|| Error::invalid("status", format!("must be a task state, not {}", excerpt(text))))
    }

    fn timestamp(&self, name: &str, alias: &str) -> Result<Option<Timestamp>, Error> {
        let Some(text) = self.one_of(name, &[name, alias])? else {
            return Ok(None);
        };
        // The plus of an offset that was not escaped arrives as a space.
        match text.replace(' ', "+").parse() {
            Ok(timestamp) => Ok(Some(timestamp)),
            Err(_) => Err(Error::invalid(name, format!("must be an RFC 3339 date and time, not {}", excerpt(text)))),
        }
    }

    fn flag(&self, name: &str, alias: &str) -> Result<Option<bool>, Error> {
        match self.one_of(name, &[name, alias])? {
            None => Ok(None),
            Some("true" | "True" | "1") => Ok(Some(true)),
            Some("false" | "False" | "0") => Ok(Some(false)),
            Some(text) => Err(Error::invalid(name, format!("must be true or false, not {}", excerpt(text)))),
        }
    }
}

fn decode(text: &str) -> Result<String, Error> {
    let spaced = text.replace('+', " ");
    match percent_decode_str(&spaced).decode_utf8() {
        Ok(decoded) => Ok(decoded.into_owned()),
        Err(_) => Err(Error::invalid("query", "must be UTF-8 text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(query: &str) -> Result<ListTasksRequest, Error> {
        Query::parse(Some(query)).and_then(|query| query.list_tasks())
    }

    #[test]
    fn both_spellings_of_every_parameter() {
        let expected = ListTasksRequest {
            tenant: "echo".into(),
            context_id: "c 1".into(),
            status: TaskState::Working,
            page_size: Some(5),
            page_token: "a/b=".into(),
            history_length: Some(0),
            status_timestamp_after: Some(Zoned("2026-03-01T12:00:00+01:00".parse().unwrap())),
            include_artifacts: Some(true),
        };
        let camel = "tenant=echo&contextId=c%201&status=TASK_STATE_WORKING&pageSize=5&pageToken=a%2Fb%3D&historyLength=0\
                     &statusTimestampAfter=2026-03-01T12:00:00%2B01:00&includeArtifacts=true&unknown=1&unknown=2";
        let snake = "tenant=echo&context_id=c+1&status=2&page_size=5&page_token=a/b=&history_length=0\
                     &status_timestamp_after=2026-03-01T12:00:00+01:00&include_artifacts=1";
        assert_eq!(list(camel).unwrap(), expected);
        assert_eq!(list(snake).unwrap(), expected);
        assert_eq!(list("").unwrap(), ListTasksRequest::default());
        assert_eq!(list("contextId=&pageSize=&status=").unwrap(), ListTasksRequest::default());
    }

    #[test]
    fn a_page_of_push_configurations_in_both_spellings() {
        let list = |query: &str| Query::parse(Some(query)).and_then(|query| query.list_push("t".into()));
        let expected = ListTaskPushNotificationConfigsRequest {
            tenant: "echo".into(),
            task_id: "t".into(),
            page_size: 5,
            page_token: "a/b=".into(),
        };
        assert_eq!(list("tenant=echo&pageSize=5&pageToken=a%2Fb%3D&taskId=other").unwrap(), expected);
        assert_eq!(list("tenant=echo&page_size=5&page_token=a/b=").unwrap(), expected);
        assert_eq!(list("pageSize=x").unwrap_err().violations[0].field, "pageSize");
        assert_eq!(list("pageToken=a&page_token=a").unwrap_err().violations[0].field, "pageToken");
    }

    #[test]
    fn bad_values_name_their_field() {
        for (query, field) in [
            ("pageSize=x", "pageSize"),
            ("page_size=99999999999", "pageSize"),
            ("status=FOO", "status"),
            ("status=99", "status"),
            ("historyLength=1.5", "historyLength"),
            ("statusTimestampAfter=yesterday", "statusTimestampAfter"),
            ("includeArtifacts=maybe", "includeArtifacts"),
            ("pageSize=1&pageSize=1", "pageSize"),
            ("pageSize=1&page_size=1", "pageSize"),
            ("contextId=%ff", "query"),
        ] {
            let error = list(query).unwrap_err();
            assert_eq!(error.violations[0].field, field, "{query}");
            assert_eq!(error.http_status(), 400);
        }
    }
}
