//! Reading the modules of a crate from its files: which modules there are, the items that each
//! defines, and every path that each names.
//!
//! Not here: the items to which the paths lead (`resolve`).

use super::tree::{ChildName, FileId, Mention, ModuleId, Segments, Tree};
use anyhow::{Context, Result, bail};
use proc_macro2::{TokenStream, TokenTree};
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, UseTree};

/// Reads the crate whose root file is `root`.
///
/// `read` returns the text of a file, or `None` if the file does not exist.
pub(crate) fn read_crate(root: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Result<Tree> {
    let mut reader = Reader { tree: Tree::default(), read };
    reader.file(root, None, true)?;
    Ok(reader.tree)
}

struct Reader<'a> {
    tree: Tree,
    read: &'a dyn Fn(&Path) -> Option<String>,
}

/// Folders in which a module's `mod` declarations are looked up.
struct Folders {
    /// Folder to which `#[path]` of a child is relative: that of the module's file, or for an
    /// inline module its children's folder.
    file: PathBuf,
    /// Folder that holds the files of the module's children.
    children: PathBuf,
}

impl Reader<'_> {
    /// Reads a module from the file `path`, and the module's children from their own files.
    ///
    /// `owns_folder` is true if the children's files are in the same folder as `path`, which holds
    /// for a crate's root file and for a file that `#[path]` names.
    fn file(
        &mut self,
        path: &Path,
        parent: Option<ChildName<'_>>,
        owns_folder: bool,
    ) -> Result<()> {
        let text =
            (self.read)(path).with_context(|| format!("{}: no such file", path.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        let file = FileId(self.tree.files.len());
        self.tree.files.push(path.to_owned());
        let module = self.tree.add(file, parent);
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let children = if owns_folder { folder.clone() } else { path.with_extension("") };
        self.items(parsed.items, module, &Folders { file: folder, children })
    }

    fn items(&mut self, items: Vec<Item>, module: ModuleId, folders: &Folders) -> Result<()> {
        for item in items {
            match item {
                Item::Mod(child) if !is_for_tests(&child.attrs) => {
                    self.child(child, module, folders)?;
                }
                Item::Mod(_) => {}
                other => {
                    let module = self.tree.module_mut(module);
                    module.items.extend(name_of(&other));
                    Paths { module }.visit_item(&other);
                }
            }
        }
        Ok(())
    }

    fn child(&mut self, child: ItemMod, parent: ModuleId, folders: &Folders) -> Result<()> {
        let name = child.ident.to_string();
        let below = folders.children.join(&name);
        if let Some((_, items)) = child.content {
            let file = self.tree.module(parent).file;
            let module = self.tree.add(file, Some(ChildName { parent, name: &name }));
            let folders = Folders { file: below.clone(), children: below };
            return self.items(items, module, &folders);
        }
        if let Some(given) = path_attribute(&child.attrs) {
            return self.file(
                &folders.file.join(given),
                Some(ChildName { parent, name: &name }),
                true,
            );
        }
        let beside = below.with_extension("rs");
        if (self.read)(&below.join("mod.rs")).is_some() {
            bail!("{}/mod.rs: a module's file is {}", below.display(), beside.display());
        }
        self.file(&beside, Some(ChildName { parent, name: &name }), false)
    }
}

/// Returns the value of the attribute `#[path = "…"]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    match &found.meta.require_name_value().ok()?.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// Returns true if the item exists only in tests: `#[cfg(test)]`, `#[cfg(all(test, …))]`,
/// `#[test]`.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        if attribute.path().is_ident("test") {
            return true;
        }
        let Ok(list) = attribute.meta.require_list() else { return false };
        let condition = list.tokens.to_string();
        list.path.is_ident("cfg")
            && (condition == "test" || condition.replace(' ', "").starts_with("all(test,"))
    })
}

/// Returns the name that an item defines in its module, or `None` for an item without a name.
fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(ident.to_string())
}

/// Visitor that collects the paths of one item into the item's module.
struct Paths<'a> {
    module: &'a mut super::tree::Module,
}

impl Paths<'_> {
    /// Records the imports of a part of a `use` declaration; `prefix` is the path before that part.
    fn import(&mut self, tree: &UseTree, prefix: &Segments) {
        let joined = |last: &syn::Ident| {
            let mut path = prefix.clone();
            // `use a::{self}` names `a`, not `a::self`.
            if last != "self" || prefix.is_empty() {
                path.push(last.to_string());
            }
            path
        };
        match tree {
            UseTree::Path(inner) => self.import(&inner.tree, &joined(&inner.ident)),
            UseTree::Name(name) => self.bind(joined(&name.ident), None, name.span()),
            UseTree::Rename(name) => {
                self.bind(joined(&name.ident), Some(name.rename.to_string()), name.span());
            }
            UseTree::Glob(_) => self.module.globs.push(prefix.clone()),
            UseTree::Group(group) => {
                for item in &group.items {
                    self.import(item, prefix);
                }
            }
        }
    }

    fn bind(&mut self, path: Segments, rename: Option<String>, span: proc_macro2::Span) {
        if let Some(name) = rename.or_else(|| path.last().cloned()) {
            self.module.bindings.insert(name, path.clone());
        }
        self.mention(path, span);
    }

    fn mention(&mut self, path: Segments, span: proc_macro2::Span) {
        self.module.mentions.push(Mention { path, line: span.start().line });
    }

    /// Records the paths in a macro's arguments, or in the tokens of a macro's definition.
    ///
    /// Tokens have no syntax tree, so a path is recognized by `::` between two identifiers.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Segments = Vec::new();
        let mut colons = 0;
        let mut last = proc_macro2::Span::call_site();
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.mention(std::mem::take(&mut path), last);
                    }
                    (colons, last) = (0, name.span());
                    path.push(name.to_string());
                }
                other => {
                    self.mention(std::mem::take(&mut path), last);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.mention(path, last);
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes: &[Attribute] = match item {
            Item::Const(item) => &item.attrs,
            Item::Enum(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Static(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Trait(item) => &item.attrs,
            Item::Type(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // A `use` that begins with `::` always names another crate.
        if item.leading_colon.is_none() {
            self.import(&item.tree, &Vec::new());
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string());
            self.mention(segments.collect(), path.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}
