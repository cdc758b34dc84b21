//! What is looked at in the replies of a server with bounds.

use crate::edge::wire::Reply;

impl Reply {
    /// The headers whose names begin like this.
    pub(crate) fn names(&self, prefix: &str) -> Vec<&str> {
        let names = self.headers.iter().map(|(name, _)| name.as_str());
        names.filter(|name| name.starts_with(prefix)).collect()
    }

    /// Whether one of the lines of this header says exactly this.
    pub(crate) fn says(&self, name: &str, value: &str) -> bool {
        self.headers.iter().any(|(key, said)| key == name && said == value)
    }

    /// Checks that this is 429 in the form of HTTP, and gives the seconds to wait.
    pub(crate) fn retry_after(&self) -> u64 {
        assert_eq!((self.status, self.reason().as_str()), (429, "RESOURCE_EXHAUSTED"), "{self:?}");
        let seconds: u64 = self.header("retry-after").unwrap_or_else(|| panic!("{self:?}")).parse().unwrap();
        let body = self.json();
        assert_eq!(body["error"]["status"], "RESOURCE_EXHAUSTED");
        let details = body["error"]["details"].as_array().unwrap();
        let info = details.iter().find(|detail| detail["@type"] == "type.googleapis.com/google.rpc.RetryInfo");
        assert_eq!(info.unwrap()["retryDelay"], format!("{seconds}s"));
        seconds
    }
}
