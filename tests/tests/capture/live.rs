//! Captures on the loopback interface with `tshark`.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// Time limit for `tshark` to start.
const LIMIT: Duration = Duration::from_secs(30);

/// A running capture. Dropping it ends the capture.
pub(crate) struct Capture {
    child: Child,
    file: PathBuf,
    said: mpsc::Receiver<String>,
}

impl Capture {
    /// Starts to capture the traffic of this TCP port on the loopback interface into `file`.
    ///
    /// Returns an error if `tshark` is not installed, may not capture, or does not start in time.
    pub(crate) fn start(port: u16, file: &Path) -> Result<Self, String> {
        // A complete loopback frame fits, and the kernel's buffer is large enough for a burst.
        let mut child = Command::new("tshark")
            .args(["-i", "lo", "-n", "-q", "-B", "64", "-f", &format!("tcp port {port}"), "-w"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot run tshark: {error}"))?;
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
                // "Capturing on 'Loopback: lo'" is printed before the capture has started.
                Ok(line) if line.contains("Capture started") => return Ok(capture),
                Ok(line) => lines.push(line),
                // Versions without that message have started when they have written the file header.
                Err(RecvTimeoutError::Timeout) if capture.written() > 0 => return Ok(capture),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // The lines after the first two are advice.
        lines.truncate(2);
        Err(format!("tshark cannot capture: {}", lines.join("; ")))
    }

    /// Returns the size of the file, in bytes.
    fn written(&self) -> u64 {
        std::fs::metadata(&self.file).map_or(0, |file| file.len())
    }

    /// Waits until the file stops growing, but at most 10 seconds. Captured packets reach the file with a delay.
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

    /// Ends the capture and returns its file. Checks that `tshark` has dropped no packets.
    pub(crate) fn stop(mut self) -> PathBuf {
        // tshark shuts down cleanly on an interrupt.
        let interrupted = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        assert!(interrupted.is_ok_and(|status| status.success()), "tshark cannot be interrupted");
        let status = self.child.wait().unwrap();
        let lines: Vec<_> = self.said.iter().collect();
        assert!(status.success(), "tshark failed: {lines:?}");
        assert!(!lines.iter().any(|line| line.contains("dropped")), "tshark dropped packets: {lines:?}");
        std::mem::take(&mut self.file)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Dissects a capture into PDML: XML with every field of every packet in wire order.
pub(crate) fn dissect(file: &Path) -> String {
    // With a single pass, tshark takes a reply whose result is in a Write chunk for malformed.
    let output = Command::new("tshark")
        .args(["-2", "-n", "-o", "rpc.dissect_unknown_programs:TRUE", "-T", "pdml", "-r"])
        .arg(file)
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "tshark cannot read {}", file.display());
    String::from_utf8(output.stdout).unwrap()
}
