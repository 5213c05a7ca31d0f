//! Checks what flashcore-sys tells the build scripts of its dependents.

use std::env;
use std::path::Path;

fn main() {
    let told = |name| env::var(format!("DEP_FLASHCORE_{}", name)).expect(name);
    let header = Path::new(&told("INCLUDE")).join("flashcore/flashcore.h");
    assert!(header.is_file(), "there is no {}", header.display());
    let library = match told("LINK").as_str() {
        "static" => "libflashcore.a",
        "dynamic" => "libflashcore.so",
        other => panic!("LINK is {}", other),
    };
    let library = Path::new(&told("LIBDIR")).join(library);
    assert!(library.is_file(), "there is no {}", library.display());
    println!("cargo:rustc-env=FLASHCORE_VERSION={}", told("VERSION"));
    println!("cargo:rustc-env=FLASHCORE_SOURCE={}", told("SOURCE"));
}
