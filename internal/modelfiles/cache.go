package modelfiles

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/modelfiles/claims"
)

// DefaultRevision is the revision of models for which none is configured.
const DefaultRevision = "main"

// A cache has the layout of Hugging Face's: models--ORG--NAME/snapshots/COMMIT/FILE, and
// models--ORG--NAME/refs/REVISION with the commit of a branch or tag.

func repoFolder(cache, repo string) string {
	return filepath.Join(cache, "models--"+strings.ReplaceAll(repo, "/", "--"))
}

// FindSnapshot returns the folder of a repository's files in a cache, "" if it has none with a
// vocabulary. Without a reference for the default revision it returns the newest snapshot.
func FindSnapshot(cache, repo, revision string) (dir, commit string) {
	if cache == "" || !ValidRepo(repo) || !ValidRevision(revision) {
		return "", ""
	}
	base := repoFolder(cache, repo)
	candidates := []string{revision}
	if ref, err := readSmall(filepath.Join(base, "refs", filepath.FromSlash(revision))); err == nil {
		candidates = []string{strings.TrimSpace(ref)}
	} else if revision == DefaultRevision {
		candidates = append(candidates, newestFirst(filepath.Join(base, "snapshots"))...)
	}
	for _, c := range candidates {
		if !ValidRevision(c) || strings.Contains(c, "/") {
			continue
		}
		if dir := filepath.Join(base, "snapshots", c); HasVocabulary(dir) {
			return dir, c
		}
	}
	return "", ""
}

// LocalCaches returns all caches that are searched, in order.
func (o *Options) LocalCaches() []string { return append(slices.Clone(o.Caches), o.Cache) }

// FindLocal returns the folder of the first of names that is a local folder or a repository in a
// cache, "" if there is none. It does not download.
func FindLocal(caches []string, names ...string) string {
	for _, name := range names {
		if isFolder(name) && HasVocabulary(name) {
			return name
		}
		for _, cache := range caches {
			if dir, _ := FindSnapshot(cache, name, DefaultRevision); dir != "" {
				return dir
			}
		}
	}
	return ""
}

// newestFirst lists the subfolders of dir by their time of change.
func newestFirst(dir string) (names []string) {
	entries, _ := os.ReadDir(dir)
	at := func(e fs.DirEntry) time.Time {
		if info, err := e.Info(); err == nil {
			return info.ModTime()
		}
		return time.Time{}
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return at(b).Compare(at(a)) })
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// HasVocabulary reports whether a folder holds a vocabulary file.
func HasVocabulary(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		return isVocabulary(e.Name()) && err == nil && info.Mode().IsRegular()
	})
}

// cacheSize returns the size of the files in a cache that may have been downloaded by this package.
func cacheSize(cache string) (n int64) {
	_ = filepath.WalkDir(cache, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !wantedFile(d.Name()) && !strings.HasSuffix(d.Name(), suffixTemplate) {
			return nil //nolint:nilerr // unreadable files are not counted
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// maxSmall is the size limit of references and token files.
const maxSmall = 4 << 10

func readSmall(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSmall))
	return string(b), err
}

// File is a file in use.
type File = claims.File

// describe returns the files of a folder that are read, with their checksums.
func describe(dir string, maxBytes int64) ([]File, error) {
	var out []File
	more := func(sub string) error {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := e.Name()
			if sub != "" {
				name = sub + "/" + name
			}
			if !wantedFile(name) {
				continue
			}
			f, err := sumFile(filepath.Join(dir, filepath.FromSlash(name)), maxBytes)
			if err != nil {
				return err
			}
			f.Name = name
			out = append(out, f)
		}
		return nil
	}
	if err := more(""); err != nil {
		return nil, err
	}
	if err := more(folderTemplates); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return out, nil
}

func sumFile(path string, maxBytes int64) (File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return File{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxBytes {
		return File{}, fmt.Errorf("%s is not a file of at most %d bytes", path, maxBytes)
	}
	f, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, maxBytes))
	return File{Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}

// store makes the downloaded files of a commit the snapshot of a revision in the cache. It is
// atomic: readers see either no snapshot or a complete one.
func store(cache, repo, revision, commit, staged string) (dir string, err error) {
	base := repoFolder(cache, repo)
	dir = filepath.Join(base, "snapshots", commit)
	if !HasVocabulary(dir) {
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return "", err
		}
		if err := os.RemoveAll(dir); err != nil { // incomplete files of another program
			return "", err
		}
		if err := os.Rename(staged, dir); err != nil && !HasVocabulary(dir) { // unless another process stored it
			return "", err
		}
	}
	if revision == commit {
		return dir, nil
	}
	ref := filepath.Join(base, "refs", filepath.FromSlash(revision))
	if err := os.MkdirAll(filepath.Dir(ref), 0o755); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(filepath.Dir(ref), ".ref-")
	if err != nil {
		return "", err
	}
	_, err = tmp.WriteString(commit)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), ref)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return "", err
	}
	return dir, nil
}
