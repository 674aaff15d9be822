//go:build kube

package kube

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

var (
	changes = flag.Int("federation.changes", 1000, "random changes of three clusters")
	seed    = flag.Uint64("federation.seed", 1, "of these changes")
)

// world is the test's record of its changes.
type world struct {
	*mesh
	rand    *rand.Rand
	clients map[string]*kubeapi.Client
	models  map[string]*model
	cut     string // cluster that is cut off, or ""
	log     []string
}

// model is the expected state of one cluster.
type model struct {
	pools   map[string]*twin
	kept    map[string][]string // silent clusters that imports still name
	foreign map[string]bool     // imports with an entry of another controller
	theirs  map[string]bool     // imports created by the other controller
}

// twin is a pool.
type twin struct {
	value   string // annotation value, or ""
	parents int    // number of other entries
}

var names = []string{"p0", "p1", "p2", "p3"}

// testRandom makes a thousand changes in three clusters and compares every object with a model. It
// compares after every 25 changes, and before and after changes whose order matters.
func testRandom(m *mesh) {
	m.drain, m.pace = 100*time.Millisecond, 10*time.Millisecond
	w := &world{mesh: m, rand: rand.New(rand.NewPCG(*seed, 0)), clients: map[string]*kubeapi.Client{}, models: map[string]*model{}}
	m.open("a", "b", "c")
	for name, s := range m.sites {
		m.mu.Lock()
		s.serves = names
		m.mu.Unlock()
		client, err := kubeapi.NewClient(s.Config(), "foreign")
		if err != nil {
			m.t.Fatal(err)
		}
		m.t.Cleanup(client.Close)
		w.clients[name] = client
		w.models[name] = &model{pools: map[string]*twin{}, kept: map[string][]string{}, foreign: map[string]bool{}, theirs: map[string]bool{}}
	}
	m.wake()
	settled := 0
	for i := range *changes {
		if i%25 == 0 {
			w.settle()
			settled++
		}
		if w.rand.IntN(25) == 0 {
			w.settle()
			w.note(i, w.structural())
			w.settle()
			settled += 2
			continue
		}
		w.note(i, w.change())
	}
	w.settle()
	m.t.Logf("%d changes, compared %d times", *changes, settled+1)
}

func (w *world) note(i int, what string) { w.log = append(w.log, fmt.Sprintf("%d %s", i, what)) }

func (w *world) pick() (string, *site, *model, string) {
	c := []string{"a", "b", "c"}[w.rand.IntN(3)]
	return c, w.sites[c], w.models[c], names[w.rand.IntN(len(names))]
}

// change makes a random change that may happen at any time.
func (w *world) change() string {
	c, s, m, n := w.pick()
	p := m.pools[n]
	roll := w.rand.IntN(100)
	switch {
	case p == nil:
		value := []string{"", "ClusterSet", "ClusterSet", "Galaxy"}[w.rand.IntN(4)]
		m.pools[n] = &twin{value: value}
		s.pool(n, value)
		return fmt.Sprintf("%s: new %s %q", c, n, value)
	case roll < 15:
		delete(m.pools, n)
		s.Delete(pools, w.ns, n)
		return c + ": delete " + n
	case roll < 60:
		p.value = []string{"", "ClusterSet", "ClusterSet", "ClusterSet", "Galaxy"}[w.rand.IntN(5)]
		value := fmt.Sprintf("%q", p.value)
		if p.value == "" {
			value = "null"
		}
		s.annotate(n, value)
		return fmt.Sprintf("%s: annotate %s %q", c, n, p.value)
	case roll < 85: // a controller that replaces the list
		p.parents = w.rand.IntN(3)
		s.PatchStatus(pools, w.ns, n, `{"status":{"parents":[`+strings.Join(foreign(p.parents), ",")+`]}}`)
		return fmt.Sprintf("%s: parents %s %d", c, n, p.parents)
	case roll < 95:
		s.Patch(pools, w.ns, n, fmt.Sprintf(`{"spec":{"targetPorts":[{"number":%d}]}}`, 1+w.rand.IntN(60000)))
		return c + ": spec " + n
	}
	s.stop()
	s.start(Options{})
	return c + ": restart"
}

// structural makes a change for which the model is exact only if no other change is in progress.
func (w *world) structural() string {
	c, s, m, n := w.pick()
	switch w.rand.IntN(4) {
	case 0:
		if w.cut != "" {
			w.setCut(w.cut, false)
			defer func() { w.cut = "" }()
			for _, m := range w.models {
				clear(m.kept)
			}
			return "join " + w.cut
		}
		w.cut = c
		for here, m := range w.models {
			for _, n := range names {
				for _, there := range w.exporting(n) {
					if here != there && (here == c || there == c) {
						m.kept[n] = append(m.kept[n], there)
					}
				}
			}
		}
		w.setCut(c, true)
		return "cut " + c
	case 1:
		if len(w.listed(c, n)) == 0 && !m.foreign[n] && !m.theirs[n] {
			return "nothing"
		}
		s.Delete(imports, w.ns, n)
		delete(m.kept, n) // only the object recorded that these were silent
		delete(m.foreign, n)
		delete(m.theirs, n)
		return c + ": delete import " + n
	case 2:
		m.theirs[n] = m.theirs[n] || len(w.listed(c, n)) == 0 && !m.foreign[n]
		m.foreign[n] = true
		w.foreign(c, n, `[{"name":"example.org/foreign","exportingClusters":[{"name":"z"}]}]`)
		return c + ": foreign entry " + n
	}
	if !m.foreign[n] {
		return "nothing"
	}
	delete(m.foreign, n)
	w.foreign(c, n, "")
	return c + ": foreign entry goes " + n
}

// foreign applies another controller's entry.
func (w *world) foreign(cluster, n, controllers string) {
	object := map[string]any{"apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": kindImport, "metadata": map[string]any{"name": n, "namespace": w.ns}}
	at := kubeapi.Patch{Resource: imports, Namespace: w.ns, Name: n, Manager: "foreign"}
	if controllers != "" {
		if err := w.clients[cluster].Apply(w.t.Context(), at, object); err != nil {
			w.t.Fatal(err)
		}
		object["status"] = map[string]any{"controllers": json.RawMessage(controllers)}
	}
	at.Sub = "status"
	if err := w.clients[cluster].Apply(w.t.Context(), at, object); err != nil {
		w.t.Fatal(err)
	}
}

// exporting returns the clusters that export a pool.
func (w *world) exporting(n string) (out []string) {
	for _, c := range slices.Sorted(maps.Keys(w.models)) {
		if p := w.models[c].pools[n]; p != nil && p.value == ClusterSet {
			out = append(out, c)
		}
	}
	return out
}

// listed returns the clusters that a pool's import in a cluster should name.
func (w *world) listed(here, n string) (out []string) {
	for _, there := range w.exporting(n) {
		if here == there || w.cut == "" || here != w.cut && there != w.cut {
			out = append(out, there)
		}
	}
	out = append(out, w.models[here].kept[n]...)
	slices.Sort(out)
	return slices.Compact(out)
}

// want is the expected content of a cluster's objects.
func (w *world) want(c string) string {
	var b strings.Builder
	m := w.models[c]
	for _, n := range names {
		if p := m.pools[n]; p != nil {
			fmt.Fprintf(&b, "pool %s foreign=%d", n, p.parents)
			switch {
			case p.value == "":
			case p.value != ClusterSet:
				b.WriteString(" False/NotSupported")
			case w.cut != "":
				b.WriteString(" False/Pending")
			default:
				b.WriteString(" True/Exported")
			}
			b.WriteByte('\n')
		}
		if list := w.listed(c, n); len(list) > 0 || m.foreign[n] || m.theirs[n] {
			fmt.Fprintf(&b, "import %s foreign=%t %v\n", n, m.foreign[n], list)
		}
	}
	return b.String()
}

// have is their actual content.
func (w *world) have(c string) string {
	read := reader{DefaultController}
	found := map[string]string{}
	items := func(r kubeapi.Resource, each func(json.RawMessage)) {
		code, answer := w.servers[c].Do(http.MethodGet, r.Path(w.ns, ""), nil, "application/json")
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal([]byte(answer), &list); err != nil || code != http.StatusOK {
			w.t.Fatalf("list %s: %d %v", r, code, err)
		}
		for _, raw := range list.Items {
			each(raw)
		}
	}
	items(pools, func(raw json.RawMessage) {
		p, err := read.pool(raw)
		if err != nil {
			w.t.Fatal(err)
		}
		line := fmt.Sprintf("pool %s foreign=%d", p.Name.Name, len(p.parents)-p.entries)
		if p.entry != nil {
			x := p.entry.Conditions[0]
			line += " " + x.Status + "/" + x.Reason
		}
		if p.entries > 1 {
			line += " twice"
		}
		found[p.Name.Name] = line + "\n"
	})
	items(imports, func(raw json.RawMessage) {
		i, err := read.imported(raw)
		if err != nil {
			w.t.Fatal(err)
		}
		list := []string{}
		if i.entry != nil {
			for _, e := range i.entry.Clusters {
				list = append(list, e.Name)
			}
		}
		found[i.Name.Name] += fmt.Sprintf("import %s foreign=%t %v\n", i.Name.Name, i.others == 1, list)
	})
	var b strings.Builder
	for _, n := range names {
		b.WriteString(found[n])
	}
	return b.String()
}

// settle waits until every object of every cluster has the expected content.
func (w *world) settle() {
	w.t.Helper()
	for c, s := range w.sites {
		want, have := w.want(c), ""
		w.t.Cleanup(func() {
			if have != want && w.t.Failed() {
				w.t.Logf("seed %d, cluster %s, cut %q, after\n%s\nwant\n%s\nhave\n%s", *seed, c, w.cut, strings.Join(w.log[max(0, len(w.log)-30):], "\n"), want, have)
			}
		})
		s.Until("every object says what it should", func() bool { have = w.have(c); return have == want })
	}
}
