//! Compares the declarations that the build script reads in the C header with those that GCC reads:
//! the same structs, functions, constants and macros, with the same types. The C and the Rust
//! compiler give every struct the same layout and every constant the same value.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[allow(dead_code)] // the test does not write bindings
#[path = "../build/header.rs"]
mod header;

use header::{Kind, Signature};

const INCLUDE: &str = env!("FLASHCORE_SYS_INCLUDE");

/// Declarations by name, in one notation for both languages. `const` pointers are not marked.
#[derive(Debug, Default, PartialEq)]
struct Declarations {
    constants: BTreeMap<String, i64>,
    /// Members in order, with their types.
    structs: BTreeMap<String, Vec<(String, String)>>,
    /// Parameters, then the result.
    functions: BTreeMap<String, String>,
    /// Types of functions that are passed as pointers.
    callbacks: BTreeMap<String, String>,
}

impl Declarations {
    /// Returns the differences, one per line.
    fn differences(&self, bindings: &Declarations) -> Vec<String> {
        let mut found = Vec::new();
        compare("constant", &self.constants, &bindings.constants, &mut found);
        compare("struct", &self.structs, &bindings.structs, &mut found);
        compare("function", &self.functions, &bindings.functions, &mut found);
        compare("callback", &self.callbacks, &bindings.callbacks, &mut found);
        found
    }
}

fn compare<T: PartialEq + std::fmt::Debug>(
    what: &str,
    header: &BTreeMap<String, T>,
    bindings: &BTreeMap<String, T>,
    found: &mut Vec<String>,
) {
    for (name, value) in header {
        match bindings.get(name) {
            None => found.push(format!("{} {} of the header is not bound", what, name)),
            Some(other) if other != value => found.push(format!(
                "{} {}: the header has {:?}, bound is {:?}",
                what, name, value, other
            )),
            _ => (),
        }
    }
    for name in bindings.keys().filter(|name| !header.contains_key(*name)) {
        found.push(format!("{} {} is bound, but not in the header", what, name));
    }
}

// -------------------------------------------------------------------------------------------------
// The header

fn c_compiler() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "gcc".into()))
}

fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{:?}: {}", command, error));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?} (wanted GCC):\n{}", command, errors);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A folder for this test's files.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

/// Reads the declarations of a C source: GCC's list, in Go notation, and its list of macros.
fn declarations_of_c(name: &str, source: &str) -> Declarations {
    let folder = scratch(name);
    let (file, list) = (folder.join("header.c"), folder.join("header.go"));
    fs::write(&file, source).expect("written");
    let mut dump = std::ffi::OsString::from("-fdump-go-spec=");
    dump.push(&list);
    output_of(
        c_compiler()
            .args(["-std=c11", "-I", INCLUDE, "-c", "-o"])
            .arg(folder.join("header.o"))
            .arg(dump)
            .arg(&file),
    );
    let mut found = Declarations::default();
    for line in fs::read_to_string(&list).expect("GCC's list").lines() {
        if line.to_lowercase().contains("flashcore") {
            read_go(line, &mut found);
        }
    }
    let macros = output_of(c_compiler().args(["-std=c11", "-I", INCLUDE, "-E", "-dM"]).arg(&file));
    for line in macros.lines() {
        let mut words = line.split_whitespace().skip(1);
        let name = words.next().unwrap_or("");
        // Skips the include guard, and the macro that marks exported functions.
        if !name.starts_with("FLASHCORE_")
            || ["FLASHCORE_FLASHCORE_H", "FLASHCORE_API"].contains(&name)
        {
            continue;
        }
        let value = words.collect::<Vec<_>>().join(" ");
        let number = value.parse().unwrap_or_else(|_| panic!("macro {} is {}", name, value));
        found.constants.insert(name.into(), number);
    }
    assert!(found.structs.len() > 5 && found.functions.len() > 10, "{:?}", found);
    found
}

/// One line of GCC's list, such as `func _flashcore_dtype_size (int32) uint64 __asm__("...")`.
fn read_go(line: &str, found: &mut Declarations) {
    let line = line.split(" __asm__").next().unwrap_or(line);
    let unknown = || panic!("a line of GCC's list that this test does not know: {}", line);
    if let Some(rest) = line.strip_prefix("const _") {
        let (name, value) = rest.split_once(" = ").unwrap_or_else(unknown);
        if !name.starts_with("sizeof_") {
            let number = value.parse().unwrap_or_else(|_| panic!("constant {} is {}", name, value));
            found.constants.insert(name.into(), number);
        }
    } else if let Some(rest) = line.strip_prefix("func _") {
        let (name, signature) = rest.split_once(' ').unwrap_or_else(unknown);
        found.functions.insert(name.into(), signature_of_go(signature));
    } else if let Some(rest) = line.strip_prefix("type _") {
        let (name, what) = rest.split_once(' ').unwrap_or_else(unknown);
        if let Some(members) = what.strip_prefix("struct {") {
            let members = members.trim_end_matches('}').split(';').map(str::trim);
            let members = members.filter(|member| !member.is_empty());
            let members = members.map(|member| member.split_once(' ').unwrap_or_else(unknown));
            let members = members.filter(|(name, _)| !name.starts_with("Godump_"));
            let members = members.map(|(name, kind)| (name.into(), type_of_go(kind)));
            found.structs.insert(name.into(), members.collect());
        } else if let Some(signature) = what.strip_prefix("func") {
            found.callbacks.insert(name.into(), signature_of_go(signature));
        } else {
            // flashcore_status: GCC's list uses the type that it stands for.
            assert_eq!(line, "type _flashcore_status int32");
        }
    } else {
        unknown();
    }
}

fn signature_of_go(signature: &str) -> String {
    let (parameters, result) = signature
        .trim()
        .strip_prefix('(')
        .and_then(|rest| rest.rsplit_once(')'))
        .unwrap_or_else(|| panic!("not a signature: {}", signature));
    let parameters = parameters.split(", ").filter(|kind| !kind.is_empty());
    let parameters = parameters.map(type_of_go).collect::<Vec<_>>().join(", ");
    format!("({}) {}", parameters, type_of_go(result.trim()))
}

fn type_of_go(kind: &str) -> String {
    if let Some(target) = kind.strip_prefix('*') {
        return format!("*{}", type_of_go(target));
    }
    if let Some((last, element)) = kind.strip_prefix('[').and_then(|rest| rest.split_once("+1]")) {
        let last: usize = last.parse().expect("a number");
        return format!("[{}; {}]", type_of_go(element), last + 1);
    }
    match kind {
        "" => "()",
        "int8" => "char",
        "byte" => "void",
        "int32" => "i32",
        "int64" => "i64",
        "uint64" => "u64",
        "float32" => "f32",
        "float64" => "f64",
        name if name.starts_with("_flashcore_") => &name[1..],
        _ => panic!("GCC's type {} is not known to this test", kind),
    }
    .into()
}

// -------------------------------------------------------------------------------------------------
// The bindings

/// What the build script reads.
fn bindings() -> Declarations {
    let mut found = Declarations::default();
    let text = fs::read_to_string(env!("FLASHCORE_SYS_HEADER")).expect("flashcore.h");
    for one in header::declarations(&text) {
        match one.kind {
            Kind::Constant(value) => {
                found.constants.insert(one.name, value.into());
            }
            // GCC's list uses the type that it stands for.
            Kind::Alias(kind) => assert_eq!((&*one.name, &*kind), ("flashcore_status", "i32")),
            Kind::Opaque => {
                found.structs.insert(one.name, Vec::new());
            }
            Kind::Struct(members) => {
                let members = members.into_iter();
                let members = members.map(|member| (member.name, type_of_rust(&member.kind)));
                found.structs.insert(one.name, members.collect());
            }
            Kind::Function(signature) => {
                found.functions.insert(one.name, signature_of_rust(&signature));
            }
            Kind::Callback(signature) => {
                found.callbacks.insert(one.name, signature_of_rust(&signature));
            }
        }
    }
    found
}

fn signature_of_rust(signature: &Signature) -> String {
    let parameters = signature.parameters.iter().map(|parameter| type_of_rust(&parameter.kind));
    let parameters = parameters.collect::<Vec<_>>().join(", ");
    format!("({}) {}", parameters, type_of_rust(&signature.result))
}

fn type_of_rust(kind: &str) -> String {
    if let Some(target) = kind.strip_prefix("*const ").or_else(|| kind.strip_prefix("*mut ")) {
        return format!("*{}", type_of_rust(target));
    }
    if let Some((element, count)) = kind.strip_prefix('[').and_then(|rest| rest.split_once("; ")) {
        return format!("[{}; {}", type_of_rust(element), count);
    }
    match kind {
        "c_char" => "char",
        "c_void" => "void",
        "usize" => "u64",
        "flashcore_status" => "i32",
        "()" | "i32" | "i64" | "u64" | "f32" | "f64" => kind,
        name if name.starts_with("flashcore_") => name,
        _ => panic!("the type {} is not known to this test", kind),
    }
    .into()
}

// -------------------------------------------------------------------------------------------------

const HEADER: &str = "#include <flashcore/flashcore.h>\n";

#[test]
fn everything_is_bound() {
    let differences = declarations_of_c("all", HEADER).differences(&bindings());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The test above notices where the build script reads something else than GCC.
#[test]
fn differences_are_noticed() {
    let additions = [
        ("enum { FLASHCORE_NEW = 9 };", "constant FLASHCORE_NEW of the header is not bound"),
        ("#define FLASHCORE_MACRO 3", "constant FLASHCORE_MACRO of the header is not bound"),
        ("typedef struct flashcore_x { int32_t x; } flashcore_x;", "struct flashcore_x of the"),
        ("int32_t flashcore_f(const void* p);", "function flashcore_f of the header is not bound"),
        ("typedef void (*flashcore_c)(int64_t);", "callback flashcore_c of the header is not"),
    ];
    for (number, (text, expected)) in additions.iter().enumerate() {
        let source = format!("{}{}\n", HEADER, text);
        let found = declarations_of_c(&format!("addition{}", number), &source);
        let differences = found.differences(&bindings());
        assert_eq!(differences.len(), 1, "{}: {:?}", text, differences);
        assert!(differences[0].starts_with(expected), "{}: {:?}", text, differences);
    }
    let changes = [
        ("float softcap;", "double softcap;", "struct flashcore_problem: the header has"),
        ("  void* lse;", "", "struct flashcore_arguments: the header has"),
        ("size_t position", "int32_t position", "function flashcore_device_get: the header has"),
        ("FLASHCORE_F64 = 7", "FLASHCORE_F64 = 9", "constant FLASHCORE_F64: the header has"),
        ("FLASHCORE_SIM = 2", "FLASHCORE_X = 2", "constant FLASHCORE_SIM is bound, but not in"),
        ("const char* refusal,", "", "callback flashcore_verdict_function: the header has"),
        ("flashcore_version(", "flashcore_other(", "function flashcore_version is bound, but not"),
    ];
    let text = fs::read_to_string(env!("FLASHCORE_SYS_HEADER")).expect("flashcore.h");
    for (number, (from, to, expected)) in changes.iter().enumerate() {
        assert!(text.contains(from), "flashcore.h has no {}", from);
        let found = declarations_of_c(&format!("change{}", number), &text.replace(from, to));
        let differences = found.differences(&bindings());
        let noticed = differences.iter().any(|difference| difference.starts_with(expected));
        assert!(noticed, "{} for {}: {:?}", to, from, differences);
    }
}

/// A program in each language prints every size, offset and constant; both print the same.
#[test]
fn layouts_and_values_are_those_of_c() {
    let header = declarations_of_c("layout", HEADER);
    let mut in_c = vec!["#include <stddef.h>\n#include <stdio.h>".to_string(), HEADER.into()];
    in_c.push("int main(void) {".into());
    let bindings = concat!(env!("OUT_DIR"), "/bindings.rs");
    let mut in_rust = vec![format!(
        "#![allow(dead_code, non_camel_case_types)] #[path = {:?}] mod sys;",
        bindings
    )];
    in_rust.push("use std::mem::{align_of, size_of, MaybeUninit}; use std::ptr::addr_of;".into());
    in_rust.push("fn main() {".into());
    for (name, members) in &header.structs {
        if members.is_empty() {
            continue; // opaque
        }
        in_c.push(format!("printf(\"{0} %zu %zu\\n\", sizeof({0}), _Alignof({0}));", name));
        in_rust.push(format!("let one = MaybeUninit::<sys::{}>::uninit();", name));
        in_rust.push(format!(
            "println!(\"{0} {{}} {{}}\", size_of::<sys::{0}>(), align_of::<sys::{0}>());",
            name
        ));
        for (member, _) in members {
            in_c.push(format!("printf(\"{0}.{1} %zu\\n\", offsetof({0}, {1}));", name, member));
            // addr_of! does not read, and stays inside of `one`.
            in_rust.push(format!("let at = unsafe {{ addr_of!((*one.as_ptr()).{}) }};", member));
            in_rust.push(format!(
                "println!(\"{}.{} {{}}\", at as usize - one.as_ptr() as usize);",
                name, member
            ));
        }
    }
    for name in header.constants.keys() {
        in_c.push(format!("printf(\"{0} %d\\n\", {0});", name));
        in_rust.push(format!("println!(\"{0} {{}}\", sys::{0});", name));
    }
    in_c.push("return 0; }\n".into());
    in_rust.push("}\n".into());
    let folder = scratch("layout");
    let (c_file, rust_file) = (folder.join("layout.c"), folder.join("layout.rs"));
    fs::write(&c_file, in_c.join("\n")).expect("written");
    fs::write(&rust_file, in_rust.join("\n")).expect("written");
    let (c_program, rust_program) = (folder.join("layout_c"), folder.join("layout_rust"));
    output_of(c_compiler().args(["-std=c11", "-I", INCLUDE, "-o"]).arg(&c_program).arg(&c_file));
    let mut rustc = Command::new(env!("FLASHCORE_SYS_RUSTC"));
    output_of(rustc.args(["--edition=2021", "-o"]).arg(&rust_program).arg(&rust_file));
    let (wanted, found) =
        (output_of(&mut Command::new(&c_program)), output_of(&mut Command::new(&rust_program)));
    assert!(wanted.lines().count() > 100, "{}", wanted);
    for (in_c, in_rust) in wanted.lines().zip(found.lines()) {
        assert_eq!(in_rust, in_c);
    }
    assert_eq!(found.lines().count(), wanted.lines().count());
}
