//! Examples as programs that tests run.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Builds an example, as `cargo test --test NAME` alone would not.
pub(crate) fn example(name: &str) -> PathBuf {
    let deps = env::current_exe().unwrap();
    let profile = deps.parent().unwrap().parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--example", name]);
    if profile.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
    profile.join("examples").join(name)
}
