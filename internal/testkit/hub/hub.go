package hub

import (
	"crypto/sha1" //nolint:gosec // Git's names of files
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Repo is a repository.
type Repo struct {
	Commit string // of each revision
	Files  map[string]string
	Gated  bool // requires Hub.Token
	// Large lists the files that the content host serves. The hub itself serves the others.
	Large []string
}

// Hub is a running hub. Its fields may be changed under Lock.
type Hub struct {
	sync.Mutex
	Repos map[string]*Repo
	Token string // has access to gated repositories

	Break    int // files to break off in the middle
	Busy     int // requests to answer with 429
	Corrupt  bool
	RetryAft int // seconds in Retry-After of 429

	// Before, if not nil, is called before the hub answers a request, without the lock.
	Before func(r *http.Request)

	URL     string // of the hub
	Content string // of the content host

	requests []string // paths
	leaked   []string // authorizations that reached the content host
}

// Start starts a hub until the end of the test.
func Start(tb testing.TB) *Hub {
	tb.Helper()
	h := StartAt(tb, "127.0.0.1", "127.0.0.1")
	h.Content = strings.Replace(h.Content, "127.0.0.1", "localhost", 1)
	return h
}

// StartAt starts a hub at an address of this machine, with its content host at another one.
func StartAt(tb testing.TB, address, contentAddress string) *Hub {
	tb.Helper()
	h := &Hub{Repos: map[string]*Repo{}, Token: "hf_secret"}
	serve := func(address string, f http.HandlerFunc) (url string) {
		l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			tb.Fatal(err)
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: f}} //nolint:gosec // a test's clients are fast
		s.Start()
		tb.Cleanup(s.Close)
		return s.URL
	}
	h.URL, h.Content = serve(address, h.serve), serve(contentAddress, h.serveContent)
	return h
}

// Commit is the commit of repositories without an own one.
const Commit = "0123456789abcdef0123456789abcdef01234567"

// Add adds the files of a folder as a repository.
func (h *Hub) Add(tb testing.TB, name, dir string) *Repo {
	tb.Helper()
	r := &Repo{Commit: Commit, Files: map[string]string{}, Large: []string{"tokenizer.json"}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		r.Files[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	h.Lock()
	defer h.Unlock()
	h.Repos[name] = r
	return r
}

// Requests returns the paths of all requests to the hub.
func (h *Hub) Requests() []string {
	h.Lock()
	defer h.Unlock()
	return slices.Clone(h.requests)
}

// Leaked returns the credentials that reached the content host.
func (h *Hub) Leaked() []string {
	h.Lock()
	defer h.Unlock()
	return slices.Clone(h.leaked)
}

func (h *Hub) serve(w http.ResponseWriter, r *http.Request) {
	h.Lock()
	before := h.Before
	h.Unlock()
	if before != nil {
		before(r)
	}
	h.Lock()
	defer h.Unlock()
	h.requests = append(h.requests, r.URL.Path)
	if h.Busy > 0 {
		h.Busy--
		w.Header().Set("Retry-After", strconv.Itoa(h.RetryAft))
		refuse(w, http.StatusTooManyRequests, "", "too many requests")
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuse(w, http.StatusMethodNotAllowed, "", "only GET and HEAD")
		return
	}
	if path, ok := strings.CutPrefix(r.URL.Path, "/api/models/"); ok {
		if name, rev, ok := strings.Cut(path, "/revision/"); ok {
			h.list(w, r, name, rev)
			return
		}
	} else if name, file, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/resolve/"); ok {
		rev, file, _ := strings.Cut(file, "/")
		h.resolve(w, r, name, rev, file)
		return
	}
	refuse(w, http.StatusNotFound, "", "no such page")
}

// repo returns a repository, or answers with the error.
func (h *Hub) repo(w http.ResponseWriter, r *http.Request, name, rev string) *Repo {
	repo, authorized := h.Repos[name], r.Header.Get("Authorization") == "Bearer "+h.Token
	switch {
	case repo == nil && !authorized: // as for private repositories
		refuse(w, http.StatusUnauthorized, "RepoNotFound", "Repository not found")
	case repo == nil:
		refuse(w, http.StatusNotFound, "RepoNotFound", "Repository not found")
	case rev != "main" && rev != repo.Commit:
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Revision not found")
	default:
		return repo
	}
	return nil
}

func (h *Hub) list(w http.ResponseWriter, r *http.Request, name, rev string) {
	repo := h.repo(w, r, name, rev)
	if repo == nil {
		return
	}
	type sibling struct {
		Name string `json:"rfilename"`
	}
	page := struct {
		ID       string    `json:"id"`
		SHA      string    `json:"sha"`
		Gated    any       `json:"gated"`
		Siblings []sibling `json:"siblings"`
	}{ID: name, SHA: repo.Commit, Gated: repo.Gated}
	for file := range repo.Files {
		page.Siblings = append(page.Siblings, sibling{file})
	}
	slices.SortFunc(page.Siblings, func(a, b sibling) int { return strings.Compare(a.Name, b.Name) })
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(page) // the client is gone
}

func (h *Hub) resolve(w http.ResponseWriter, r *http.Request, name, rev, file string) {
	repo := h.repo(w, r, name, rev)
	if repo == nil {
		return
	}
	if repo.Gated && r.Header.Get("Authorization") != "Bearer "+h.Token {
		refuse(w, http.StatusUnauthorized, "GatedRepo", "Access to model "+name+" is restricted")
		return
	}
	w.Header().Set("X-Repo-Commit", repo.Commit)
	text, ok := repo.Files[file]
	if !ok {
		refuse(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		return
	}
	if !slices.Contains(repo.Large, file) {
		sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text)) //nolint:gosec // as above
		w.Header().Set("Etag", `"`+hex.EncodeToString(sum[:])+`"`)
		h.send(w, text)
		return
	}
	sum := sha256.Sum256([]byte(text))
	w.Header().Set("X-Linked-Etag", `"`+hex.EncodeToString(sum[:])+`"`)
	w.Header().Set("X-Linked-Size", strconv.Itoa(len(text)))
	w.Header().Set("Location", h.Content+"/"+name+"/"+file+"?signature=secret")
	w.WriteHeader(http.StatusFound)
}

func (h *Hub) serveContent(w http.ResponseWriter, r *http.Request) {
	h.Lock()
	defer h.Unlock()
	if a := r.Header.Get("Authorization"); a != "" {
		h.leaked = append(h.leaked, a)
	}
	for name, repo := range h.Repos {
		if file, ok := strings.CutPrefix(r.URL.Path, "/"+name+"/"); ok && r.URL.Query().Get("signature") == "secret" {
			if text, ok := repo.Files[file]; ok {
				h.send(w, text)
				return
			}
		}
	}
	w.WriteHeader(http.StatusForbidden)
}

// send sends a file, or the part that a fault leaves.
func (h *Hub) send(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	switch {
	case h.Break > 0:
		h.Break--
		text = text[:len(text)/2] // the server closes the connection
	case h.Corrupt:
		text = strings.Repeat("x", len(text))
	}
	_, _ = w.Write([]byte(text)) // the client is gone
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	if code != "" {
		w.Header().Set("X-Error-Code", code)
	}
	w.Header().Set("X-Error-Message", message)
	http.Error(w, message, status)
}
