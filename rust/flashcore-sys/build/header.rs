//! Reads the declarations of `flashcore.h`, which needs only a small part of C, and writes them in Rust.

use std::fmt::Write;

/// A declaration, with its types in Rust.
pub struct Declaration {
    pub name: String,
    pub documentation: String,
    pub kind: Kind,
}

pub enum Kind {
    Constant(i32),
    Alias(String),
    /// A struct that only the library can look into.
    Opaque,
    Struct(Vec<Member>),
    Function(Signature),
    /// The type of a pointer to a function.
    Callback(Signature),
}

pub struct Member {
    pub name: String,
    pub kind: String,
    pub documentation: String,
}

pub struct Signature {
    pub parameters: Vec<Member>,
    /// `()` if there is none.
    pub result: String,
}

/// The declarations in the header's order.
pub fn declarations(header: &str) -> Vec<Declaration> {
    let is_c = |line: &&str| !line.starts_with('#') && !line.contains("extern \"C\"");
    let text = header.lines().filter(is_c).collect::<Vec<_>>().join("\n");
    let text = text.replace("FLASHCORE_API ", "");
    let mut found = Vec::new();
    let mut documentation = String::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some((comment, after)) = rest.strip_prefix("/*").and_then(|r| r.split_once("*/")) {
            // One with an empty line after it is about what follows as a whole.
            documentation = if after.starts_with("\n\n") { String::new() } else { words(comment) };
            rest = after.trim_start();
            continue;
        }
        let code = without_comments(rest);
        let is_end = |(at, _): &(usize, &str)| balance(&code[..*at]) == 0;
        let (end, _) = code.match_indices(';').find(is_end).expect("a declaration's end");
        add_declarations(&rest[..end], std::mem::take(&mut documentation), &mut found);
        rest = rest[end + 1..].trim_start();
    }
    found
}

fn balance(code: &str) -> usize {
    code.matches('{').count() - code.matches('}').count()
}

/// The text of a comment in one line.
fn words(comment: &str) -> String {
    let lines = comment.lines().map(|line| line.trim().trim_start_matches("* "));
    lines.collect::<Vec<_>>().join(" ").trim().into()
}

/// Replaces comments by spaces, so that everything else keeps its place.
fn without_comments(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        let comment = after.find("*/").map_or(after.len(), |end| end + 2);
        code.push_str(before);
        code.push_str(&" ".repeat(2 + comment));
        rest = &after[comment..];
    }
    code + rest
}

fn add_declarations(text: &str, documentation: String, found: &mut Vec<Declaration>) {
    let mut add = |name: &str, documentation: String, kind: Kind| {
        found.push(Declaration { name: name.into(), documentation, kind });
    };
    let body = text.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
    let code = without_comments(text).split_whitespace().collect::<Vec<_>>().join(" ");
    match (code.strip_prefix("typedef "), body) {
        (None, Some((constants, _))) => {
            for (constant, documentation) in items(constants, ',') {
                let (name, value) = constant.split_once(" = ").expect("a constant's value");
                add(name, documentation, Kind::Constant(value.parse().expect("a number")));
            }
        }
        (None, None) => {
            let (name, signature) = function(&code);
            add(&name, documentation, Kind::Function(signature));
        }
        (Some(_), Some((members, name))) => {
            let members = items(members, ';').into_iter();
            let members = members.map(|(code, documentation)| member(&code, documentation));
            add(name.trim(), documentation, Kind::Struct(members.collect()));
        }
        (Some(code), None) if code.contains("(*") => {
            let (name, signature) = function(&code.replacen("(*", "", 1).replacen(')', "", 1));
            add(&name, documentation, Kind::Callback(signature));
        }
        (Some(code), None) if code.starts_with("struct ") => {
            add(code.rsplit(' ').next().expect("a name"), documentation, Kind::Opaque);
        }
        (Some(code), None) => {
            let alias = member(code, documentation);
            add(&alias.name, alias.documentation, Kind::Alias(alias.kind));
        }
    }
}

/// The code between separators, and the comments that begin in the same lines.
fn items(body: &str, separator: char) -> Vec<(String, String)> {
    let comment = |text: &str| {
        text.split_once("/*")
            .map_or(String::new(), |(_, rest)| words(rest.split("*/").next().unwrap()))
    };
    let code = without_comments(body);
    let mut found: Vec<(String, String)> = Vec::new();
    let mut start = 0;
    for part in code.split_inclusive(separator) {
        let text = &body[start..start + part.len()];
        start += part.len();
        let own = part.trim_end_matches(separator).trim();
        let first = part.len() - part.trim_start().len();
        if text[..first].lines().next().map_or(false, |line| line.contains("/*")) {
            found.last_mut().expect("an item before a comment").1 = comment(text);
        }
        if !own.is_empty() {
            let own = own.split_whitespace().collect::<Vec<_>>().join(" ");
            found.push((own, comment(&text[first..])));
        }
    }
    found
}

/// `const float* lse`, `int64_t shape[4]`.
fn member(code: &str, documentation: String) -> Member {
    let (code, length) = code.split_once('[').unwrap_or((code, ""));
    let at = code.rfind([' ', '*']).expect("a type and a name") + 1;
    let kind = type_in_rust(&code[..at]);
    let kind = match length.strip_suffix(']') {
        Some(length) => format!("[{}; {}]", kind, length),
        None => kind,
    };
    Member { name: code[at..].into(), kind, documentation }
}

/// `size_t name(int32_t dtype)`.
fn function(code: &str) -> (String, Signature) {
    let (declared, parameters) = code.split_once('(').expect("parameters");
    let declared = member(declared, String::new());
    let parameters = parameters.trim_end_matches(')').split(", ");
    let parameters = parameters.filter(|code| *code != "void");
    let parameters = parameters.map(|code| member(code, String::new())).collect();
    let result = if declared.kind == "c_void" { "()".into() } else { declared.kind };
    (declared.name, Signature { parameters, result })
}

fn type_in_rust(c: &str) -> String {
    let c = c.trim();
    if let Some(target) = c.strip_suffix('*') {
        return match target.strip_prefix("const ") {
            Some(target) => format!("*const {}", type_in_rust(target)),
            None => format!("*mut {}", type_in_rust(target)),
        };
    }
    match c {
        "void" => "c_void",
        "char" => "c_char",
        "float" => "f32",
        "double" => "f64",
        "size_t" => "usize",
        "int32_t" => "i32",
        "int64_t" => "i64",
        "uint64_t" => "u64",
        name if name.starts_with("flashcore_") => name,
        _ => panic!("flashcore.h: the type {} is not known here", c),
    }
    .into()
}

/// The declarations as a Rust file.
pub fn bindings(declarations: &[Declaration]) -> String {
    let mut file = String::from("use std::os::raw::{c_char, c_void};\n");
    for Declaration { name, documentation, kind } in declarations {
        let documentation = attribute(documentation);
        let text = match kind {
            Kind::Constant(value) => format!("pub const {}: i32 = {};", name, value),
            Kind::Alias(kind) => format!("pub type {} = {};", name, kind),
            // Neither Send nor Sync nor Unpin: only the library knows the contents.
            Kind::Opaque => format!(
                "#[repr(C)] pub struct {} {{ _private: [u8; 0], _marker: \
                 std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)> }}",
                name
            ),
            Kind::Struct(members) => format!(
                "#[repr(C)] #[derive(Clone, Copy, Debug)] pub struct {} {{\n{}}}\n{}",
                name,
                members.iter().map(member_in_rust).collect::<String>(),
                default_of(name, members)
            ),
            Kind::Function(signature) => {
                let signature = signature_in_rust(signature);
                writeln!(file, "extern \"C\" {{ {}pub fn {}{}; }}", documentation, name, signature)
                    .expect("a string grows");
                continue;
            }
            Kind::Callback(signature) => format!(
                "pub type {} = Option<unsafe extern \"C\" fn{}>;",
                name,
                signature_in_rust(signature)
            ),
        };
        writeln!(file, "{}{}", documentation, text).expect("a string grows");
    }
    file
}

fn attribute(documentation: &str) -> String {
    match documentation {
        "" => String::new(),
        text => format!("#[doc = {:?}] ", text),
    }
}

fn member_in_rust(member: &Member) -> String {
    format!("{}pub {}: {},\n", attribute(&member.documentation), member.name, member.kind)
}

fn default_of(name: &str, members: &[Member]) -> String {
    let has_size = members.iter().any(|member| member.name == "struct_size");
    format!(
        "/// Zeros, but for the size of the struct where it has one.\n\
         impl Default for {} {{ fn default() -> Self {{\n\
         // SAFETY: all members are numbers and pointers, for which zeros are values.\n\
         let {}one: Self = unsafe {{ std::mem::zeroed() }};\n{}one }} }}",
        name,
        if has_size { "mut " } else { "" },
        if has_size { "one.struct_size = std::mem::size_of::<Self>();\n" } else { "" }
    )
}

fn signature_in_rust(signature: &Signature) -> String {
    let parameters = signature.parameters.iter();
    let parameters = parameters.map(|one| format!("{}: {}", one.name, one.kind));
    let parameters = parameters.collect::<Vec<_>>().join(", ");
    match signature.result.as_str() {
        "()" => format!("({})", parameters),
        result => format!("({}) -> {}", parameters, result),
    }
}
