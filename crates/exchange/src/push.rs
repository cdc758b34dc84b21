//! The operations on push notification configurations.

use a2a::{
    DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, TaskPushNotificationConfig,
};

use crate::{Call, Error, Exchange};

impl Exchange {
    /// Whether notifications are sent here at all. Cards say so.
    pub fn pushes(&self) -> bool {
        false
    }

    /// CreateTaskPushNotificationConfig. What comes back has no secrets in it.
    pub async fn create_push(
        &self,
        call: &Call,
        config: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig, Error> {
        self.target(call, &config.tenant)?;
        Err(Error::PushNotSupported)
    }

    /// GetTaskPushNotificationConfig.
    pub async fn get_push(
        &self,
        call: &Call,
        request: GetTaskPushNotificationConfigRequest,
    ) -> Result<TaskPushNotificationConfig, Error> {
        self.target(call, &request.tenant)?;
        Err(Error::PushNotSupported)
    }

    /// ListTaskPushNotificationConfigs.
    pub async fn list_push(
        &self,
        call: &Call,
        request: ListTaskPushNotificationConfigsRequest,
    ) -> Result<ListTaskPushNotificationConfigsResponse, Error> {
        self.target(call, &request.tenant)?;
        Err(Error::PushNotSupported)
    }

    /// DeleteTaskPushNotificationConfig. What is not there is gone already.
    pub async fn delete_push(
        &self,
        call: &Call,
        request: DeleteTaskPushNotificationConfigRequest,
    ) -> Result<(), Error> {
        self.target(call, &request.tenant)?;
        Err(Error::PushNotSupported)
    }
}
