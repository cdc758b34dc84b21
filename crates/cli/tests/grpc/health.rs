//! Health for everybody, reflection for callers with a token.

use prost_reflect::{DescriptorPool, prost::Message};

use super::{
    grpc::{Answer, Grpc, Messages, framed},
    http::reason,
    rig::Rig,
};

const CHECK: &str = "grpc.health.v1.Health/Check";
const WATCH: &str = "grpc.health.v1.Health/Watch";
const REFLECTION: [&str; 2] = [
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// A protobuf string field.
fn field(number: u8, text: &str) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

async fn raw(grpc: &Grpc, path: &str, message: &[u8]) -> (Vec<u8>, Answer) {
    let response = grpc.raw(path, framed(message)).send().await.unwrap();
    let headers = response.headers().clone();
    let (status, http) = (response.status().as_u16(), http_body_util::BodyExt::collect(reqwest::Body::from(response)));
    let collected = http.await.unwrap();
    let trailers = collected.trailers().cloned().unwrap_or_else(|| headers.clone());
    (collected.to_bytes().to_vec(), Answer { status, headers, messages: Vec::new(), trailers })
}

#[tokio::test]
async fn health_is_what_readiness_is_and_needs_no_token() {
    let rig = Rig::start(&[]).await;
    let anybody = rig.grpc().without("authorization").without("a2a-version");
    for service in ["", "lf.a2a.v1.A2AService", "secondbrain.a2a.A2AGateway"] {
        let (body, answer) = raw(&anybody, CHECK, &field(1, service)).await;
        assert_eq!(answer.code(), Some(0), "{answer:?}");
        assert_eq!(body, framed(&[8, 1]), "SERVING");
    }
    let (_, unknown) = raw(&anybody, CHECK, &field(1, "somebody.Else")).await;
    assert_eq!(reason(&unknown.error(5)), "SERVICE_NOT_FOUND");
    let (_, unknown) = raw(&anybody, "grpc.health.v1.Health/Nothing", b"").await;
    assert_eq!(reason(&unknown.error(12)), "METHOD_NOT_FOUND");
}

#[tokio::test]
async fn a_watch_hears_that_the_server_stops() {
    let rig = Rig::start(&[]).await;
    let watching = Messages::of(rig.grpc().raw(WATCH, framed(b"")), None).await;
    let reading = tokio::spawn(watching.finish());
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert!(!reading.is_finished(), "it goes on");
    rig.server.signal("TERM");
    let ended = reading.await.unwrap();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
}

#[tokio::test]
async fn reflection_names_the_services_to_callers_with_a_token() {
    let rig = Rig::start(&[]).await;
    for path in REFLECTION {
        let (body, answer) = raw(&rig.grpc(), path, &field(7, "")).await;
        assert_eq!(answer.code(), Some(0), "{answer:?}");
        let listed = String::from_utf8_lossy(&body).into_owned();
        for service in ["lf.a2a.v1.A2AService", "secondbrain.a2a.A2AGateway", "grpc.health.v1.Health"] {
            assert!(listed.contains(service), "{listed:?}");
        }
        let (_, refused) = raw(&rig.grpc().without("authorization"), path, &field(7, "")).await;
        assert_eq!(reason(&refused.error(16)), "UNAUTHENTICATED");
    }
    // The file that defines the service is the proto as others know it.
    let (body, _) = raw(&rig.grpc(), REFLECTION[0], &field(4, "lf.a2a.v1.A2AService")).await;
    let file = DescriptorPool::decode(a2a::grpc::DESCRIPTORS).unwrap();
    let file = file.get_file_by_name("a2a.proto").unwrap().file_descriptor_proto().encode_to_vec();
    assert!(body.windows(200).any(|window| file.windows(200).next() == Some(window)), "the file is in the answer");
}

#[tokio::test]
async fn an_open_reflection_does_not_hold_up_a_stop() {
    let mut rig = Rig::start(&[]).await;
    let (sender, body) = tokio::sync::mpsc::channel::<Result<Vec<u8>, std::io::Error>>(1);
    let asked = futures_util::stream::unfold(body, |mut body| async move { Some((body.recv().await?, body)) });
    let request = rig.grpc().raw(REFLECTION[0], Vec::new()).body(reqwest::Body::wrap_stream(asked));
    sender.send(Ok(framed(&field(7, "")))).await.unwrap();
    let open = Messages::of(request, None).await;
    let begun = std::time::Instant::now();
    assert!(rig.server.ends_well().await);
    assert!(begun.elapsed().as_secs() < 8, "it ended with the server, not after its grace");
    drop((open, sender));
}
