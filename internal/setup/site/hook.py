"""MkDocs hooks for pages that are written for the repository view.

on_config    expands patterns in the navigation (plugins/*.md) to one entry per page
on_files     adds an index of the decision records
on_page_markdown
             points links to files outside docs/ at the repository, and adapts lists and tables to
             Python-Markdown, which reads both differently from GitHub; ranks tasks and tutorials
             before decision records in the search
"""

import fnmatch
import os
import posixpath
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
RECORDS = "adr"
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
ITEM = re.compile(r"^( *)([-*]|\d+\.)( +)(?=\S)")
FENCE = re.compile(r"^ *(```+|~~~+)")


def title(path):
    """The first heading of a page."""
    with open(path, encoding="utf-8") as f:
        for line in f:
            if line.startswith("# "):
                return line[2:].strip().replace("`", "")
    raise PluginError("%s has no title" % path)


def pages(docs, pattern):
    folder = posixpath.dirname(pattern)
    names = sorted(os.listdir(os.path.join(docs, folder)))
    names = [n for n in names if fnmatch.fnmatch(n, posixpath.basename(pattern)) and n not in ("README.md", "index.md")]
    if not names:
        raise PluginError("no page matches %s" % pattern)
    return [posixpath.join(folder, n) for n in names]


def expand(docs, entries):
    out = []
    for entry in entries:
        if isinstance(entry, str) and "*" in entry:
            out += [{title(os.path.join(docs, p)): p} for p in pages(docs, entry)]
        elif isinstance(entry, dict):
            out.append({k: expand(docs, v) if isinstance(v, list) else v for k, v in entry.items()})
        else:
            out.append(entry)
    return out


def on_config(config):
    config.nav = expand(config.docs_dir, config.nav)
    return config


def on_files(files, config):
    text = "# Decision records\n\nEach record states one decision, its context, and the alternatives.\n\n"
    for path in pages(config.docs_dir, RECORDS + "/*.md"):
        number, _, name = title(os.path.join(config.docs_dir, path)).partition(". ")
        text += "- %s: [%s](%s)\n" % (number, name, posixpath.basename(path))
    files.append(File.generated(config, RECORDS + "/index.md", content=text))
    return files


def outside(text, page, repository):
    """Rewrites links to files outside docs/, and to folders, to links into the repository."""

    def rewrite(m):
        start, target, anchor, end = m[1], m[2], m[3] or "", m[4]
        if ":" in target or target.startswith("/"):
            return m[0]
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        full = os.path.join(ROOT, path)
        if path == "docs/" + RECORDS:
            return start + posixpath.relpath(RECORDS + "/index.md", posixpath.dirname(page) or ".") + end
        if not os.path.exists(full) or path.startswith("docs/") and not os.path.isdir(full):
            return m[0]  # a page, or a broken link, which MkDocs reports
        kind = "tree" if os.path.isdir(full) else "blob"
        return "%s%s/%s/main/%s%s%s" % (start, repository.rstrip("/"), kind, path, anchor, end)

    return LINK.sub(rewrite, text)


def lists(text):
    """Indents list items and their contents by four spaces for each level, and separates lists from
    paragraphs and fenced blocks from items, as Python-Markdown requires."""
    out, levels, fence, base = [], [], None, 0  # levels: the column where each open item's content begins
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        if fence:
            out.append(" " * (4 * len(levels)) + line[min(indent, base):] if line.strip() else "")
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = None
            continue
        if not line.strip():
            out.append("")
            continue
        if item := ITEM.match(line):
            while levels and indent < levels[-1]:
                levels.pop()
            if not levels and out and out[-1] and not out[-1].startswith("    ") and not ITEM.match(out[-1]):
                out.append("")  # a list right after a paragraph
            out.append(" " * (4 * len(levels)) + (item[2] + item[3]).ljust(4) + line[item.end():])
            levels.append(item.end())
            continue
        separate = not out or not out[-1]
        while levels and indent < levels[-1] and (separate or indent == 0 and FENCE.match(line)):
            levels.pop()
        if opened := FENCE.match(line):
            fence, base = opened[1], indent
            if levels and not separate:
                out.append("")
            out.append(" " * (4 * len(levels)) + line.lstrip(" "))
            continue
        extra = max(0, indent - levels[-1]) if levels else indent
        out.append(" " * (4 * len(levels) + extra) + line.lstrip(" "))
    return "\n".join(out)


def tables(text):
    """Removes the backslash before bars in code within tables, which GitHub requires and Python-Markdown shows."""
    code = re.compile(r"`[^`]*`")
    return "\n".join(
        code.sub(lambda m: m[0].replace("\\|", "|"), line) if line.startswith("|") else line for line in text.split("\n")
    )


# Weight of a folder's pages in the search. Other pages have 1.
BOOST = {"tasks": 4, "get-started": 4, "concepts": 2, "design": 0.5, RECORDS: 0.25}


def on_page_markdown(markdown, page, config, files):
    page.meta.setdefault("search", {"boost": BOOST.get(posixpath.dirname(page.file.src_uri), 1)})
    return tables(lists(outside(markdown, page.file.src_uri, config.extra["repository"])))
