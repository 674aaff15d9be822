package kube

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/discovery"
)

// fakeAPI is an API server with namespace prod.
type fakeAPI struct {
	t *testing.T

	mu      sync.Mutex
	objects map[string]string // JSON by plural/name
	history []fakeEvent       // its length is the server's version
	denied  map[string]bool   // "VERB PLURAL" without a permission
	changed chan struct{}     // closed at the next change
}

func newFakeAPI(t *testing.T) (*fakeAPI, *httptest.Server) {
	t.Helper()
	a := &fakeAPI{t: t, objects: map[string]string{}, denied: map[string]bool{}, changed: make(chan struct{})}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return a, server
}

// fakeEvent is the change of one object.
type fakeEvent struct {
	kind, key, object string
}

// record adds an event, with the lock held.
func (a *fakeAPI) record(kind, key, object string) {
	version := fmt.Sprintf(`{"metadata":{"resourceVersion":"%d",`, len(a.history)+1)
	object = strings.Replace(object, `{"metadata":{`, version, 1)
	a.objects[key] = object
	if kind == "DELETED" {
		delete(a.objects, key)
	}
	a.history = append(a.history, fakeEvent{kind, key, object})
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *fakeAPI) put(plural, name, object string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.record("MODIFIED", plural+"/"+name, object)
}

func (a *fakeAPI) remove(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.record("DELETED", key, a.objects[key])
}

func (a *fakeAPI) deny(rights ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.denied)
	for _, r := range rights {
		a.denied[r] = true
	}
}

// pod writes a ready pod with label app=vllm. metadata and status are further fields, each with a
// leading comma.
func (a *fakeAPI) pod(name, ip, metadata, status string) {
	a.put("pods", name, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"prod","uid":"uid-%s","labels":{"app":"vllm"}%s},
		"spec":{"containers":[{"name":"engine"}]},"status":{"podIP":%q,"conditions":[{"type":"Ready","status":"True"}]%s}}`, name, name, metadata, ip, status))
}

func (a *fakeAPI) pool(name, label string, port int) {
	a.put("inferencepools", name, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"prod","uid":"uid-%s-%s","generation":%d},
		"spec":{"selector":{"matchLabels":{"app":%q}},"targetPorts":[{"number":%d}]}}`, name, name, label, port, label, port))
}

func (a *fakeAPI) objective(name string, priority int) {
	a.put("inferenceobjectives", name, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"prod","uid":"uid-%s","generation":%d},
		"spec":{"priority":%d,"poolRef":{"name":"p"}}}`, name, name, priority, priority))
}

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fail := func(code int, reason, name string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","code":%d,"reason":%q,"details":{"name":%q}}`, code, reason, name)
	}
	if r.Method != http.MethodGet {
		fail(http.StatusForbidden, "Forbidden", "")
		return
	}
	older := strings.Contains(r.URL.Path, GroupPoolOld)
	plural, name := path.Base(r.URL.Path), ""
	if dir := path.Base(path.Dir(r.URL.Path)); dir != "prod" {
		plural, name = dir, plural
	}
	verb := "list"
	switch {
	case name != "":
		verb = "get"
	case r.URL.Query().Get("watch") != "":
		verb = "watch"
	}
	only, _ := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	label := strings.ReplaceAll(r.URL.Query().Get("labelSelector"), "=", `":"`)
	named := func(key string) bool {
		k, n := path.Split(key)
		return k == plural+"/" && (only == "" || only == n) && (name == "" || name == n)
	}
	a.mu.Lock()
	denied, version := a.denied[verb+" "+plural], len(a.history)
	var items []string
	for _, key := range slices.Sorted(maps.Keys(a.objects)) {
		if named(key) && strings.Contains(a.objects[key], label) {
			items = append(items, a.objects[key])
		}
	}
	a.mu.Unlock()
	switch {
	case older:
		http.NotFound(w, r) // not installed
	case denied:
		fail(http.StatusForbidden, "Forbidden", "")
	case verb == "get" && len(items) == 0:
		fail(http.StatusNotFound, "NotFound", name)
	case verb == "get":
		fmt.Fprint(w, items[0])
	case verb == "list":
		fmt.Fprintf(w, `{"metadata":{"resourceVersion":"%d"},"items":[%s]}`, version, strings.Join(items, ","))
	default:
		at, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
		if err != nil {
			a.t.Errorf("watch of %s without a version: %v", plural, err)
		}
		a.stream(w, r, at, func(e fakeEvent) string {
			switch {
			case !named(e.key):
				return ""
			case !strings.Contains(e.object, label):
				return "DELETED"
			}
			return e.kind
		})
	}
}

// stream sends the events from a version on whose kind is not "", until the client disconnects.
func (a *fakeAPI) stream(w http.ResponseWriter, r *http.Request, at int, kind func(fakeEvent) string) {
	for {
		a.mu.Lock()
		events, changed := slices.Clone(a.history[at:]), a.changed
		a.mu.Unlock()
		at += len(events)
		for _, e := range events {
			if k := kind(e); k != "" {
				fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", k, strings.ReplaceAll(e.object, "\n", ""))
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// viewed is a Source of pool p with its last result.
type viewed struct {
	*Source
	t     *testing.T
	mu    sync.Mutex
	found discovery.Found
}

// openFake follows pool p of a server.
func openFake(t *testing.T, server *httptest.Server, o Options) *viewed {
	t.Helper()
	v := &viewed{t: t}
	o.Config, o.Pool, o.Namespace = kubeapi.Config{Server: server.URL}, "p", "prod"
	o.Sink.Update = func(f discovery.Found) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.found = f
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	v.Source = s
	t.Cleanup(s.Close)
	return v
}

// want waits until the endpoints are addrs.
func (v *viewed) want(addrs string) {
	v.t.Helper()
	testkit.Eventually(v.t, func() string {
		v.mu.Lock()
		defer v.mu.Unlock()
		var got []string
		for _, s := range v.found.Specs {
			got = append(got, s.Addr.String())
		}
		if all := strings.Join(got, " "); all != addrs {
			return fmt.Sprintf("endpoints %q, want %q", all, addrs)
		}
		return ""
	})
}

// wantObjective waits until an objective has this priority.
func (v *viewed) wantObjective(name string, priority int) {
	v.t.Helper()
	testkit.Eventually(v.t, func() string {
		v.mu.Lock()
		defer v.mu.Unlock()
		if got, ok := v.found.Objectives[name]; !ok || got != priority {
			return fmt.Sprintf("objectives %v, want %s of priority %d", v.found.Objectives, name, priority)
		}
		return ""
	})
}

// wantIn waits until one problem of a part of the status contains the text.
func (v *viewed) wantIn(part func(*discovery.Status) []discovery.Problem, text string) {
	v.t.Helper()
	testkit.Eventually(v.t, func() string {
		st := v.Status()
		if !slices.ContainsFunc(part(&st), func(p discovery.Problem) bool { return strings.Contains(p.String(), text) }) {
			return fmt.Sprintf("status %+v, want %q", st, text)
		}
		return ""
	})
}

func invalidOf(st *discovery.Status) []discovery.Problem { return st.Invalid }

func notesOf(st *discovery.Status) []discovery.Problem    { return st.Notes }
func problemsOf(st *discovery.Status) []discovery.Problem { return st.Problems }

// wantOK fails if the status is not OK.
func (v *viewed) wantOK() {
	v.t.Helper()
	if st := v.Status(); !st.OK() {
		v.t.Errorf("status is not OK: %+v", st)
	}
}
