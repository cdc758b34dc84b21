//! What a request must hold beyond its types: required fields, ranges and sizes. The first fault found is the error, with
//! the path of the field.

use crate::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Error, GetTaskPushNotificationConfigRequest,
    GetTaskRequest, Json, JsonObject, ListTaskPushNotificationConfigsRequest, ListTasksRequest, Message, Part,
    PartContent, Role, SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig, wire,
};

/// How big things may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Ids that others choose: of messages, tasks, contexts, configurations.
    pub id_bytes: usize,
    /// Each `metadata` object.
    pub metadata_bytes: usize,
    /// Parts of a message, and entries of each other list in it.
    pub parts: usize,
    /// Nesting of `metadata` and `data`. It stays below the 128 levels that serde_json reads.
    pub json_depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { id_bytes: 1024, metadata_bytes: 1 << 20, parts: 1000, json_depth: 100 }
    }
}

impl Limits {
    /// Reads something whose lists are no longer than that: whoever sends more entries is refused before there is a place for all of them.
    pub fn reading<T>(&self, read: impl FnOnce() -> T) -> T {
        wire::within(self.parts, read)
    }
}

/// SendMessage and SendStreamingMessage.
pub fn validate_send(request: &SendMessageRequest, limits: &Limits) -> Result<(), Error> {
    id("tenant", &request.tenant, limits)?;
    validate_message("message", &request.message, limits)?;
    match request.message.role {
        Role::User => {}
        Role::Unspecified => return Err(Error::invalid("message.role", "is required")),
        Role::Agent => {
            return Err(Error::invalid("message.role", "must be ROLE_USER in a message to an agent"));
        }
    }
    metadata("metadata", request.metadata.as_ref(), limits)?;
    let Some(configuration) = &request.configuration else {
        return Ok(());
    };
    history_length("configuration.historyLength", configuration.history_length)?;
    validate_count("configuration.acceptedOutputModes", configuration.accepted_output_modes.len(), limits)?;
    if let Some(config) = &configuration.task_push_notification_config {
        push_config("configuration.taskPushNotificationConfig.", config, limits)?;
    }
    Ok(())
}

/// A message of either role.
pub fn validate_message(path: &str, message: &Message, limits: &Limits) -> Result<(), Error> {
    required_id(&format!("{path}.messageId"), &message.message_id, limits)?;
    id(&format!("{path}.contextId"), &message.context_id, limits)?;
    id(&format!("{path}.taskId"), &message.task_id, limits)?;
    metadata(&format!("{path}.metadata"), message.metadata.as_ref(), limits)?;
    let extensions = format!("{path}.extensions");
    validate_count(&extensions, message.extensions.len(), limits)?;
    for (index, uri) in message.extensions.iter().enumerate() {
        id(&format!("{extensions}[{index}]"), uri, limits)?;
    }
    let references = format!("{path}.referenceTaskIds");
    validate_count(&references, message.reference_task_ids.len(), limits)?;
    for (index, task) in message.reference_task_ids.iter().enumerate() {
        required_id(&format!("{references}[{index}]"), task, limits)?;
    }
    validate_parts(&format!("{path}.parts"), &message.parts, limits)
}

/// The parts of a message or an artifact: at least one.
pub fn validate_parts(path: &str, parts: &[Part], limits: &Limits) -> Result<(), Error> {
    if parts.is_empty() {
        return Err(Error::invalid(path, "must hold at least one part"));
    }
    validate_count(path, parts.len(), limits)?;
    for (index, part) in parts.iter().enumerate() {
        // Paths are made for errors only: parts are the hot part of a request.
        let at = |name: &str| format!("{path}[{index}].{name}");
        if let PartContent::Data(data) = &part.content {
            depth(data, limits).map_err(|description| Error::invalid(at("data"), description))?;
        }
        if let Some(object) = &part.metadata {
            object_fits(object, limits).map_err(|description| Error::invalid(at("metadata"), description))?;
        }
        if part.filename.len() > limits.id_bytes {
            return Err(Error::invalid(at("filename"), too_long(limits)));
        }
        if part.media_type.len() > limits.id_bytes {
            return Err(Error::invalid(at("mediaType"), too_long(limits)));
        }
    }
    Ok(())
}

pub fn validate_get(request: &GetTaskRequest, limits: &Limits) -> Result<(), Error> {
    id("tenant", &request.tenant, limits)?;
    required_id("id", &request.id, limits)?;
    history_length("historyLength", request.history_length)
}

pub fn validate_list(request: &ListTasksRequest, limits: &Limits) -> Result<(), Error> {
    id("tenant", &request.tenant, limits)?;
    id("contextId", &request.context_id, limits)?;
    id("pageToken", &request.page_token, limits)?;
    if let Some(size) = request.page_size
        && !(1..=100).contains(&size)
    {
        return Err(Error::invalid("pageSize", "must be from 1 to 100"));
    }
    history_length("historyLength", request.history_length)
}

pub fn validate_cancel(request: &CancelTaskRequest, limits: &Limits) -> Result<(), Error> {
    id("tenant", &request.tenant, limits)?;
    required_id("id", &request.id, limits)?;
    metadata("metadata", request.metadata.as_ref(), limits)
}

pub fn validate_subscribe(request: &SubscribeToTaskRequest, limits: &Limits) -> Result<(), Error> {
    id("tenant", &request.tenant, limits)?;
    required_id("id", &request.id, limits)
}

/// CreateTaskPushNotificationConfig, where the task has to be named.
pub fn validate_push_config(config: &TaskPushNotificationConfig, limits: &Limits) -> Result<(), Error> {
    required_id("taskId", &config.task_id, limits)?;
    push_config("", config, limits)
}

pub fn validate_get_push_config(request: &GetTaskPushNotificationConfigRequest, limits: &Limits) -> Result<(), Error> {
    id("tenant", &request.tenant, limits)?;
    required_id("taskId", &request.task_id, limits)?;
    required_id("id", &request.id, limits)
}

pub fn validate_delete_push_config(
    request: &DeleteTaskPushNotificationConfigRequest,
    limits: &Limits,
) -> Result<(), Error> {
    id("tenant", &request.tenant, limits)?;
    required_id("taskId", &request.task_id, limits)?;
    required_id("id", &request.id, limits)
}

/// A page size of 0 is an unset one here: the proto does not track its presence.
pub fn validate_list_push_configs(
    request: &ListTaskPushNotificationConfigsRequest,
    limits: &Limits,
) -> Result<(), Error> {
    id("tenant", &request.tenant, limits)?;
    required_id("taskId", &request.task_id, limits)?;
    // A token has an id in it.
    if request.page_token.len() > 2 * limits.id_bytes {
        return Err(Error::invalid("pageToken", format!("must be at most {} bytes long", 2 * limits.id_bytes)));
    }
    if !(0..=100).contains(&request.page_size) {
        return Err(Error::invalid("pageSize", "must be from 1 to 100"));
    }
    Ok(())
}

fn push_config(prefix: &str, config: &TaskPushNotificationConfig, limits: &Limits) -> Result<(), Error> {
    id(&format!("{prefix}tenant"), &config.tenant, limits)?;
    id(&format!("{prefix}id"), &config.id, limits)?;
    id(&format!("{prefix}taskId"), &config.task_id, limits)?;
    if config.url.is_empty() {
        return Err(Error::invalid(format!("{prefix}url"), "is required"));
    }
    // Twice the length of an id: webhook addresses carry tokens.
    if config.url.len() > 2 * limits.id_bytes {
        return Err(Error::invalid(
            format!("{prefix}url"),
            format!("must be at most {} bytes long", 2 * limits.id_bytes),
        ));
    }
    id(&format!("{prefix}token"), &config.token, limits)?;
    if let Some(authentication) = &config.authentication {
        required_id(&format!("{prefix}authentication.scheme"), &authentication.scheme, limits)?;
        // Signed tokens are longer than ids; servers take heads of about this size.
        if authentication.credentials.len() > 8 * limits.id_bytes {
            let why = format!("must be at most {} bytes long", 8 * limits.id_bytes);
            return Err(Error::invalid(format!("{prefix}authentication.credentials"), why));
        }
    }
    Ok(())
}

fn required_id(path: &str, value: &str, limits: &Limits) -> Result<(), Error> {
    if value.is_empty() {
        return Err(Error::invalid(path, "is required"));
    }
    id(path, value, limits)
}

fn id(path: &str, value: &str, limits: &Limits) -> Result<(), Error> {
    if value.len() > limits.id_bytes {
        return Err(Error::invalid(path, too_long(limits)));
    }
    // PostgreSQL cannot hold it, and nobody means it.
    if value.contains('\0') {
        return Err(Error::invalid(path, "must not hold a NUL character"));
    }
    Ok(())
}

fn too_long(limits: &Limits) -> String {
    format!("must be at most {} bytes long", limits.id_bytes)
}

/// Checks how many entries a list has.
pub fn validate_count(path: &str, length: usize, limits: &Limits) -> Result<(), Error> {
    if length > limits.parts {
        return Err(Error::invalid(path, format!("must hold at most {} entries", limits.parts)));
    }
    Ok(())
}

fn history_length(path: &str, length: Option<i32>) -> Result<(), Error> {
    if length.is_some_and(|length| length < 0) {
        return Err(Error::invalid(path, "must not be negative"));
    }
    Ok(())
}

fn metadata(path: &str, object: Option<&JsonObject>, limits: &Limits) -> Result<(), Error> {
    let Some(object) = object else {
        return Ok(());
    };
    object_fits(object, limits).map_err(|description| Error::invalid(path, description))
}

fn object_fits(object: &JsonObject, limits: &Limits) -> Result<(), String> {
    if object.get().len() > limits.metadata_bytes {
        return Err(format!("must be at most {} bytes long", limits.metadata_bytes));
    }
    depth(object.as_json(), limits)
}

fn depth(json: &Json, limits: &Limits) -> Result<(), String> {
    if json.depth() > limits.json_depth {
        return Err(format!("must not nest deeper than {} levels", limits.json_depth));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, SendMessageConfiguration, decode};

    fn good() -> SendMessageRequest {
        decode(br#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a"}]}}"#).unwrap()
    }

    fn field(change: impl FnOnce(&mut SendMessageRequest)) -> String {
        let mut request = good();
        change(&mut request);
        let error = validate_send(&request, &Limits::default()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidParams);
        error.violations[0].field.clone()
    }

    fn nested(levels: usize) -> String {
        format!("{}1{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn each_rule_of_a_send_names_its_field() {
        assert_eq!(validate_send(&good(), &Limits::default()), Ok(()));
        assert_eq!(field(|r| r.message.message_id.clear()), "message.messageId");
        assert_eq!(field(|r| r.message.role = Role::Unspecified), "message.role");
        assert_eq!(field(|r| r.message.role = Role::Agent), "message.role");
        assert_eq!(field(|r| r.message.parts.clear()), "message.parts");
        assert_eq!(field(|r| r.message.parts = vec![Part::text("a"); 1001]), "message.parts");
        assert_eq!(field(|r| r.message.context_id = "x".repeat(1025)), "message.contextId");
        assert_eq!(field(|r| r.message.task_id = "a\0b".into()), "message.taskId");
        assert_eq!(
            field(|r| r.message.reference_task_ids = vec!["t".into(), String::new()]),
            "message.referenceTaskIds[1]"
        );
        assert_eq!(
            field(|r| r.message.parts.push(Part::data(Json::from_text(&nested(101)).unwrap()))),
            "message.parts[1].data"
        );
        assert_eq!(
            field(|r| r.message.parts[0].metadata = JsonObject::from_text(&format!(r#"{{"a":{}}}"#, nested(100))).ok()),
            "message.parts[0].metadata"
        );
        assert_eq!(
            field(|r| r.metadata = JsonObject::from_text(&format!(r#"{{"a":"{}"}}"#, "x".repeat(1 << 20))).ok()),
            "metadata"
        );
        assert_eq!(
            field(|r| {
                r.configuration = Some(SendMessageConfiguration { history_length: Some(-1), ..Default::default() });
            }),
            "configuration.historyLength"
        );
        assert_eq!(
            field(|r| {
                r.configuration = Some(SendMessageConfiguration {
                    task_push_notification_config: Some(TaskPushNotificationConfig::default()),
                    ..Default::default()
                });
            }),
            "configuration.taskPushNotificationConfig.url"
        );
    }

    #[test]
    fn limits_themselves_are_allowed() {
        let mut request = good();
        request.message.message_id = "x".repeat(1024);
        request.message.parts = vec![Part::data(Json::from_text(&nested(100)).unwrap()); 1000];
        request.configuration = Some(SendMessageConfiguration { history_length: Some(0), ..Default::default() });
        assert_eq!(validate_send(&request, &Limits::default()), Ok(()));
    }

    #[test]
    fn ranges_of_a_list_are_held() {
        let limits = Limits::default();
        for (size, ok) in [(None, true), (Some(1), true), (Some(100), true), (Some(0), false), (Some(101), false)] {
            let request = ListTasksRequest { page_size: size, ..Default::default() };
            assert_eq!(validate_list(&request, &limits).is_ok(), ok, "{size:?}");
        }
        let request = ListTasksRequest { history_length: Some(-1), ..Default::default() };
        assert_eq!(validate_list(&request, &limits).unwrap_err().violations[0].field, "historyLength");
    }

    #[test]
    fn the_other_requests_need_their_ids() {
        let limits = Limits::default();
        assert!(validate_get(&GetTaskRequest::default(), &limits).is_err());
        assert!(validate_cancel(&CancelTaskRequest::default(), &limits).is_err());
        assert!(validate_subscribe(&SubscribeToTaskRequest::default(), &limits).is_err());
        assert!(validate_push_config(&TaskPushNotificationConfig::default(), &limits).is_err());
        assert!(validate_get_push_config(&GetTaskPushNotificationConfigRequest::default(), &limits).is_err());
        assert!(validate_delete_push_config(&DeleteTaskPushNotificationConfigRequest::default(), &limits).is_err());
        let request = ListTaskPushNotificationConfigsRequest { task_id: "t".into(), ..Default::default() };
        assert_eq!(validate_list_push_configs(&request, &limits), Ok(()));
    }
}
