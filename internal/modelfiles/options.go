package modelfiles

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Mode selects the permitted origins of files.
type Mode string

// Modes.
const (
	ModeAuto  Mode = "auto"  // local folders, caches, then the Hub
	ModeCache Mode = "cache" // local folders and caches
	ModeOff   Mode = "off"   // only configured folders
)

// Modes lists all modes.
func Modes() []string { return []string{string(ModeAuto), string(ModeCache), string(ModeOff)} }

// Options configures a Source.
type Options struct {
	Mode     Mode   // "" is ModeOff
	Offline  string // setting that forbids downloads, for remedies; "": downloads are allowed
	Endpoint string // of the Hub or a mirror; default DefaultEndpoint
	// Token returns the access token, "" for none. It is called before each request.
	Token     func() string
	Caches    []string          // Hugging Face caches; read only
	Cache     string            // the own cache, which downloads go to
	Revisions map[string]string // by repository; default DefaultRevision
	Agent     string            // User-Agent
	// FolderSetting is the setting that names a model's folder, for remedies; default --model
	// NAME=FOLDER.
	FolderSetting string

	MaxFile   int64         // bytes of one file; default 64 MiB
	MaxModel  int64         // bytes of one model; default 128 MiB
	MaxModels int           // number of models; default 64
	MaxCache  int64         // bytes of the own cache, without files that are never downloaded; default 1 GiB
	Timeout   time.Duration // of one model's download; default 3 min
	// Retry is the pause after the first failure, doubled after each, up to 10 minutes.
	Retry time.Duration // default 5 s
	// Spread is the limit of the random pause before a download, so that replicas that start
	// together do not download at once; default none.
	Spread    time.Duration
	Transport http.RoundTripper // default: as http.DefaultTransport

	// Group is the other replicas, which this one shares files with; nil for none.
	Group Group `json:"-"`

	Changed    func()                // called when a model's files have been found; may be nil
	Registerer prometheus.Registerer // nil leaves the metrics unregistered
	Log        *slog.Logger          // nil discards
}

const (
	maxAfter = 10 * time.Minute // limit of pauses
	atOnce   = 2                // downloads
)

func (o *Options) complete() error {
	if !slices.Contains(Modes(), string(o.Mode)) {
		return fmt.Errorf("modelfiles: mode %q: want %s", o.Mode, strings.Join(Modes(), ", "))
	}
	if o.Mode == ModeAuto && o.Offline == "" && o.Cache == "" {
		return errors.New("modelfiles: downloads require a cache folder")
	}
	for repo, rev := range o.Revisions {
		if !ValidRepo(repo) || !ValidRevision(rev) {
			return fmt.Errorf("modelfiles: revision %q of %q is invalid", rev, repo)
		}
	}
	o.Endpoint = cmp.Or(o.Endpoint, DefaultEndpoint)
	o.MaxFile, o.MaxModel, o.MaxModels = cmp.Or(o.MaxFile, 64<<20), cmp.Or(o.MaxModel, 128<<20), cmp.Or(o.MaxModels, 64)
	o.MaxCache = cmp.Or(o.MaxCache, 1<<30)
	o.Timeout, o.Retry = cmp.Or(o.Timeout, 3*time.Minute), cmp.Or(o.Retry, 5*time.Second)
	o.Agent, o.FolderSetting = cmp.Or(o.Agent, "grapevine"), cmp.Or(o.FolderSetting, "--model NAME=FOLDER")
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Token == nil {
		o.Token = func() string { return "" }
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Transport == nil {
		o.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 20 * time.Second, ForceAttemptHTTP2: true,
			MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: 30 * time.Second,
		}
	}
	return nil
}

// FromEnv returns the settings in the variables of Hugging Face's tools: HF_ENDPOINT, HF_TOKEN,
// HF_TOKEN_PATH, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE.
func FromEnv(getenv func(string) string) Options {
	o := Options{Mode: ModeAuto, Endpoint: getenv("HF_ENDPOINT"), Caches: []string{hubCache(getenv)}, Cache: ownCache(getenv)}
	if v := strings.ToLower(getenv("HF_HUB_OFFLINE")); v == "1" || v == "on" || v == "yes" || v == "true" {
		o.Offline = "HF_HUB_OFFLINE"
	}
	path := cmp.Or(getenv("HF_TOKEN_PATH"), filepath.Join(home(getenv), "token"))
	o.Token = func() string {
		if t := strings.TrimSpace(getenv("HF_TOKEN")); t != "" {
			return t
		}
		f, err := os.Open(path)
		if err != nil {
			return ""
		}
		defer f.Close()
		b, _ := io.ReadAll(io.LimitReader(f, maxSmall))
		return strings.TrimSpace(string(b))
	}
	return o
}

func home(getenv func(string) string) string {
	return cmp.Or(getenv("HF_HOME"), filepath.Join(cmp.Or(getenv("XDG_CACHE_HOME"), filepath.Join(getenv("HOME"), ".cache")), "huggingface"))
}

func hubCache(getenv func(string) string) string {
	return cmp.Or(getenv("HF_HUB_CACHE"), filepath.Join(home(getenv), "hub"))
}

// ownCache returns the default folder of downloads.
func ownCache(getenv func(string) string) string {
	if base := getenv("XDG_CACHE_HOME"); base != "" {
		return filepath.Join(base, "grapevine", "models")
	}
	if base := getenv("HOME"); base != "" && base != "/" {
		return filepath.Join(base, ".cache", "grapevine", "models")
	}
	return filepath.Join(os.TempDir(), "grapevine-models")
}
