//! Somebody who stands between the nodes and Postgres, loses answers, and leads to another Postgres when told to.
//!
//! While it is deaf in one direction, what nodes say still reaches the database and is done there; what the database
//! answers is lost, and the connection ends. So a COMMIT is written and nobody gets the answer (F11).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A proxy on a port of its own.
pub(crate) struct Between {
    pub(crate) port: u16,
    leads_to: Arc<AtomicU16>,
    loses: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
}

impl Between {
    /// Stands before this port. Must be called inside a runtime, and ends with it.
    pub(crate) async fn before(port: u16) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let (loses, lost) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let leads_to = Arc::new(AtomicU16::new(port));
        let (shared, led) = ((loses.clone(), lost.clone()), leads_to.clone());
        tokio::spawn(async move {
            while let Ok((node, _)) = listener.accept().await {
                let (shared, port) = (shared.clone(), led.load(Ordering::SeqCst));
                tokio::spawn(async move {
                    if let Ok(database) = TcpStream::connect(("127.0.0.1", port)).await {
                        pass_on(node, database, shared).await;
                    }
                });
            }
        });
        Between { port: own, leads_to, loses, lost }
    }

    /// Whoever connects from now on reaches this port, as behind an address that moves with the primary.
    pub(crate) fn lead_to(&self, port: u16) {
        self.leads_to.store(port, Ordering::SeqCst);
    }

    /// Loses whatever the database answers for this long, and every connection that it answers on.
    pub(crate) async fn lose_answers(&self, span: Duration) {
        self.loses.store(true, Ordering::SeqCst);
        tokio::time::sleep(span).await;
        self.loses.store(false, Ordering::SeqCst);
    }

    /// How many answers were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }
}

async fn pass_on(node: TcpStream, database: TcpStream, (loses, lost): (Arc<AtomicBool>, Arc<AtomicU64>)) {
    let (mut from_node, mut to_node) = node.into_split();
    let (mut from_database, mut to_database) = database.into_split();
    let asks = async { tokio::io::copy(&mut from_node, &mut to_database).await };
    let answers = async {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            match from_database.read(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(_) if loses.load(Ordering::SeqCst) => {
                    lost.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                Ok(n) => {
                    if to_node.write_all(bytes.get(..n).unwrap_or_default()).await.is_err() {
                        return;
                    }
                }
            }
        }
    };
    tokio::select! {
        _ = asks => {}
        () = answers => {}
    }
}
