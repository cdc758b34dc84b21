//! Certificate authorities of a test's own, and servers' certificates by them. Needs `openssl`.

use std::{path::Path, process::Command};

/// Options that make a new key. The subject follows.
const NEW_KEY: &str = "-config openssl.cnf -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -subj";

/// Makes `<name>.pem` and `<name>.key` in `dir`: an authority, or, signed `by` one, the certificate of `localhost`.
pub fn certify(dir: &Path, name: &str, by: Option<&str>) {
    certify_for(dir, name, by, "DNS:localhost");
}

/// The same, for other names than `localhost`: `DNS:<name>` and `IP:<address>`, with commas between them.
pub fn certify_for(dir: &Path, name: &str, by: Option<&str>, names: &str) {
    write_options(dir, names);
    let kind = if by.is_some() { "server" } else { "authority" };
    let by = by.map(|by| format!("-CA {by}.pem -CAkey {by}.key")).unwrap_or_default();
    openssl(
        dir,
        &format!("req -x509 -days 2 -extensions {kind} {by} {NEW_KEY} /CN={name} -keyout {name}.key -out {name}.pem"),
    );
}

/// Makes the certificate of `localhost` by an authority, which expired long ago.
pub fn certify_expired(dir: &Path, name: &str, by: &str) {
    write_options(dir, "DNS:localhost");
    for (file, content) in [("index.txt", ""), ("serial.txt", "01")] {
        std::fs::write(dir.join(file), content).expect("the directory can be written to");
    }
    openssl(dir, &format!("req -new {NEW_KEY} /CN={name} -keyout {name}.key -out {name}.csr"));
    let times = "-startdate 20200101000000Z -enddate 20200102000000Z";
    let options = "-batch -notext -config openssl.cnf -extensions server";
    openssl(dir, &format!("ca {options} {times} -cert {by}.pem -keyfile {by}.key -in {name}.csr -out {name}.pem"));
}

fn write_options(dir: &Path, names: &str) {
    let options = format!(
        "[req]\ndistinguished_name=dn\nprompt=no\n[dn]\nCN=test\n\
         [authority]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n\
         [server]\nbasicConstraints=critical,CA:FALSE\nsubjectAltName={names}\n\
         [ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\nserial=serial.txt\nnew_certs_dir=.\ndefault_md=sha256\npolicy=any\n\
         [any]\ncommonName=supplied\n"
    );
    std::fs::write(dir.join("openssl.cnf"), options).expect("the directory can be written to");
}

fn openssl(dir: &Path, args: &str) {
    let args = args.split_ascii_whitespace();
    let output = Command::new("openssl").current_dir(dir).args(args).output().expect("openssl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
