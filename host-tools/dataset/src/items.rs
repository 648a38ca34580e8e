//! Names on a disk, and the filesystem that they are.

use std::collections::HashMap;

use erofs::{Attributes, Time, Tree};

use crate::DatasetError;
use crate::own::{MANIFEST, OWN_FOLDER};

/// A name on a disk; `F` stands for the bytes of a file.
#[derive(Debug, Clone)]
pub(crate) struct Item<F> {
    /// From the root on; the root itself has none.
    pub(crate) path: Vec<u8>,
    pub(crate) attributes: Attributes,
    pub(crate) kind: ItemKind<F>,
}

#[derive(Debug, Clone)]
pub(crate) enum ItemKind<F> {
    Directory,
    File {
        bytes: u64,
        content: F,
    },
    /// A file whose bytes the volume gets for the disk alone.
    Own(Vec<u8>),
    Symlink(Vec<u8>),
}

impl<F> Item<F> {
    pub(crate) fn directory(path: &[u8], attributes: Attributes) -> Item<F> {
        Item {
            path: path.to_vec(),
            attributes,
            kind: ItemKind::Directory,
        }
    }
}

/// What a disk says of itself.
pub(crate) fn own_folder<F>(manifest: &[u8], modified: Time) -> [Item<F>; 2] {
    let attributes = |permissions| Attributes {
        modified,
        ..Attributes::new(permissions)
    };
    let manifest = Item {
        path: MANIFEST.to_vec(),
        attributes: attributes(0o444),
        kind: ItemKind::Own(manifest.to_vec()),
    };
    [Item::directory(OWN_FOLDER, attributes(0o755)), manifest]
}

/// What stands behind a file.
pub(crate) enum Content<F> {
    File(F),
    Own(Vec<u8>),
}

/// The filesystem of `items`, and the content of its files in their order. The root comes first, if it has attributes of its own; directories come before
/// what is in them.
pub(crate) fn tree<F>(
    items: impl Iterator<Item = Item<F>>,
) -> Result<(Tree, Vec<Content<F>>), DatasetError> {
    let mut items = items.peekable();
    let root = items.next_if(|item| item.path.is_empty());
    let root = root.map_or_else(|| Attributes::new(0o755), |root| root.attributes);
    let mut tree = Tree::new(root)?;
    let mut files = Vec::new();
    let mut directories = HashMap::from([(Vec::new(), tree.root())]);
    for item in items {
        let (parent, name) = split(&item.path);
        let parent = directories.get(parent).copied();
        let parent = parent.unwrap_or(tree.root());
        match item.kind {
            ItemKind::Directory => {
                let directory = tree.add_directory(parent, name, item.attributes)?;
                directories.insert(item.path, directory);
            }
            ItemKind::File { bytes, content } => {
                tree.add_file(parent, name, bytes, item.attributes)?;
                files.push(Content::File(content));
            }
            ItemKind::Own(bytes) => {
                tree.add_file(parent, name, bytes.len() as u64, item.attributes)?;
                files.push(Content::Own(bytes));
            }
            ItemKind::Symlink(target) => {
                tree.add_symlink(parent, name, &target, item.attributes)?;
            }
        }
    }
    Ok((tree, files))
}

/// The path of the directory that a path leads through last, empty for the root, and the name in it.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}
