//! Servers and a client over plain TCP, with which the benchmarks compare calls.

use std::{io, net::SocketAddr, time::Instant};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Size of a small message, in bytes. A null call takes about as many bytes on the wire, and so does its reply.
pub(crate) const SMALL: usize = 96;

/// Serves connections, and sends received data back at once.
pub(crate) async fn echo_server(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let _ = echo(stream).await;
        });
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buf = vec![0; 64 << 10];
    loop {
        let n = stream.read(&mut buf).await?;
        if n == 0 {
            return Ok(());
        }
        stream.write_all(&buf[..n]).await?;
    }
}

/// Serves connections with requests of 8 bytes: a direction and a length `len` of at most 1 MiB. For the direction 0,
/// the server sends `len` bytes. For the direction 1, it receives `len` bytes, and replies with one byte.
pub(crate) async fn bulk_server(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let _ = bulk(stream).await;
        });
    }
}

async fn bulk(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buf = vec![0x5a; 1 << 20];
    loop {
        let direction = stream.read_u32().await?;
        let len = (stream.read_u32().await? as usize).min(buf.len());
        if direction == 0 {
            stream.write_all(&buf[..len]).await?;
        } else {
            stream.read_exact(&mut buf[..len]).await?;
            stream.write_u8(1).await?;
        }
    }
}

/// A client of [`echo_server`] or [`bulk_server`].
pub(crate) struct Client {
    stream: TcpStream,
    buf: Vec<u8>,
}

impl Client {
    /// Connects to a server.
    pub(crate) async fn connect(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buf: vec![0x5a; 1 << 20] })
    }

    /// Makes `n` small echoes in sequence. Appends the time of each to `samples`, in nanoseconds.
    pub(crate) async fn ping(&mut self, n: usize, samples: &mut Vec<u64>) -> io::Result<()> {
        for _ in 0..n {
            let start = Instant::now();
            self.stream.write_all(&self.buf[..SMALL]).await?;
            self.stream.read_exact(&mut self.buf[..SMALL]).await?;
            samples.push(start.elapsed().as_nanos() as u64);
        }
        Ok(())
    }

    /// Makes `n` small echoes with `depth` in flight. Each write sends all echoes that are due.
    pub(crate) async fn pipeline(&mut self, n: usize, depth: usize) -> io::Result<()> {
        let (mut reader, mut writer) = self.stream.split();
        let (mut sent, mut received) = (0, 0);
        let out = vec![0x5a; SMALL * depth];
        let mut buf = vec![0; 64 << 10];
        while received < n * SMALL {
            let due = (received / SMALL + depth).min(n) - sent;
            if due > 0 {
                writer.write_all(&out[..due * SMALL]).await?;
                sent += due;
            }
            received += reader.read(&mut buf).await?;
        }
        Ok(())
    }

    /// Moves `n` blocks of `len` bytes: to the server if `put` is `true`, and otherwise from it. Requests at most
    /// `depth` blocks from the server in advance.
    pub(crate) async fn bulk(&mut self, put: bool, n: usize, len: usize, depth: usize) -> io::Result<()> {
        let mut request = [0; 8];
        request[..4].copy_from_slice(&u32::from(put).to_be_bytes());
        request[4..].copy_from_slice(&(len as u32).to_be_bytes());
        let (mut reader, mut writer) = self.stream.split();
        let source = vec![0x5a; len];
        if put {
            let send = async {
                for _ in 0..n {
                    writer.write_all(&request).await?;
                    writer.write_all(&source).await?;
                }
                Ok::<_, io::Error>(())
            };
            let receive = async {
                for _ in 0..n {
                    reader.read_u8().await?;
                }
                Ok::<_, io::Error>(())
            };
            tokio::try_join!(send, receive)?;
        } else {
            let mut asked = 0;
            for done in 0..n {
                while asked < n && asked < done + depth {
                    writer.write_all(&request).await?;
                    asked += 1;
                }
                reader.read_exact(&mut self.buf[..len]).await?;
            }
        }
        Ok(())
    }
}
