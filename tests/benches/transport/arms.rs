//! The servers and the measurements. Each measurement compares rpcrdma with a bare program over TCP.

use std::{net::SocketAddr, sync::mpsc, time::Instant};

use bytes::Bytes;
use cpu_time::ProcessTime;
use rpcrdma::{
    client::{Channel, ChannelBuilder},
    rpc::Credential,
    server::{Context, HandlerError, Server, ServerBuilder},
};
use tokio::net::TcpListener;

use crate::{bare, profile::in_flight, report::Figure};

rpcrdma::xdr! {
    const MAX_DATA = 1048576;

    struct get_args { unsigned int count; };
    struct block { @ddp opaque data<MAX_DATA>; };

    program BENCH {
        version BENCH_V1 {
            void NULL(void) = 0;
            block GET(get_args) = 1;
            void PUT(block) = 2;
            void ACT(void) = 3;
        } = 1;
    } = 0x20000BEC;
}

use bench_v1::{BenchV1, BenchV1Client, BenchV1Server};

/// Size of a block that a get or put transfers, in bytes.
pub(crate) const BLOCK: usize = 1 << 20;
/// Number of gets or puts in flight.
pub(crate) const DEPTH: usize = 8;

/// Addresses of the servers.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    echo: SocketAddr,
    bulk: SocketAddr,
    rpc: String,
    tcp: String,
}

pub(crate) struct Service {
    block: Bytes,
}

impl BenchV1 for Service {
    async fn get(&self, _: &Context, args: GetArgs) -> Result<Block, HandlerError> {
        Ok(Block { data: self.block.slice(..(args.count as usize).min(BLOCK)) })
    }

    async fn put(&self, _: &Context, _args: Block) -> Result<(), HandlerError> {
        Ok(())
    }

    async fn act(&self, _: &Context) -> Result<(), HandlerError> {
        Ok(())
    }
}

/// Returns the builder of a server at `url`.
pub(crate) fn server(url: &str) -> ServerBuilder {
    Server::builder()
        .service(BenchV1Server::new(Service { block: Bytes::from(vec![0x5a; BLOCK]) }))
        .credits(128)
        .listen(url)
}

async fn bind(url: &str) -> Server {
    server(url).bind().await.expect("cannot bind the server")
}

/// Sends the addresses of the servers, and then runs the servers on this thread until the process ends: the bare
/// servers for echoes and bulk data, and the rpcrdma servers over iWARP and TCP.
pub(crate) async fn serve(addresses: mpsc::Sender<Addresses>) {
    let echo = TcpListener::bind("127.0.0.1:0").await.expect("cannot bind");
    let bulk = TcpListener::bind("127.0.0.1:0").await.expect("cannot bind");
    let (server, tcp_server) = (bind("iwarp://127.0.0.1:0").await, bind("tcp://127.0.0.1:0").await);
    let found = Addresses {
        echo: echo.local_addr().expect("no address"),
        bulk: bulk.local_addr().expect("no address"),
        rpc: server.urls()[0].clone(),
        tcp: tcp_server.urls()[0].clone(),
    };
    addresses.send(found).expect("client thread ended");
    tokio::join!(bare::echo_server(echo), bare::bulk_server(bulk), server.serve(), tcp_server.serve());
}

fn quantile(samples: &mut [u64], q: f64) -> f64 {
    samples.sort_unstable();
    samples[((samples.len() - 1) as f64 * q) as usize] as f64
}

/// Runs one round for warm-up and `rounds` measured rounds. In each round, every measurement runs with the bare program
/// and then with rpcrdma. If `quick` is `true`, the rounds are shorter. Returns the figures.
pub(crate) async fn run(addresses: Addresses, rounds: usize, quick: bool) -> Vec<Figure> {
    let mut echo = bare::Client::connect(addresses.echo).await.expect("cannot connect");
    let mut bulk = bare::Client::connect(addresses.bulk).await.expect("cannot connect");
    let sys = Credential::sys("client.example", 1000, 100, [4, 24]).to_opaque().expect("a short credential");
    let builder = Channel::builder().credits(128);
    let client = async |builder: ChannelBuilder, url: &str| {
        [BenchV1Client::new(builder.connect(url).await.expect("cannot connect"))]
    };
    let clients = client(builder.clone(), &addresses.rpc).await;
    let with_sys = client(builder.clone().credential(sys), &addresses.rpc).await;
    let over_tcp = client(builder, &addresses.tcp).await;
    let source = Bytes::from(vec![0x5a; BLOCK]);

    let (pings, pipelined, blocks) = if quick { (500, 5_000, 64) } else { (3_000, 40_000, 512) };
    let mut null = Figure { name: "null call, median", unit: "us", aim: "<= 1.05", ..Figure::default() };
    let mut null_sys =
        Figure { name: "null call with AUTH_SYS, median", unit: "us", aim: "<= 1.15", ..Figure::default() };
    let mut null_tcp =
        Figure { name: "null call over tcp://, median", unit: "us", aim: "<= 1.15", ..Figure::default() };
    let mut null_p99 = Figure { name: "null call, 99th percentile", unit: "us", aim: "", ..Figure::default() };
    let mut some = Figure { name: "16 small calls in flight", unit: "k/s", aim: ">= 0.7", ..Figure::default() };
    let mut many = Figure { name: "64 small calls in flight", unit: "k/s", aim: ">= 0.6", ..Figure::default() };
    let mut get = Figure { name: "get 1 MiB, depth 8", unit: "GiB/s", aim: ">= 0.95", ..Figure::default() };
    let mut get_cpu = Figure { name: "get 1 MiB, processor", unit: "ns/KiB", aim: "<= 1.2", ..Figure::default() };
    let mut put = Figure { name: "put 1 MiB, depth 8", unit: "GiB/s", aim: ">= 0.95", ..Figure::default() };
    let mut put_cpu = Figure { name: "put 1 MiB, processor", unit: "ns/KiB", aim: "<= 1.2", ..Figure::default() };
    let gib = |bytes: usize, start: Instant| bytes as f64 / start.elapsed().as_secs_f64() / f64::from(1 << 30);
    let cpu = |bytes: usize, start: ProcessTime| start.elapsed().as_nanos() as f64 / (bytes >> 10) as f64;

    for round in 0..=rounds {
        let warm_up = round == 0;
        let keep = |figure: &mut Figure, bare: f64, ours: f64| {
            if !warm_up {
                figure.bare.push(bare);
                figure.ours.push(ours);
            }
        };

        let mut bare_ns = Vec::with_capacity(pings);
        echo.ping(pings, &mut bare_ns).await.expect("echo");
        let bare_median = quantile(&mut bare_ns, 0.5) / 1e3;
        for (figure, [client]) in [(&mut null, &clients), (&mut null_sys, &with_sys), (&mut null_tcp, &over_tcp)] {
            let mut ours_ns = Vec::with_capacity(pings);
            for _ in 0..pings {
                let start = Instant::now();
                client.null().await.expect("null");
                ours_ns.push(start.elapsed().as_nanos() as u64);
            }
            keep(figure, bare_median, quantile(&mut ours_ns, 0.5) / 1e3);
            if std::ptr::eq(client, &clients[0]) {
                keep(&mut null_p99, quantile(&mut bare_ns, 0.99) / 1e3, quantile(&mut ours_ns, 0.99) / 1e3);
            }
        }

        let rate = |start: Instant| pipelined as f64 / start.elapsed().as_secs_f64() / 1e3;
        for (figure, depth) in [(&mut some, 16), (&mut many, 64)] {
            let start = Instant::now();
            echo.pipeline(pipelined, depth).await.expect("echo");
            let bare_rate = rate(start);
            let start = Instant::now();
            in_flight(pipelined, depth, &clients, |client| client.null()).await;
            keep(figure, bare_rate, rate(start));
        }

        let bytes = blocks * BLOCK;
        let (start, used) = (Instant::now(), ProcessTime::now());
        bulk.bulk(false, blocks, BLOCK, DEPTH).await.expect("bulk");
        let (bare_rate, bare_cpu) = (gib(bytes, start), cpu(bytes, used));
        let (start, used) = (Instant::now(), ProcessTime::now());
        let args = GetArgs { count: BLOCK as u32 };
        in_flight(blocks, DEPTH, &clients, |client| client.get(&args)).await;
        keep(&mut get, bare_rate, gib(bytes, start));
        keep(&mut get_cpu, bare_cpu, cpu(bytes, used));

        let (start, used) = (Instant::now(), ProcessTime::now());
        bulk.bulk(true, blocks, BLOCK, DEPTH).await.expect("bulk");
        let (bare_rate, bare_cpu) = (gib(bytes, start), cpu(bytes, used));
        let (start, used) = (Instant::now(), ProcessTime::now());
        let args = Block { data: source.clone() };
        in_flight(blocks, DEPTH, &clients, |client| client.put(&args)).await;
        keep(&mut put, bare_rate, gib(bytes, start));
        keep(&mut put_cpu, bare_cpu, cpu(bytes, used));
    }
    vec![null, null_p99, null_sys, null_tcp, some, many, get, get_cpu, put, put_cpu]
}
