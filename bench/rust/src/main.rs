//! The echo agent on the official Rust SDK, in memory as it comes: working, one artifact, completed.

use std::{net::SocketAddr, sync::Arc};

use a2a::{
    A2AError, AgentCapabilities, AgentCard, AgentInterface, Artifact, Part, PartContent, StreamResponse,
    TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use a2a_grpc::GrpcHandler;
use a2a_pb::proto::a2a_service_server::A2aServiceServer;
use a2a_server::{
    AgentExecutor, DefaultRequestHandler, ExecutorContext, InMemoryTaskStore, StaticAgentCard,
    agent_card::agent_card_router, jsonrpc::jsonrpc_router, rest::rest_router,
};
use axum::serve::ListenerExt;
use futures::stream::{self, BoxStream, StreamExt};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

/// Says back what it was told.
struct Echo;

type Events = BoxStream<'static, Result<StreamResponse, A2AError>>;

impl AgentExecutor for Echo {
    fn execute(&self, context: ExecutorContext) -> Events {
        let mut text = String::new();
        for part in context.message.iter().flat_map(|message| &message.parts) {
            if let PartContent::Text(said) = &part.content {
                text.push_str(said);
            }
        }
        let artifact = Artifact {
            artifact_id: uuid::Uuid::new_v4().to_string(),
            name: None,
            description: None,
            parts: vec![Part::text(text)],
            metadata: None,
            extensions: None,
        };
        let said = StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: context.task_id.clone(),
            context_id: context.context_id.clone(),
            artifact,
            append: None,
            last_chunk: Some(true),
            metadata: None,
        });
        let events = [status(&context, TaskState::Working), said, status(&context, TaskState::Completed)].map(Ok);
        stream::iter(events).boxed()
    }

    fn cancel(&self, context: ExecutorContext) -> Events {
        stream::iter([Ok(status(&context, TaskState::Canceled))]).boxed()
    }
}

fn status(context: &ExecutorContext, state: TaskState) -> StreamResponse {
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
        task_id: context.task_id.clone(),
        context_id: context.context_id.clone(),
        status: TaskStatus { state, message: None, timestamp: None },
        metadata: None,
    })
}

fn card(origin: &str, grpc: &str, capabilities: AgentCapabilities) -> AgentCard {
    let interface = |url: String, binding: &str| AgentInterface {
        url,
        protocol_binding: binding.to_owned(),
        protocol_version: "1.0".to_owned(),
        tenant: None,
    };
    AgentCard {
        name: "Echo".to_owned(),
        description: "Says back what it was told.".to_owned(),
        version: "1.0.0".to_owned(),
        supported_interfaces: vec![
            interface(format!("{origin}/"), "JSONRPC"),
            interface(origin.to_owned(), "HTTP+JSON"),
            interface(grpc.to_owned(), "GRPC"),
        ],
        capabilities,
        default_input_modes: vec!["text/plain".to_owned()],
        default_output_modes: vec!["text/plain".to_owned()],
        skills: Vec::new(),
        provider: None,
        documentation_url: None,
        icon_url: None,
        security_schemes: None,
        security_requirements: None,
        signatures: None,
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(0);
    let capabilities = AgentCapabilities { streaming: Some(true), ..AgentCapabilities::default() };
    let handler = DefaultRequestHandler::new(Echo, InMemoryTaskStore::new()).with_capabilities(capabilities.clone());
    let handler = Arc::new(handler);
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    let origin = format!("http://{}", listener.local_addr()?);
    let grpc = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let card = Arc::new(StaticAgentCard::new(card(&origin, &grpc.local_addr()?.to_string(), capabilities)));
    let service = A2aServiceServer::new(GrpcHandler::new(handler.clone()));
    tokio::spawn(Server::builder().tcp_nodelay(true).add_service(service).serve_with_incoming(TcpListenerStream::new(grpc)));
    let app = jsonrpc_router(handler.clone()).merge(rest_router(handler)).merge(agent_card_router(card));
    println!("listening on {origin}");
    // `axum::serve` leaves Nagle's algorithm on, which makes every stream wait for delayed acknowledgements.
    let listener = listener.tap_io(|connection| {
        let _ = connection.set_nodelay(true);
    });
    axum::serve(listener, app).await
}
