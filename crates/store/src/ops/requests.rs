//! Where the log has what came with the messages of a task beside them: the member `requests` of its origin, by turn.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Result;

#[derive(Deserialize)]
struct Origin {
    #[serde(default)]
    requests: BTreeMap<u32, u64>,
}

/// The event of a turn's request.
pub(crate) fn of(origin: Option<&str>, turn: u32) -> Option<u64> {
    serde_json::from_str::<Origin>(origin?).ok()?.requests.get(&turn).copied()
}

/// The origin with the event of one more. Those of turns before the `current` one are of no use any more.
pub(super) fn with(origin: Option<&str>, current: u32, turn: u32, seq: u64) -> Result<Arc<str>> {
    let stored = origin.unwrap_or("{}");
    let mut members: Map<String, Value> = serde_json::from_str(stored).unwrap_or_default();
    let mut requests = serde_json::from_str::<Origin>(stored).map(|origin| origin.requests).unwrap_or_default();
    requests.retain(|turn, _| *turn >= current);
    requests.insert(turn, seq);
    members.insert("requests".to_owned(), serde_json::to_value(requests)?);
    Ok(serde_json::to_string(&members)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_finds_its_own_request_until_it_is_over() {
        let first = with(Some(r#"{"correlation":"c"}"#), 0, 1, 2).unwrap();
        let third = with(Some(&first), 1, 3, 7).unwrap();
        assert_eq!([1, 2, 3].map(|turn| of(Some(&third), turn)), [Some(2), None, Some(7)]);
        assert_eq!(&*third, r#"{"correlation":"c","requests":{"1":2,"3":7}}"#);
        let fourth = with(Some(&third), 3, 4, 9).unwrap();
        assert_eq!([1, 3, 4].map(|turn| of(Some(&fourth), turn)), [None, Some(7), Some(9)]);
        assert_eq!((of(None, 1), of(Some("{"), 1), of(Some("{}"), 1)), (None, None, None));
    }
}
