//! A configuration file that is edited without loss of its comments and its order.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, Value, value};

use crate::{exit, text_position::TextPosition};

/// The text of a configuration file before its change, and the changed document.
pub(crate) struct Document {
    before: String,
    /// Comment lines for the start of the file if the file is new.
    title: String,
    now: DocumentMut,
}

impl Document {
    /// Reads a file. If the file does not exist, starts with an empty document.
    ///
    /// # Errors
    /// If the file cannot be read or is not TOML.
    pub(crate) fn open(path: &Path, title: &str) -> anyhow::Result<Self> {
        let before = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let now = before.parse::<DocumentMut>().map_err(|error| {
            let offset = error.span().map_or(0, |it| it.start);
            let message = error.message().trim_end().replace('`', "\"");
            exit::misuse(format!(
                "{}: {message}",
                TextPosition::of(&before, offset, path)
            ))
        })?;
        Ok(Self {
            before,
            title: title.to_owned(),
            now,
        })
    }

    /// Returns the configured path of the key file. If none is configured, inserts and returns
    /// `usual`.
    pub(crate) fn key_file(&mut self, usual: &Path) -> PathBuf {
        let table = self.table("identity");
        let item = table.entry("key_file");
        let named = item.or_insert(value(usual.display().to_string()));
        named
            .as_str()
            .map_or_else(|| usual.to_owned(), PathBuf::from)
    }

    /// Sets a key of a section if the key has no value.
    pub(crate) fn set_default(&mut self, section: &str, key: &str, text: &str) {
        self.table(section).entry(key).or_insert(value(text));
    }

    /// Adds each of `texts` to the list, unless the list already contains the text.
    pub(crate) fn add(&mut self, section: &str, key: &str, texts: &[String]) {
        let list = self.table(section).entry(key);
        let list = list.or_insert(value(Array::new()));
        let Some(list) = list.as_array_mut() else {
            // The value is no list. The later check of the configuration reports this mistake.
            return;
        };
        for text in texts {
            if !list.iter().any(|it| it.as_str() == Some(text)) {
                list.push(text);
            }
        }
    }

    /// Adds a table such as `[[peer]]`. If a table with the same value for the first key exists,
    /// changes nothing.
    ///
    /// # Errors
    /// If the existing table differs in another key. The user must then decide which value applies.
    pub(crate) fn add_table(&mut self, kind: &str, pairs: &[(&str, Value)]) -> anyhow::Result<()> {
        let Some((first, text)) = pairs.first() else {
            return Ok(());
        };
        let tables = self.tables(kind)?;
        let is_there = |it: &&Table| it.get(first).and_then(Item::as_str) == text.as_str();
        if let Some(there) = tables.iter().find(is_there) {
            for (key, wanted) in pairs {
                let other = there.get(key).and_then(Item::as_value);
                let is_same = other.is_none_or(|it| text_of(it) == text_of(wanted));
                exit::ensure(
                    is_same,
                    &format!(
                        "there is a [[{kind}]] with {first} = {} and another {key}: change it in the file, or choose another {first}",
                        text_of(text)
                    ),
                )?;
            }
            return Ok(());
        }
        let mut table = Table::new();
        for (key, value) in pairs {
            table.insert(key, Item::Value(value.clone()));
        }
        tables.push(table);
        Ok(())
    }

    /// Removes the tables of this kind in which `key` has the value `text`. Returns whether there
    /// was such a table.
    ///
    /// # Errors
    /// If `kind` is not a list of tables.
    pub(crate) fn remove_table(
        &mut self,
        kind: &str,
        key: &str,
        text: &str,
    ) -> anyhow::Result<bool> {
        let tables = self.tables(kind)?;
        let count = tables.len();
        tables.retain(|it| it.get(key).and_then(Item::as_str) != Some(text));
        let is_removed = tables.len() < count;
        if tables.is_empty() {
            self.now.remove(kind);
        }
        Ok(is_removed)
    }

    /// Returns the name of the peer with this public key. A peer may have several keys.
    ///
    /// # Errors
    /// If `peer` is not a list of tables.
    pub(crate) fn name_of_peer(&mut self, public_key: &str) -> anyhow::Result<Option<String>> {
        let tables = self.tables("peer")?;
        let has_key = |it: &&Table| match it.get("public_key").and_then(Item::as_value) {
            Some(Value::Array(list)) => list.iter().any(|it| it.as_str() == Some(public_key)),
            one => one.and_then(Value::as_str) == Some(public_key),
        };
        let name = tables.iter().find(has_key).and_then(|it| it.get("name"));
        let name = name.and_then(Item::as_str).map(str::to_owned);
        if tables.is_empty() {
            self.now.remove("peer");
        }
        Ok(name)
    }

    /// Returns the values of a key in all tables of a kind. In each table, the value is a text or a
    /// list of texts.
    pub(crate) fn values(&mut self, kind: &str, key: &str) -> anyhow::Result<Vec<String>> {
        let tables = self.tables(kind)?;
        let items = tables.iter().filter_map(|it| it.get(key)?.as_value());
        let texts = items.flat_map(|it| match it {
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            one => Vec::from_iter(one.as_str()),
        });
        let texts = texts.map(str::to_owned).collect();
        if tables.is_empty() {
            self.now.remove(kind);
        }
        Ok(texts)
    }

    /// Returns the tables of a kind. Converts a list of inline tables first.
    fn tables(&mut self, kind: &str) -> anyhow::Result<&mut ArrayOfTables> {
        let item = self.now.entry(kind);
        let item = item.or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        if let Some(list) = item.as_array() {
            let tables = list
                .iter()
                .map(|it| Some(it.as_inline_table()?.clone().into_table()));
            if let Some(tables) = tables.collect::<Option<Vec<_>>>() {
                *item = Item::ArrayOfTables(ArrayOfTables::from_iter(tables));
            }
        }
        let tables = item.as_array_of_tables_mut();
        tables.ok_or_else(|| {
            exit::misuse(format!(
                "{kind} of the configuration is no list of tables: write each as [[{kind}]]"
            ))
        })
    }

    /// Returns the text of the changed file.
    pub(crate) fn text(&self) -> String {
        let text = self.now.to_string();
        match self.before.is_empty() {
            true => format!("{}{text}", self.title),
            false => text,
        }
    }

    /// Returns the removed and added lines, each with a sign in front.
    pub(crate) fn changes(&self) -> String {
        let now = self.text();
        let mut left: Vec<&str> = self.before.lines().collect();
        let mut changes = String::new();
        for line in now.lines() {
            match left.iter().position(|it| *it == line) {
                Some(at) => {
                    left.remove(at);
                }
                None if line.is_empty() => {}
                None => changes += &format!("  + {line}\n"),
            }
        }
        for line in left.into_iter().filter(|it| !it.is_empty()) {
            changes += &format!("  - {line}\n");
        }
        changes
    }

    fn table(&mut self, name: &str) -> &mut Table {
        let item = self.now.entry(name).or_insert(Item::Table(Table::new()));
        if !item.is_table() {
            // The item is either an inline table or invalid. The check of the configuration reports
            // an invalid item.
            let inline = item.as_inline_table().cloned();
            *item = Item::Table(inline.map_or_else(Table::new, |it| it.into_table()));
        }
        item.as_table_mut().expect("it is one now")
    }
}

/// Returns the text of a value without the spaces and comments around it.
fn text_of(value: &Value) -> String {
    value.clone().decorated("", "").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: &str) -> Document {
        let folder = tempfile::tempdir().expect("room");
        let path = folder.path().join("gateway.toml");
        if !text.is_empty() {
            fs::write(&path, text).expect("room");
        }
        Document::open(&path, "# Title\n").expect("TOML")
    }

    const WRITTEN: &str = "\
# Ours
[identity]
key_file = \"old.key\" # by hand

[far]
allow = [\"10.0.0.1:21\"] # the archive

[[peer]]
name = \"oslo\"
public_key = \"K\"
";

    #[test]
    fn a_new_file_has_a_title_and_what_was_set() {
        let mut document = open("");
        assert_eq!(
            document.key_file(Path::new("/s/a.key")),
            Path::new("/s/a.key")
        );
        document.set_default("link", "listen", "0.0.0.0:4810");
        document.add("far", "allow", &["10.0.0.1:21".to_owned()]);
        let far = [("name", "far".into()), ("public_key", "K".into())];
        document.add_table("peer", &far).expect("tables");
        let expected = "# Title\n[identity]\nkey_file = \"/s/a.key\"\n\n[link]\nlisten = \"0.0.0.0:4810\"\n\n\
                        [far]\nallow = [\"10.0.0.1:21\"]\n\n[[peer]]\nname = \"far\"\npublic_key = \"K\"\n";
        assert_eq!(document.text(), expected);
        assert!(document.changes().contains("+ # Title"));
    }

    #[test]
    fn comments_stay_and_nothing_is_added_twice() {
        let mut document = open(WRITTEN);
        assert_eq!(document.key_file(Path::new("x")), Path::new("old.key"));
        document.add("far", "allow", &["10.0.0.1:21".to_owned()]);
        let other = [("name", "oslo".into()), ("public_key", "other".into())];
        let told = document.add_table("peer", &other).expect_err("another key");
        assert!(told.to_string().contains("another public_key"), "{told}");
        let same = [("name", "oslo".into()), ("public_key", "K".into())];
        document.add_table("peer", &same).expect("the same");
        assert_eq!(document.text(), WRITTEN);
        assert_eq!(document.changes(), "");
        document.add("far", "allow", &["10.0.0.2:21".to_owned()]);
        let changes = document.changes();
        assert!(changes.contains("+ allow = [\"10.0.0.1:21\", \"10.0.0.2:21\"] # the archive"));
        assert!(
            changes.contains("- allow = [\"10.0.0.1:21\"] # the archive"),
            "{changes}"
        );
        assert!(document.text().contains("# by hand"));
    }

    #[test]
    fn a_table_goes_by_the_value_of_a_key() {
        let mut document = open(WRITTEN);
        let is_removed = |document: &mut Document, name| {
            document.remove_table("peer", "name", name).expect("tables")
        };
        assert_eq!(document.values("peer", "name").expect("tables"), ["oslo"]);
        assert!(!is_removed(&mut document, "bern"));
        assert!(is_removed(&mut document, "oslo"));
        assert!(!document.text().contains("oslo") && document.text().contains("# Ours"));
        // The peers are written as a list of inline tables.
        let mut document = open("peer = [{ name = \"a\", public_key = [\"K\", \"L\"] }]\n");
        assert_eq!(
            document.values("peer", "public_key").expect("tables"),
            ["K", "L"]
        );
        assert!(is_removed(&mut document, "a"));
        assert!(!document.text().contains("peer"), "{}", document.text());
        assert!(open("peer = 1\n").values("peer", "name").is_err());
    }

    #[test]
    fn invalid_toml_is_reported_with_its_position() {
        let folder = tempfile::tempdir().expect("room");
        let path = folder.path().join("gateway.toml");
        fs::write(&path, "[identity]\nkey_file = \n").expect("room");
        let told = Document::open(&path, "").err().expect("wrong").to_string();
        assert!(told.contains("gateway.toml:2:"), "{told}");
    }
}
