package modelfiles

import (
	"context"
	"crypto/sha1" //nolint:gosec // Git's names of files
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DefaultEndpoint is the address of the Hugging Face Hub.
const DefaultEndpoint = "https://huggingface.co"

// Limits of one model.
const (
	maxListing   = 4 << 20
	maxFiles     = 32
	maxRedirects = 6
)

// hubClient is a client of the Hub or a mirror.
type hubClient struct {
	endpoint *url.URL
	client   *http.Client
	token    func() string
	agent    string
	limits   limits
}

type limits struct {
	file, model int64 // bytes
}

// hubError is a failed request to the Hub.
type hubError struct {
	state State
	err   error
	after time.Duration // the Hub's request to wait
}

// Error describes the failure without the token.
func (e *hubError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *hubError) Unwrap() error { return e.err }

func newHubClient(o *Options) (*hubClient, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("modelfiles: HF_ENDPOINT %q: want https://HOST", o.Endpoint)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return &hubClient{
		endpoint: u, token: o.Token, agent: o.Agent, limits: limits{o.MaxFile, o.MaxModel},
		client: &http.Client{
			Transport:     o.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// listing is the relevant part of a repository's description.
type listing struct {
	Commit string
	Files  []string // files to read
}

var errListing = errors.New("the listing of the repository is malformed")

// decodeListing decodes the response to GET /api/models/REPO/revision/REV.
func decodeListing(data []byte) (listing, error) {
	var page struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(data, &page); err != nil || !isCommit(page.SHA) {
		return listing{}, errListing
	}
	l := listing{Commit: page.SHA}
	for _, f := range page.Siblings {
		if wantedFile(f.Name) && !slices.Contains(l.Files, f.Name) {
			if len(l.Files) == maxFiles {
				return listing{}, fmt.Errorf("%w: more than %d files", errListing, maxFiles)
			}
			l.Files = append(l.Files, f.Name)
		}
	}
	return l, nil
}

// list returns the commit of a revision and its files.
func (h *hubClient) list(ctx context.Context, repo, revision string) (listing, error) {
	resp, _, err := h.get(ctx, "/api/models/"+repo+"/revision/"+url.PathEscape(revision))
	if err != nil {
		return listing{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxListing+1))
	switch {
	case err != nil:
		return listing{}, &hubError{state: StateFailed, err: err}
	case len(data) > maxListing:
		return listing{}, &hubError{state: StateRefused, err: fmt.Errorf("%w: more than %d bytes", errListing, maxListing)}
	}
	l, err := decodeListing(data)
	if err != nil {
		return listing{}, &hubError{state: StateFailed, err: err}
	}
	return l, nil
}

// download stores the files of a listing in a folder. It calls progress with the bytes downloaded so
// far.
func (h *hubClient) download(ctx context.Context, repo string, l listing, dir string, progress func(n int64)) error {
	left := h.limits.model
	for _, name := range l.Files {
		before := h.limits.model - left
		n, err := h.file(ctx, repo, l.Commit, name, filepath.Join(dir, filepath.FromSlash(name)), min(left, h.limits.file), func(n int64) { progress(before + n) })
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// progressWriter reports the number of bytes written.
type progressWriter struct {
	n  int64
	to func(n int64)
}

func (w *progressWriter) Write(b []byte) (int, error) {
	w.n += int64(len(b))
	w.to(w.n)
	return len(b), nil
}

// file downloads and verifies one file of at most limit bytes.
func (h *hubClient) file(ctx context.Context, repo, commit, name, path string, limit int64, progress func(n int64)) (int64, error) {
	resp, m, err := h.get(ctx, "/"+repo+"/resolve/"+commit+"/"+name)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	tooLarge := &hubError{state: StateRefused, err: fmt.Errorf("%s is larger than the limit of %d bytes", name, limit)}
	if m.size > limit || resp.ContentLength > limit {
		return 0, tooLarge
	}
	if m.commit != "" && m.commit != commit {
		return 0, &hubError{state: StateFailed, err: fmt.Errorf("%s is of commit %.40q, want %s", name, m.commit, commit)}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return 0, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum, &progressWriter{to: progress}), io.LimitReader(resp.Body, limit+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return n, &hubError{state: StateFailed, err: fmt.Errorf("%s: %w", name, err)}
	}
	if n > limit {
		return n, tooLarge
	}
	if m.size >= 0 && n != m.size {
		return n, &hubError{state: StateFailed, err: fmt.Errorf("%s has %d bytes, want %d", name, n, m.size)}
	}
	return n, verify(path, name, m.etag, hex.EncodeToString(sum.Sum(nil)), n)
}

// verify compares a file with the digest that the Hub reports: SHA-256 for large files, and Git's
// name of the content for others. Mirrors may report its plain SHA-1.
func verify(path, name, etag, sum string, size int64) error {
	wrong := &hubError{state: StateFailed, err: fmt.Errorf("%s does not have the reported digest %s", name, etag)}
	switch {
	case !isHex(etag):
	case len(etag) == sha256.Size*2:
		if etag != sum {
			return wrong
		}
	case len(etag) == sha1.Size*2:
		blob, plain := sha1.New(), sha1.New() //nolint:gosec // as above
		fmt.Fprintf(blob, "blob %d\x00", size)
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := io.Copy(io.MultiWriter(blob, plain), f); err != nil {
			return err
		}
		if !slices.ContainsFunc([]hash.Hash{blob, plain}, func(h hash.Hash) bool { return etag == hex.EncodeToString(h.Sum(nil)) }) {
			return wrong
		}
	}
	return nil
}

// meta is the Hub's own metadata of a file, not the metadata of the host that it redirects to.
type meta struct {
	etag, commit string
	size         int64 // -1: unknown
}

func (m *meta) read(h http.Header) {
	if e := h.Get("X-Linked-Etag"); e != "" {
		m.etag = e
	} else if e := h.Get("Etag"); e != "" && m.etag == "" {
		m.etag = e
	}
	m.etag = strings.Trim(strings.TrimPrefix(m.etag, "W/"), `"`)
	if c := h.Get("X-Repo-Commit"); c != "" {
		m.commit = c
	}
	if n, err := strconv.ParseInt(h.Get("X-Linked-Size"), 10, 64); err == nil && n >= 0 {
		m.size = n
	}
}

// get sends a GET request and follows redirects. The token is sent only to the endpoint itself. The
// caller closes the body.
func (h *hubClient) get(ctx context.Context, path string) (*http.Response, meta, error) {
	m := meta{size: -1}
	at, err := url.Parse(h.endpoint.String() + path)
	if err != nil {
		return nil, m, &hubError{state: StateRefused, err: err}
	}
	for range maxRedirects {
		own := at.Scheme == h.endpoint.Scheme && at.Host == h.endpoint.Host
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			return nil, m, &hubError{state: StateFailed, err: err}
		}
		req.Header.Set("User-Agent", h.agent)
		req.Header.Set("Accept-Encoding", "identity") // digests are computed over the plain file
		if token := h.token(); own && token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := h.client.Do(req)
		if err != nil {
			return nil, m, &hubError{state: StateFailed, err: withoutQuery(err)}
		}
		if own {
			m.read(resp.Header)
		}
		if resp.StatusCode == http.StatusOK {
			return resp, m, nil
		}
		resp.Body.Close()
		to, err := resp.Location()
		if resp.StatusCode/100 != 3 || err != nil {
			return nil, m, failureOf(resp)
		}
		if to.Scheme != "https" && (to.Scheme != "http" || at.Scheme != "http") || to.User != nil {
			return nil, m, &hubError{state: StateRefused, err: fmt.Errorf("redirect to a %.20q address", to.Scheme)}
		}
		at = to
	}
	return nil, m, &hubError{state: StateFailed, err: fmt.Errorf("more than %d redirects", maxRedirects)}
}

// withoutQuery removes the URL from an error: the query of content hosts holds a signature.
func withoutQuery(err error) error {
	var e *url.Error
	if !errors.As(err, &e) {
		return err
	}
	if u, parsed := url.Parse(e.URL); parsed == nil {
		return fmt.Errorf("%s: %w", u.Host, e.Err)
	}
	return e.Err
}

// failureOf classifies an error response by status and X-Error-Code. The Hub answers 401 for
// repositories that do not exist, because private ones are hidden.
func failureOf(resp *http.Response) error {
	code := resp.Header.Get("X-Error-Code")
	e := &hubError{state: StateFailed, err: fmt.Errorf("the Hub answered %d %.40s", resp.StatusCode, code)}
	switch {
	case code == "GatedRepo", code == "" && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden):
		e.state = StateGated
	case code == "RepoNotFound", code == "RevisionNotFound", code == "EntryNotFound", resp.StatusCode == http.StatusNotFound:
		e.state = StateNotFound
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		e.state = StateGated
	}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		e.after = time.Duration(min(s, int(maxAfter/time.Second))) * time.Second
	}
	return e
}
