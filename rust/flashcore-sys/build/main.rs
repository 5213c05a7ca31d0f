//! Writes the bindings, from the header of this version, and finds an installed FlashCore, or builds
//! it. The first of these that works is used:
//!
//! 1. pkg-config, unless FLASHCORE_NO_PKG_CONFIG is set
//! 2. the environment variable FLASHCORE_DIR, the prefix of an installation
//! 3. with the feature `vendored`: CMake builds the sources of this crate
//!
//! FLASHCORE_LINK=static or dynamic says how to link an installed library; the default is static if
//! there is a libflashcore.a. Nothing is downloaded.
//!
//! Crates that depend on this one directly get DEP_FLASHCORE_INCLUDE, _LIBDIR, _VERSION, _LINK
//! (static or dynamic) and _SOURCE (pkg-config, FLASHCORE_DIR or vendored).

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{exit, Command};

mod header;

fn main() {
    println!("cargo:rerun-if-changed=build");
    write_bindings();
    for name in [
        "FLASHCORE_DIR",
        "FLASHCORE_LINK",
        "FLASHCORE_NO_PKG_CONFIG",
        "FLASHCORE_CMAKE_ARGS",
        "PKG_CONFIG",
        "PKG_CONFIG_PATH",
        "PKG_CONFIG_LIBDIR",
        "PKG_CONFIG_SYSROOT_DIR",
        "PKG_CONFIG_ALLOW_CROSS",
    ] {
        println!("cargo:rerun-if-env-changed={}", name);
    }
    if env::var_os("DOCS_RS").is_some() {
        return; // documentation is not linked
    }
    let mut reasons = Vec::new();
    for find in [from_pkg_config, from_directory, from_sources] {
        match find() {
            Ok(library) => return library.announce(),
            Err(reason) => reasons.push(reason),
        }
    }
    eprintln!(
        "flashcore-sys: there is no FlashCore library to link.\n  - {}\n\
         Wanted one of:\n  \
         - an installed FlashCore {} with its flashcore.pc where pkg-config finds it (PKG_CONFIG_PATH)\n  \
         - FLASHCORE_DIR=DIRECTORY, where DIRECTORY is that of `cmake --install build --prefix DIRECTORY`\n  \
         - the feature `vendored`, which builds it: cmake, a C++20 compiler, python3, and the headers \
         of {{fmt}}, nlohmann/json and Highway\n    (Debian: apt-get install g++ cmake ninja-build python3 libfmt-dev nlohmann-json3-dev libhwy-dev)",
        reasons.join("\n  - "),
        variable("CARGO_PKG_VERSION"),
    );
    exit(1);
}

/// A library that can be linked.
struct Library {
    source: &'static str,
    version: String,
    include: PathBuf,
    directory: PathBuf,
    is_static: bool,
    /// The flags of `Libs.private`, which a static library needs.
    private_flags: Vec<String>,
}

impl Library {
    fn announce(&self) {
        let directory = self.directory.display();
        println!("cargo:rustc-link-search=native={}", directory);
        if self.is_static {
            println!("cargo:rustc-link-lib=static:-bundle=flashcore");
            for flag in &self.private_flags {
                match flag.get(..2) {
                    Some("-L") => println!("cargo:rustc-link-search=native={}", &flag[2..]),
                    Some("-l") if flag.ends_with("_static") => {
                        println!("cargo:rustc-link-lib=static:-bundle={}", &flag[2..])
                    }
                    Some("-l") => println!("cargo:rustc-link-lib=dylib={}", &flag[2..]),
                    _ if flag == "-pthread" => println!("cargo:rustc-link-lib=dylib=pthread"),
                    _ => stop(&format!("flashcore.pc: flag {} is not known", flag)),
                }
            }
        } else {
            println!("cargo:rustc-link-lib=dylib=flashcore");
        }
        println!("cargo:include={}", self.include.display());
        println!("cargo:libdir={}", directory);
        println!("cargo:version={}", self.version);
        let link = if self.is_static { "static" } else { "dynamic" };
        println!("cargo:link={}", link);
        println!("cargo:source={}", self.source);
        // Used by this crate's own tests.
        println!("cargo:rustc-env=FLASHCORE_SYS_INCLUDE={}", self.include.display());
        println!("cargo:rustc-env=FLASHCORE_SYS_RUSTC={}", variable("RUSTC"));
    }
}

const HEADER: &str = "include/flashcore/flashcore.h";

/// The folder of the C++ sources: a package contains them, in a checkout they are the repository's.
fn sources() -> PathBuf {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let candidates = [here.join("vendor"), here.join("../..")];
    match candidates.iter().find(|folder| folder.join(HEADER).is_file()) {
        Some(folder) => absolute(folder),
        None => stop(&format!("{}: is not in this package", HEADER)),
    }
}

fn write_bindings() {
    let file = sources().join(HEADER);
    println!("cargo:rerun-if-changed={}", file.display());
    println!("cargo:rustc-env=FLASHCORE_SYS_HEADER={}", file.display()); // for this crate's tests
    let text = fs::read_to_string(&file).expect("flashcore.h");
    let bindings = header::bindings(&header::declarations(&text));
    let to = PathBuf::from(variable("OUT_DIR")).join("bindings.rs");
    fs::write(to, bindings).expect("bindings.rs");
}

// -------------------------------------------------------------------------------------------------
// An installed library

fn from_pkg_config() -> Result<Library, String> {
    if env::var_os("FLASHCORE_NO_PKG_CONFIG").is_some() {
        return Err("pkg-config: not asked, FLASHCORE_NO_PKG_CONFIG is set".into());
    }
    let crossing = variable("HOST") != variable("TARGET");
    let prepared = ["PKG_CONFIG_ALLOW_CROSS", "PKG_CONFIG_SYSROOT_DIR"];
    if crossing && prepared.iter().all(|name| env::var_os(name).is_none()) {
        return Err("pkg-config: not asked, since this is a cross build and neither \
                    PKG_CONFIG_SYSROOT_DIR nor PKG_CONFIG_ALLOW_CROSS is set"
            .into());
    }
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let output =
        Command::new(&program).args(["--variable=pcfiledir", "flashcore"]).output().map_err(
            |error| format!("pkg-config: {} does not start: {}", program.to_string_lossy(), error),
        )?;
    // Undoes shell quoting: a backslash before a space.
    let folder = String::from_utf8_lossy(&output.stdout).trim().replace("\\ ", " ");
    if !output.status.success() || folder.is_empty() {
        return Err("pkg-config: knows no flashcore".into());
    }
    let library = installed("pkg-config", &Path::new(&folder).join("flashcore.pc"))?;
    if let Some(other) = env::var_os("FLASHCORE_DIR") {
        if !library.directory.starts_with(absolute(Path::new(&other))) {
            println!(
                "cargo:warning=flashcore-sys: {} is linked, which pkg-config found, and not \
                 FLASHCORE_DIR; FLASHCORE_NO_PKG_CONFIG=1 chooses the latter",
                library.directory.display()
            );
        }
    }
    Ok(library)
}

fn from_directory() -> Result<Library, String> {
    let prefix = env::var_os("FLASHCORE_DIR").ok_or("FLASHCORE_DIR: is not set")?;
    let prefix = absolute(Path::new(&prefix));
    // lib, lib64, lib/x86_64-linux-gnu
    let mut folders = vec![prefix.join("lib"), prefix.join("lib64")];
    if let Ok(entries) = fs::read_dir(prefix.join("lib")) {
        folders.extend(entries.flatten().map(|entry| entry.path()));
    }
    let files = folders.iter().map(|folder| folder.join("pkgconfig/flashcore.pc"));
    match files.into_iter().find(|file| file.is_file()) {
        Some(file) => installed("FLASHCORE_DIR", &file),
        None => {
            Err(format!("FLASHCORE_DIR: {} has no lib/pkgconfig/flashcore.pc", prefix.display()))
        }
    }
}

/// Returns the library that an installed flashcore.pc describes.
fn installed(source: &'static str, file: &Path) -> Result<Library, String> {
    println!("cargo:rerun-if-changed={}", file.display());
    let described = PackageFile::read(file).map_err(|error| format!("{}: {}", source, error))?;
    let version = described.value("Version").join(" ");
    if !fits(&version) {
        return Err(format!(
            "{}: {} is version {}, wanted {} or a later one of the same minor number",
            source,
            file.display(),
            version,
            variable("CARGO_PKG_VERSION")
        ));
    }
    let folder = |field: &str, kind: &str| {
        let flags = described.value(field);
        let found = flags.iter().find_map(|flag| flag.strip_prefix(kind));
        found
            .map(|folder| absolute(Path::new(folder)))
            .ok_or_else(|| format!("{}: {} has no {} in {}", source, file.display(), kind, field))
    };
    let (directory, include) = (folder("Libs", "-L")?, folder("Cflags", "-I")?);
    let archive = directory.join("libflashcore.a");
    let shared = directory.join("libflashcore.so");
    let is_static = match env::var("FLASHCORE_LINK").as_deref() {
        Ok("static") => true,
        Ok("dynamic") => false,
        Ok("") | Err(_) => archive.is_file(),
        Ok(other) => stop(&format!("FLASHCORE_LINK: is {}, wanted static or dynamic", other)),
    };
    let wanted = if is_static { archive } else { shared };
    if !wanted.is_file() {
        return Err(format!("{}: there is no {}", source, wanted.display()));
    }
    println!("cargo:rerun-if-changed={}", wanted.display());
    println!("cargo:rerun-if-changed={}", include.join("flashcore/flashcore.h").display());
    Ok(Library {
        source,
        version,
        include,
        directory,
        is_static,
        private_flags: described.value("Libs.private"),
    })
}

/// Returns whether a library of this version has everything that these bindings declare. In 0.x
/// versions an ABI change increases the minor number, an addition the last one.
fn fits(version: &str) -> bool {
    let numbers = |text: &str| -> Vec<u64> { text.split('.').flat_map(str::parse).collect() };
    let (found, wanted) = (numbers(version), numbers(&variable("CARGO_PKG_VERSION")));
    found.len() == 3 && found[..2] == wanted[..2] && found[2] >= wanted[2]
}

/// A pkg-config file: its lines, and its folder.
struct PackageFile {
    folder: PathBuf,
    text: String,
}

impl PackageFile {
    fn read(file: &Path) -> Result<PackageFile, String> {
        let text =
            fs::read_to_string(file).map_err(|error| format!("{}: {}", file.display(), error))?;
        Ok(PackageFile { folder: file.parent().unwrap_or_else(|| Path::new(".")).into(), text })
    }

    /// The words of a field, with variables substituted. The field is split first, so that a
    /// folder's name may have spaces.
    fn value(&self, field: &str) -> Vec<String> {
        let line = self.text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or("").split_whitespace().map(|word| self.fill_in(word)).collect()
    }

    fn fill_in(&self, word: &str) -> String {
        let (start, end) = match (word.find("${"), word.find('}')) {
            (Some(start), Some(end)) if start < end => (start, end),
            _ => return word.into(),
        };
        let name = &word[start + 2..end];
        let value = if name == "pcfiledir" {
            self.folder.display().to_string()
        } else {
            let line =
                self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.map_or(String::new(), |line| self.fill_in(line))
        };
        format!("{}{}{}", &word[..start], value, self.fill_in(&word[end + 1..]))
    }
}

// -------------------------------------------------------------------------------------------------
// A library built here

fn from_sources() -> Result<Library, String> {
    if env::var_os("CARGO_FEATURE_VENDORED").is_none() {
        return Err("feature vendored: is not on".into());
    }
    if variable("HOST") != variable("TARGET") {
        return Err("feature vendored: does not build for another machine than this one".into());
    }
    let source = sources();
    for part in
        ["CMakeLists.txt", "cmake", "include", "src", "tools/fingerprint.py", "tools/gpu_tables.py"]
    {
        println!("cargo:rerun-if-changed={}", source.join(part).display());
    }

    let build = PathBuf::from(variable("OUT_DIR")).join("cmake");
    let cuda = env::var_os("CARGO_FEATURE_VENDORED_CUDA").is_some();
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&source).arg("-B").arg(&build);
    configure.args([
        "-DCMAKE_BUILD_TYPE=Release",
        "-DFLASHCORE_LIBRARY_ONLY=ON",
        "-DFLASHCORE_TESTS=OFF",
    ]);
    configure.arg(if cuda { "-DFLASHCORE_CUDA=ON" } else { "-DFLASHCORE_CUDA=OFF" });
    configure.args(env::var("FLASHCORE_CMAKE_ARGS").unwrap_or_default().split_whitespace());
    if env::var_os("CMAKE_GENERATOR").is_none() && starts("ninja") {
        configure.args(["-G", "Ninja"]);
    }
    run(&mut configure);
    run(Command::new("cmake").arg("--build").arg(&build).args([
        "--target",
        "flashcore",
        "--parallel",
        &variable("NUM_JOBS"),
    ]));

    let described = PackageFile::read(&build.join("package/flashcore.pc"))?;
    let version = described.value("Version").join(" ");
    if !fits(&version) {
        return Err(format!("feature vendored: the sources are of version {}", version));
    }
    Ok(Library {
        source: "vendored",
        version,
        include: source.join("include"),
        directory: build.join("src"),
        is_static: true,
        private_flags: described.value("Libs.private"),
    })
}

/// Runs a command. Cargo shows its output if the build fails.
fn run(command: &mut Command) {
    eprintln!("{:?}", command);
    match command.status() {
        Ok(status) if status.success() => (),
        Ok(status) => stop(&format!(
            "feature vendored: {} ended with {}; what it printed is in Cargo's output",
            command.get_program().to_string_lossy(),
            status
        )),
        Err(error) => stop(&format!(
            "feature vendored: {} does not start: {}",
            command.get_program().to_string_lossy(),
            error
        )),
    }
}

fn starts(program: impl AsRef<OsStr>) -> bool {
    Command::new(program).arg("--version").output().map_or(false, |output| output.status.success())
}

// -------------------------------------------------------------------------------------------------

fn stop(message: &str) -> ! {
    eprintln!("flashcore-sys: {}", message);
    exit(1)
}

/// A variable that Cargo sets.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| stop(&format!("{}: is not set, wanted Cargo's value", name)))
}

fn absolute(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.into())
}
