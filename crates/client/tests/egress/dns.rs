//! A name server that changes its mind, and a resolver that asks it.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use client::egress::Resolve;
use tokio::net::UdpSocket;

const A: u16 = 1;
const AAAA: u16 = 28;
const HEADER: usize = 12;

/// What a name has when it is asked for.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Addresses(Vec<IpAddr>),
    Silence,
}

/// Asks a name server of this test over UDP: for A, then for AAAA.
#[derive(Debug)]
pub(crate) struct Dns {
    server: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Dns {
    /// The first resolution gets the first answer and so on; the last answer stays.
    pub(crate) async fn start(answers: Vec<Answer>) -> Arc<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let server = socket.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        tokio::spawn(serve(socket, answers, Arc::clone(&asked)));
        Arc::new(Self { server, asked })
    }

    pub(crate) async fn with(answers: &[&[&str]]) -> Arc<Self> {
        let answers = answers.iter().map(|answer| Answer::Addresses(crate::egress::addresses(answer)));
        Self::start(answers.collect()).await
    }

    /// How often somebody began to resolve a name.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    async fn ask(&self, host: &str, kind: u16) -> io::Result<Vec<IpAddr>> {
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        socket.connect(self.server).await?;
        socket.send(&query(host, kind)).await?;
        let mut reply = [0; 1500];
        let length = socket.recv(&mut reply).await?;
        Ok(read_answers(&reply[..length]))
    }
}

#[async_trait]
impl Resolve for Dns {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let mut found = self.ask(host, A).await?;
        found.extend(self.ask(host, AAAA).await?);
        Ok(found)
    }
}

async fn serve(socket: UdpSocket, answers: Vec<Answer>, asked: Arc<AtomicUsize>) {
    let mut query = [0; 512];
    loop {
        let (length, from) = socket.recv_from(&mut query).await.unwrap();
        let query = &query[..length];
        let kind = u16::from_be_bytes([query[length - 4], query[length - 3]]);
        if kind == A {
            asked.fetch_add(1, Ordering::SeqCst);
        }
        let turn = asked.load(Ordering::SeqCst).clamp(1, answers.len());
        if let Answer::Addresses(addresses) = &answers[turn - 1] {
            socket.send_to(&reply(query, kind, addresses), from).await.unwrap();
        }
    }
}

/// RFC 1035, section 4.1: a header, and one question.
fn query(host: &str, kind: u16) -> Vec<u8> {
    let mut query = vec![0x5b, 0x5b, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in host.trim_end_matches('.').split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend(label.bytes());
    }
    query.push(0);
    query.extend(kind.to_be_bytes());
    query.extend([0, 1]);
    query
}

/// The question again, and those addresses that are of its kind. Nobody may keep them.
fn reply(query: &[u8], kind: u16, addresses: &[IpAddr]) -> Vec<u8> {
    let mut reply = query.to_vec();
    reply[2..4].copy_from_slice(&[0x81, 0x80]);
    for address in addresses {
        let data = match (address, kind) {
            (IpAddr::V4(address), A) => address.octets().to_vec(),
            (IpAddr::V6(address), AAAA) => address.octets().to_vec(),
            _ => continue,
        };
        reply[7] += 1;
        reply.extend([0xc0, HEADER as u8]);
        reply.extend(kind.to_be_bytes());
        reply.extend([0, 1, 0, 0, 0, 0, 0, u8::try_from(data.len()).unwrap()]);
        reply.extend(data);
    }
    reply
}

fn read_answers(reply: &[u8]) -> Vec<IpAddr> {
    let mut at = HEADER;
    while reply[at] != 0 {
        at += usize::from(reply[at]) + 1;
    }
    at += 5;
    let mut found = Vec::new();
    for _ in 0..reply[7] {
        let length = usize::from(reply[at + 11]);
        let data = &reply[at + 12..at + 12 + length];
        found.push(match <[u8; 4]>::try_from(data) {
            Ok(octets) => IpAddr::from(octets),
            Err(_) => IpAddr::from(<[u8; 16]>::try_from(data).unwrap()),
        });
        at += 12 + length;
    }
    found
}
