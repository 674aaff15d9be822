package admin

import (
	_ "embed"
	"html/template"
	"net/http"
	"regexp"
	"strings"
)

//go:embed pools.html
var poolsHTML string

var poolsPage = template.Must(template.New("pools").Parse(poolsHTML))

// PoolLine is one pool on the status page of a process that serves several pools.
type PoolLine struct {
	Name      string
	Address   string // of its ext_proc listener
	State     string
	Reason    string // why it is not ready
	Endpoints int
	Problems  int
	Open      bool // it has pages
}

// Pools are the pages of a process that serves several pools. Every page of a pool is below
// /pools/NAME/.
type Pools struct {
	// Page returns the pages of a pool, or false if there is no such pool, or it could not be opened.
	Page func(name string) (Options, bool)
	// Lines lists all pools by name.
	Lines func() []PoolLine
}

// PoolPath returns the path before every page of a pool; "" for the process's own pages.
func PoolPath(name string) string {
	if name == "" {
		return ""
	}
	return "/pools/" + name
}

// poolPages are the pages that a process with several pools has once for each of them.
var poolPages = []string{"/history", "/debug/decisions", "/debug/explain", "/debug/record", "/debug/flight", "/debug/flight/"}

// serve adds the pages of all pools.
func (p *Pools) serve(mux *http.ServeMux, made *press, g guard, m *metrics) {
	mux.Handle("GET /{$}", made.whole(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = poolsPage.Execute(w, struct {
			Pools []PoolLine
			Nonce string
		}{p.Lines(), nonceOf(r.Context())})
	})))
	mux.HandleFunc("/pools/{pool}/", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("pool")
		o, ok := p.Page(name)
		if !ok {
			http.Error(w, "no such pool is open here: see /status", http.StatusNotFound)
			return
		}
		http.StripPrefix(PoolPath(name), o.mux(made, g, m)).ServeHTTP(w, r)
	})
	for _, path := range poolPages {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "this replica serves several pools: want /pools/NAME"+r.URL.Path+", or --pool NAME at the command line", http.StatusNotFound)
		})
	}
}

var poolName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

// ValidPool reports whether name can be a pool's name: a DNS name, as in Kubernetes.
func ValidPool(name string) bool {
	return len(name) <= 253 && poolName.MatchString(name) && !strings.Contains(name, "..")
}
