//! Certificate authorities of a test's own, and servers' certificates by them. Needs `openssl`.

use std::{path::Path, process::Command};

const OPTIONS: &str = "[req]\ndistinguished_name=dn\nprompt=no\n[dn]\nCN=test\n\
    [authority]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n\
    [server]\nbasicConstraints=critical,CA:FALSE\nsubjectAltName=DNS:localhost\n";

/// Makes `<name>.pem` and `<name>.key` in `dir`: an authority, or, signed `by` one, the certificate of `localhost`.
///
/// # Panics
/// When `openssl` is not there or does not do it.
pub fn certify(dir: &Path, name: &str, by: Option<&str>) {
    std::fs::write(dir.join("openssl.cnf"), OPTIONS).expect("the directory can be written to");
    let mut openssl = Command::new("openssl");
    openssl.current_dir(dir).args(["req", "-x509", "-config", "openssl.cnf", "-days", "2", "-nodes"]);
    openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-extensions", if by.is_some() { "server" } else { "authority" }, "-subj", &format!("/CN={name}")]);
    openssl.args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")]);
    if let Some(by) = by {
        openssl.args(["-CA", &format!("{by}.pem"), "-CAkey", &format!("{by}.key")]);
    }
    let output = openssl.output().expect("openssl is installed");
    assert!(output.status.success(), "{openssl:?}: {}", String::from_utf8_lossy(&output.stderr));
}
