//! Makes Rust types and a descriptor of the protos. The compiler is a library, so that building needs no `protoc`.

#[cfg(feature = "grpc")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PROTOS: [&str; 2] = ["a2a.proto", "gateway.proto"];

    println!("cargo:rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_files(PROTOS)?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    prost_build::Config::new()
        .bytes(["."])
        .btree_map(["."])
        .extern_path(".google.protobuf.Struct", "crate::grpc::Struct")
        .extern_path(".google.protobuf.Value", "crate::grpc::Value")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

#[cfg(not(feature = "grpc"))]
fn main() {}
