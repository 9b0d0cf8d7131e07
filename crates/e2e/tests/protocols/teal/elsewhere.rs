//! A server elsewhere that tools call: it notes every request, and can keep them all waiting.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

/// Where it is, and what it got.
#[derive(Clone)]
pub(crate) struct Elsewhere {
    pub(crate) port: u16,
    got: Arc<Mutex<Vec<String>>>,
    came: Arc<Notify>,
    answers: watch::Sender<bool>,
}

impl Elsewhere {
    /// Answers at once.
    pub(crate) async fn quick() -> Elsewhere {
        Elsewhere::new(true).await
    }

    /// Answers nobody before it is told to.
    pub(crate) async fn slow() -> Elsewhere {
        Elsewhere::new(false).await
    }

    async fn new(answers: bool) -> Elsewhere {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (answers, _) = watch::channel(answers);
        let server = Elsewhere { port, got: Arc::default(), came: Arc::default(), answers };
        let here = server.clone();
        tokio::spawn(async move {
            loop {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                let here = here.clone();
                tokio::spawn(async move {
                    let mut head = vec![0; 4096];
                    let Ok(read) = stream.read(&mut head).await else { return };
                    let path = String::from_utf8_lossy(&head[..read]);
                    let path = path.split(' ').nth(1).unwrap_or_default().to_owned();
                    here.got.lock().unwrap().push(path);
                    here.came.notify_waiters();
                    let mut answers = here.answers.subscribe();
                    let _ = answers.wait_for(|answers| *answers).await;
                    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\ndone";
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        server
    }

    /// What it got so far.
    pub(crate) fn got(&self) -> Vec<String> {
        let mut got = self.got.lock().unwrap().clone();
        got.sort();
        got
    }

    /// Waits until it got so many.
    pub(crate) async fn until(&self, count: usize) {
        loop {
            let came = self.came.notified();
            if self.got.lock().unwrap().len() >= count {
                return;
            }
            tokio::time::timeout(std::time::Duration::from_secs(120), came).await.unwrap();
        }
    }

    /// Answers everybody from now on.
    pub(crate) fn answer(&self) {
        self.answers.send_replace(true);
    }
}
