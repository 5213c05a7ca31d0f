//! Compares the declarations that the build script reads in the C header with what GCC reads there:
//! GCC lists the same names, and takes each declaration, written in C again, after the header's own.
//! The C and the Rust compiler give every struct the same layout and every constant the same value.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[allow(dead_code)] // the test does not write bindings
#[path = "../build/header.rs"]
mod header;

use header::{Declaration, Kind, Signature};

const INCLUDE: &str = env!("FLASHCORE_SYS_INCLUDE");
const HEADER: &str = "#include <flashcore/flashcore.h>\n";

// -------------------------------------------------------------------------------------------------
// GCC

fn c_compiler() -> Command {
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "gcc".into()));
    command.args(["-std=c11", "-I", INCLUDE]);
    command
}

/// What a command says: its output, or its errors.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap_or_else(|error| panic!("{:?}: {}", command, error));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    output.status.success().then_some(text).ok_or(errors)
}

fn output_of(command: &mut Command) -> String {
    run(command).unwrap_or_else(|errors| panic!("{:?} (wanted GCC):\n{}", command, errors))
}

/// A folder for this test's files.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

/// The names of a C source, members included: from GCC's list in Go notation, whose lines are
/// such as `type _flashcore_x struct { rank int32; }`, and from its list of macros.
fn names_of_c(file: &Path) -> BTreeSet<String> {
    let list = file.with_extension("go");
    let mut dump = std::ffi::OsString::from("-fdump-go-spec=");
    dump.push(&list);
    output_of(c_compiler().args(["-c", "-o"]).arg(file.with_extension("o")).arg(dump).arg(file));
    let mut found = BTreeSet::new();
    for line in fs::read_to_string(&list).expect("GCC's list").lines() {
        let mut words = line.split_whitespace();
        let name = match (words.next(), words.next().and_then(|word| word.strip_prefix('_'))) {
            (Some("const" | "func" | "type"), Some(name)) => name,
            _ => continue,
        };
        if name.starts_with("sizeof_") || !name.to_lowercase().starts_with("flashcore_") {
            continue;
        }
        found.insert(name.to_string());
        let members = line.split_once(" struct {").map_or("", |(_, rest)| rest).split(';');
        let members = members.filter_map(|member| member.split_whitespace().next());
        let members = members.filter(|member| *member != "}" && !member.starts_with("Godump_"));
        found.extend(members.map(|member| format!("{}.{}", name, member)));
    }
    let macros = output_of(c_compiler().args(["-E", "-dM"]).arg(file));
    let macros = macros.lines().filter_map(|line| line.split_whitespace().nth(1));
    let macros = macros.filter(|name| name.starts_with("FLASHCORE_"));
    // Not the include guard, and the macro that marks exported functions.
    let others = ["FLASHCORE_FLASHCORE_H", "FLASHCORE_API"];
    found.extend(macros.filter(|name| !others.contains(name)).map(str::to_string));
    found
}

// -------------------------------------------------------------------------------------------------
// What the build script reads

fn declarations() -> Vec<Declaration> {
    let text = fs::read_to_string(env!("FLASHCORE_SYS_HEADER")).expect("flashcore.h");
    let found = header::declarations(&text);
    assert!(found.len() > 40, "{} declarations", found.len());
    found
}

fn names_of(one: &Declaration) -> Vec<String> {
    let members = match &one.kind {
        Kind::Struct(members) => members.as_slice(),
        _ => &[],
    };
    let members = members.iter().map(|member| format!("{}.{}", one.name, member.name));
    members.chain([one.name.clone()]).collect()
}

/// The declaration in C. What differs from the header's is an error, or an assertion that fails.
fn again(one: &Declaration) -> String {
    let name = &one.name;
    match &one.kind {
        Kind::Constant(value) => format!("_Static_assert({0} == {1}, \"{0}\");\n", name, value),
        Kind::Alias(kind) => format!("typedef {} {};\n", type_in_c(kind), name),
        Kind::Opaque => format!("typedef struct {0} {0};\n", name),
        Kind::Struct(members) => {
            let assertion = |member: &header::Member| {
                let kind = match member.kind.strip_prefix('[').and_then(|k| k.split_once("; ")) {
                    Some((element, length)) => format!("{} (*)[{}", type_in_c(element), length),
                    None => format!("{}*", type_in_c(&member.kind)),
                };
                format!(
                    "_Static_assert(_Generic(&(({0}*)0)->{1}, {2}: 1, default: 0), \"{0}.{1}\");\n",
                    name, member.name, kind
                )
            };
            members.iter().map(assertion).collect()
        }
        Kind::Function(signature) => function_in_c(name, signature),
        Kind::Callback(signature) => {
            format!("typedef {}", function_in_c(&format!("(*{})", name), signature))
        }
    }
}

fn function_in_c(name: &str, signature: &Signature) -> String {
    let mut parameters: Vec<String> =
        signature.parameters.iter().map(|parameter| type_in_c(&parameter.kind)).collect();
    if parameters.is_empty() {
        parameters.push("void".into());
    }
    format!("{} {}({});\n", type_in_c(&signature.result), name, parameters.join(", "))
}

fn type_in_c(kind: &str) -> String {
    if let Some(target) = kind.strip_prefix("*const ") {
        return format!("{} const*", type_in_c(target));
    }
    if let Some(target) = kind.strip_prefix("*mut ") {
        return format!("{}*", type_in_c(target));
    }
    match kind {
        "()" | "c_void" => "void",
        "c_char" => "char",
        "f32" => "float",
        "f64" => "double",
        "usize" => "size_t",
        "i32" => "int32_t",
        "i64" => "int64_t",
        "u64" => "uint64_t",
        name => name,
    }
    .into()
}

// -------------------------------------------------------------------------------------------------

/// How a C source differs from what the build script reads, one sentence each.
fn differences(test: &str, source: &str) -> Vec<String> {
    let file = scratch(test).join("header.c");
    let write = |text: &str| fs::write(&file, text).expect("written");
    write(source);
    let in_c = names_of_c(&file);
    let ours: BTreeSet<String> = declarations().iter().flat_map(names_of).collect();
    let new = in_c.difference(&ours).map(|name| format!("{} is not bound", name));
    let gone = ours.difference(&in_c).map(|name| format!("{} is not in the header", name));
    let mut found: Vec<String> = new.chain(gone).collect();
    let declared: String = declarations().iter().map(again).collect();
    write(&format!("{}\n{}", source, declared));
    let errors = run(c_compiler().arg("-fsyntax-only").arg(&file)).err().unwrap_or_default();
    found.extend(errors.lines().filter(|line| line.contains("error:")).map(str::to_string));
    found
}

#[test]
fn everything_is_bound() {
    let found = differences("all", HEADER);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The test above notices where the build script reads something else than GCC.
#[test]
fn differences_are_noticed() {
    let additions = [
        ("enum { FLASHCORE_NEW = 9 };", "FLASHCORE_NEW"),
        ("#define FLASHCORE_MACRO 3", "FLASHCORE_MACRO"),
        ("typedef struct flashcore_x { int32_t x; } flashcore_x;", "flashcore_x"),
        ("int32_t flashcore_f(const void* p);", "flashcore_f"),
        ("typedef void (*flashcore_c)(int64_t);", "flashcore_c"),
    ];
    for (number, (text, name)) in additions.iter().enumerate() {
        let found = differences(&format!("addition{}", number), &format!("{}{}\n", HEADER, text));
        assert_eq!(found.first(), Some(&format!("{} is not bound", name)), "{}", text);
    }
    let changes = [
        ("float softcap;", "double softcap;", "assertion failed: \"flashcore_problem.softcap\""),
        ("  void* lse;", "", "flashcore_arguments.lse is not in the header"),
        ("  void* lse;", "void* lse; int x;", "flashcore_arguments.x is not bound"),
        ("stride[4]", "stride[5]", "assertion failed: \"flashcore_tensor.stride\""),
        ("size_t position", "int32_t position", "conflicting types for 'flashcore_device_get'"),
        ("FLASHCORE_F64 = 7", "FLASHCORE_F64 = 9", "assertion failed: \"FLASHCORE_F64\""),
        ("FLASHCORE_SIM = 2", "FLASHCORE_X = 2", "FLASHCORE_SIM is not in the header"),
        ("const char* refusal,", "", "conflicting types for 'flashcore_verdict_function'"),
        ("const char* flashcore_version", "char* flashcore_version", "for 'flashcore_version'"),
        ("flashcore_version(", "flashcore_other(", "flashcore_version is not in the header"),
    ];
    let text = fs::read_to_string(env!("FLASHCORE_SYS_HEADER")).expect("flashcore.h");
    for (number, (from, to, expected)) in changes.iter().enumerate() {
        assert!(text.contains(from), "flashcore.h has no {}", from);
        let found = differences(&format!("change{}", number), &text.replace(from, to));
        let noticed = found.iter().any(|line| line.replace(['‘', '’'], "'").contains(expected));
        assert!(noticed, "{} for {}: {:?}", to, from, found);
    }
}

/// A program in Rust prints every size, offset and constant as an assertion in C.
#[test]
fn layouts_and_values_are_those_of_c() {
    let mut program = format!(
        "#![allow(dead_code, non_camel_case_types)] #[path = {:?}] mod sys;\n\
         use std::mem::{{align_of, size_of, MaybeUninit}};\nuse std::ptr::addr_of;\nfn main() {{\n",
        concat!(env!("OUT_DIR"), "/bindings.rs")
    );
    let mut is = |in_c: String, in_rust: &str| {
        let line = format!("_Static_assert({0} == {{}}, \\\"{0}\\\");", in_c);
        writeln!(program, "println!(\"{}\", {});", line, in_rust).expect("a string grows");
    };
    for Declaration { name, kind, .. } in &declarations() {
        match kind {
            Kind::Constant(_) => is(name.clone(), &format!("sys::{}", name)),
            Kind::Struct(members) => {
                is(format!("sizeof({})", name), &format!("size_of::<sys::{}>()", name));
                is(format!("_Alignof({})", name), &format!("align_of::<sys::{}>()", name));
                for member in members.iter().map(|member| &member.name) {
                    // addr_of! does not read, and stays inside of `one`.
                    let offset = format!(
                        "{{ let one = MaybeUninit::<sys::{}>::uninit(); let one = one.as_ptr(); \
                         (unsafe {{ addr_of!((*one).{}) }}) as usize - one as usize }}",
                        name, member
                    );
                    is(format!("offsetof({}, {})", name, member), &offset);
                }
            }
            _ => (),
        }
    }
    program += "}\n";
    let folder = scratch("layout");
    let (rust_file, c_file) = (folder.join("layout.rs"), folder.join("layout.c"));
    fs::write(&rust_file, program).expect("written");
    let mut rustc = Command::new(env!("FLASHCORE_SYS_RUSTC"));
    output_of(rustc.args(["--edition=2021", "-o"]).arg(folder.join("layout")).arg(&rust_file));
    let assertions = output_of(&mut Command::new(folder.join("layout")));
    assert!(assertions.lines().count() > 100, "{}", assertions);
    let source = format!("#include <stddef.h>\n{}{}", HEADER, assertions);
    fs::write(&c_file, source).expect("written");
    output_of(c_compiler().arg("-fsyntax-only").arg(&c_file));
}
