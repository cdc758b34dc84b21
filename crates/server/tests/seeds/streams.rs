//! Reading streams: the events of 1.0, the records of the 0.3 dialect and the results in them.

use serde_json::{Value, json};

use super::wire::Reply;

impl Reply {
    /// The events of a stream, as numbers and bodies.
    pub(crate) fn events(&self) -> Vec<(u64, Value)> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"), "{self:?}");
        let mut events = Vec::new();
        for event in self.body.split_terminator("\n\n").filter(|event| !event.starts_with(':')) {
            let (id, data) = event.split_once('\n').unwrap();
            let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            events.push((id.strip_prefix("id: ").unwrap().parse().unwrap(), data));
        }
        events
    }

    /// The events of a stream as numbers, types and data, without comments.
    pub(crate) fn records(&self) -> Vec<(Option<u64>, String, Value)> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"), "{self:?}");
        let mut records = Vec::new();
        for record in self.body.split_terminator("\n\n").filter(|record| !record.starts_with(':')) {
            let (mut id, mut event, mut data) = (None, String::new(), Value::Null);
            for line in record.lines() {
                match line.split_once(": ").unwrap() {
                    ("id", number) => id = Some(number.parse().unwrap()),
                    ("event", name) => event = name.to_owned(),
                    ("data", json) => data = serde_json::from_str(json).unwrap(),
                    _ => panic!("odd line: {line}"),
                }
            }
            records.push((id, event, data));
        }
        records
    }

    /// The results of a stream of JSON-RPC responses.
    pub(crate) fn results(&self) -> Vec<Value> {
        let records = self.records().into_iter();
        records
            .map(|(_, _, mut data)| {
                assert_eq!((&data["jsonrpc"], &data["id"]), (&json!("2.0"), &json!("r-1")));
                let result = data["result"].take();
                let parts = result["artifact"]["parts"].as_array().map(Vec::len);
                assert!(
                    result["kind"] != "artifact-update" || parts > Some(0),
                    "an artifact without parts: {result:#}"
                );
                result
            })
            .collect()
    }
}
