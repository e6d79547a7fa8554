//! The header in the repository is the one that cbindgen makes of this crate today.

use std::path::Path;

#[test]
fn the_header_is_current() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("cbindgen.toml");
    // Only the files of this crate: no cargo, no network.
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in ["result", "names", "handle", "calls", "init"] {
        builder = builder.with_src(here.join("src").join(file).with_extension("rs"));
    }
    let mut made = Vec::new();
    builder.generate().expect("bindings").write(&mut made);
    let made = String::from_utf8(made).expect("text");
    let path = here.join("include/topoforge.h");
    if std::env::var_os("TOPOFORGE_BLESS").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "include/topoforge.h is not what the crate says: TOPOFORGE_BLESS=1 cargo test -p topoforge-capi --test header"
    );
}
