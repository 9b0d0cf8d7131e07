//! Certificates for servers of tests: an authority that no machine knows, and what it signs for this machine.
//!
//! Made by `openssl`, so that what reads them was not made by the library that reads them. Who uses them decides what they are for.

use std::path::Path;
use std::process::Command;

/// Writes `cert.pem` and `key.pem` for `localhost` and 127.0.0.1 with this serial number, and `ca.pem`, the authority, unless it is
/// there already. Either file is replaced in one step.
pub fn certify(folder: &Path, serial: u32) {
    if !folder.join("ca.pem").exists() {
        openssl(
            folder,
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout ca.key -out ca.pem -subj /CN=Authority",
        );
    }
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").unwrap();
    openssl(
        folder,
        "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout new.key -out new.csr -subj /CN=localhost",
    );
    let sign = format!(
        "x509 -req -in new.csr -CA ca.pem -CAkey ca.key -set_serial {serial} -days 2 -extfile names -out new.pem"
    );
    openssl(folder, &sign);
    std::fs::rename(folder.join("new.key"), folder.join("key.pem")).unwrap();
    std::fs::rename(folder.join("new.pem"), folder.join("cert.pem")).unwrap();
}

fn openssl(folder: &Path, line: &str) {
    let output = Command::new("openssl").args(line.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}
