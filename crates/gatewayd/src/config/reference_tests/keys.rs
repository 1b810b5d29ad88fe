//! Keys of the configuration, extracted from the types and doc comments in `file.rs`.

use std::collections::BTreeMap;

use syn::{Attribute, Expr, Field, GenericArgument, Item, Lit, Meta, PathArguments, Type};

/// A section of the file, or a table inside a section.
pub(super) struct Section {
    /// Path of the section from the root of the file, such as `ftp.tls`.
    pub(super) path: String,
    pub(super) keys: Vec<Key>,
}

/// A key of a section, with the text of its documentation.
pub(super) struct Key {
    pub(super) name: String,
    /// Name of the value's type for the documentation.
    pub(super) type_name: String,
    pub(super) values: Option<String>,
    pub(super) default: Option<String>,
    pub(super) is_required: bool,
    pub(super) sentence: String,
}

/// Returns all sections. The first section is the file's root. Its keys are the other sections.
pub(super) fn sections() -> Vec<Section> {
    let file = syn::parse_file(include_str!("../file.rs")).expect("Rust");
    let structs = file.items.into_iter().filter_map(|item| match item {
        Item::Struct(item) => Some((item.ident.to_string(), item.fields)),
        _ => None,
    });
    let structs: BTreeMap<_, _> = structs.collect();
    let mut sections = Vec::new();
    add_section("File", "", &structs, &mut sections);
    sections
}

fn add_section(
    name: &str,
    path: &str,
    structs: &BTreeMap<String, syn::Fields>,
    sections: &mut Vec<Section>,
) {
    let at = sections.len();
    sections.push(Section {
        path: path.to_owned(),
        keys: Vec::new(),
    });
    for field in &structs[name] {
        let key = Key::new(field, path.is_empty());
        let inner = Shape::of(&field.ty).name;
        if structs.contains_key(&inner) {
            let path = format!("{path}.{}", key.name);
            add_section(&inner, path.trim_start_matches('.'), structs, sections);
        }
        sections[at].keys.push(key);
    }
}

impl Key {
    fn new(field: &Field, is_section: bool) -> Self {
        let ident = field.ident.as_ref().expect("a named field").to_string();
        let shape = Shape::of(&field.ty);
        let serde = field.attrs.iter().filter(|it| it.path().is_ident("serde"));
        let (mut name, mut has_default) = (ident, false);
        for attribute in serde {
            let read = attribute.parse_nested_meta(|meta| {
                has_default |= meta.path.is_ident("default");
                if let Ok(value) = meta.value() {
                    let value: syn::LitStr = value.parse()?;
                    if meta.path.is_ident("rename") {
                        name = value.value();
                    }
                }
                Ok(())
            });
            read.expect("attributes of serde");
        }
        let (mut sentence, mut values, mut default) = (String::new(), None, None);
        for line in doc_lines(&field.attrs) {
            let stated = |name| {
                line.strip_prefix(name)
                    .map(|it| it.trim_end_matches('.').to_owned())
            };
            if let Some(stated) = stated("Values: ") {
                values = Some(stated);
            } else if let Some(stated) = stated("Default: ") {
                default = Some(stated);
            } else if !line.is_empty() {
                sentence = format!("{sentence} {line}").trim().to_owned();
            }
        }
        assert!(!sentence.is_empty(), "{name} has no doc comment");
        Self {
            type_name: match is_section {
                true => shape.section_words(),
                false => shape.words(&name),
            },
            is_required: !shape.is_optional && !has_default,
            name,
            values,
            default,
            sentence,
        }
    }
}

fn doc_lines(attributes: &[Attribute]) -> impl Iterator<Item = String> {
    attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
                Expr::Lit(value) => match &value.lit {
                    Lit::Str(text) => Some(text.value().trim().to_owned()),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        })
}

/// Properties of a field's type.
struct Shape {
    /// Name of the innermost type, such as `T` in `Option<Spanned<T>>`.
    name: String,
    is_optional: bool,
    is_list: bool,
}

impl Shape {
    fn of(ty: &Type) -> Self {
        let Type::Path(path) = ty else {
            panic!("a type without a path")
        };
        let last = path.path.segments.last().expect("a name");
        let wrapper = last.ident.to_string();
        let inner = match &last.arguments {
            PathArguments::AngleBracketed(inner) => inner.args.first(),
            _ => None,
        };
        let Some(GenericArgument::Type(inner)) = inner else {
            return Self {
                name: wrapper,
                is_optional: false,
                is_list: false,
            };
        };
        let inner = Self::of(inner);
        Self {
            is_optional: inner.is_optional || wrapper == "Option",
            is_list: inner.is_list || wrapper == "Vec",
            ..inner
        }
    }

    fn words(&self, key: &str) -> String {
        let (one, several) = match self.name.as_str() {
            "bool" => ("`true`, `false`", ""),
            "String" => ("string", "strings"),
            "PathBuf" => ("path", "paths"),
            "SocketAddr" => ("`address:port`", ""),
            "IpAddr" => ("address", "addresses"),
            "BitRate" => ("rate", "rates"),
            "ByteCount" => ("size", "sizes"),
            "Duration" => ("time", "times"),
            "NonZeroUsize" | "NonZeroU32" => ("number from 1", ""),
            "HostPort" => ("`host:port`", ""),
            "Network" => ("network", "networks"),
            "AllowEntry" => ("server", "servers"),
            "ServesPattern" => ("pattern", "patterns"),
            "OneOrMore" => ("string, or list of strings", ""),
            name if name.ends_with("Section") => ("table", "tables"),
            name => panic!("{key}: the type {name} has no words here"),
        };
        match self.is_list {
            true => format!("list of {several}"),
            false => one.to_owned(),
        }
    }

    fn section_words(&self) -> String {
        let words = match self.is_list {
            true => "any number",
            false => "at most one",
        };
        words.to_owned()
    }
}
