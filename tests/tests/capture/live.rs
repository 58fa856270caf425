//! Capturing on the loopback interface, and what `tshark` makes of it.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// How long `tshark` may take to begin, and to end.
const LIMIT: Duration = Duration::from_secs(30);

/// A capture under way. Dropping it ends it.
pub(crate) struct Capture {
    child: Child,
    file: PathBuf,
    said: mpsc::Receiver<String>,
}

impl Capture {
    /// Begins to capture what goes to and from this TCP port on the loopback interface.
    ///
    /// Returns why not, where `tshark` is not installed or may not capture.
    pub(crate) fn start(port: u16, file: &Path) -> Result<Self, String> {
        // All of a frame of the loopback interface fits, and a burst fits the kernel's buffer.
        let mut child = Command::new("tshark")
            .args(["-i", "lo", "-n", "-q", "-B", "64", "-f", &format!("tcp port {port}"), "-w"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("tshark cannot be run: {error}"))?;
        let stderr = child.stderr.take().ok_or("tshark has no standard error")?;
        let (say, said) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = say.send(line);
            }
        });
        let capture = Self { child, file: file.to_owned(), said };
        let (mut lines, begun) = (Vec::new(), Instant::now());
        while begun.elapsed() < LIMIT {
            match capture.said.recv_timeout(Duration::from_millis(100)) {
                // "Capturing on 'Loopback: lo'" comes before the capture has begun.
                Ok(line) if line.contains("Capture started") => return Ok(capture),
                Ok(line) => lines.push(line),
                // Versions that say nothing have begun when they have written the file's header.
                Err(RecvTimeoutError::Timeout) if capture.written() > 0 => return Ok(capture),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // What follows the first lines is advice.
        lines.truncate(2);
        Err(format!("tshark does not capture: {}", lines.join("; ")))
    }

    /// Octets in the file.
    fn written(&self) -> u64 {
        std::fs::metadata(&self.file).map_or(0, |file| file.len())
    }

    /// Waits until the file has stopped growing: what is captured reaches it a little later.
    pub(crate) async fn settled(&self) {
        let (mut len, mut since) = (0, 0);
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = self.written();
            since = if now == len { since + 1 } else { 0 };
            len = now;
            if since == 8 {
                break;
            }
        }
    }

    /// Ends the capture; returns its file.
    pub(crate) fn stop(mut self) -> PathBuf {
        // tshark ends in order on an interrupt.
        let interrupted = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        assert!(interrupted.is_ok_and(|status| status.success()), "tshark cannot be interrupted");
        let status = self.child.wait().unwrap();
        let lines: Vec<_> = self.said.iter().collect();
        assert!(status.success(), "tshark failed: {lines:?}");
        assert!(!lines.iter().any(|line| line.contains("dropped")), "packets are missing: {lines:?}");
        std::mem::take(&mut self.file)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A capture dissected, as PDML: XML in which every field of every packet stands in the order of the wire.
pub(crate) fn dissect(file: &Path) -> String {
    // Two passes: in one, a reply whose result came by Write chunk is taken for malformed.
    let output = Command::new("tshark")
        .args(["-2", "-n", "-o", "rpc.dissect_unknown_programs:TRUE", "-T", "pdml", "-r"])
        .arg(file)
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "tshark cannot read {}", file.display());
    String::from_utf8(output.stdout).unwrap()
}
