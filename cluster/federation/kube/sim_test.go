package kube

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	simSeeds = flag.Int("federation.sim-seeds", 40, "random runs of TestManyWriters")
	simFirst = flag.Uint64("federation.sim-first", 1, "first seed of TestManyWriters")
)

// simStep is the time between two steps of a simulation.
const simStep = 250 * time.Millisecond

// simServer is the API server of a cluster: pools and imports with the entries of all controllers.
type simServer struct {
	cluster string
	down    bool
	uids    int
	pools   map[Name]*simPool
	imports map[Name]*simImport
	gone    map[*simSystem]bool // service accounts that were uninstalled: no more writes
	// live has, by controller name, the exports of other clusters whose last statement that arrived
	// here was that they take requests. Unlike a controller's own record, it survives restarts.
	live map[string]map[subject]bool
}

type simPool struct {
	uid     string
	asked   bool
	parents map[string]*parent
}

type simImport struct {
	uid         string
	made, group string
	owners      map[*simSystem]bool // their service accounts own the import; hubs do not
	entries     map[string]*control
	parents     bool // an entry of a gateway
}

// simSystem is a set of controllers that exchange statements: the replicas of one pool in all
// clusters, or a hub.
type simSystem struct {
	hub     bool
	pools   []Name
	writers []*simWriter // one for each cluster
}

// simWriter is one controller.
type simWriter struct {
	system  *simSystem
	server  *simServer
	o       Options
	running bool
	cut     bool // its links are cut; a hub has none
	last    bool // it withdraws its exports, see Controller.Withdraw
	began   time.Time
	local   *Local
	memory  *memory
	paces   map[object]*pace
	pools   map[Name]*pool // as last read; nil: not yet
	imports map[Name]*import_
}

type sim struct {
	t       *testing.T
	rand    *rand.Rand
	now     time.Time
	servers []*simServer
	systems []*simSystem
	writes  int
	log     []string
}

func (s *sim) logf(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%6.2f ", s.now.Sub(epoch).Seconds())+fmt.Sprintf(format, args...))
}

func (s *sim) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(s.log[max(0, len(s.log)-40):], "\n"))
}

func (s *sim) start(w *simWriter) {
	w.running, w.last, w.began, w.local, w.memory, w.paces, w.pools, w.imports = true, false, s.now, nil, newMemory(), map[object]*pace{}, nil, nil
}

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{t: t, rand: rand.New(rand.NewPCG(seed, 36)), now: epoch}
	for _, c := range []string{"a", "b", "c"}[:2+s.rand.IntN(2)] {
		s.servers = append(s.servers, &simServer{cluster: c, pools: map[Name]*simPool{}, imports: map[Name]*simImport{},
			live: map[string]map[subject]bool{DefaultController: {}, HubController: {}}})
	}
	pools := []Name{{"prod", "llama"}, {"prod", "qwen"}, {"prod", "mixtral"}}
	for _, n := range pools {
		if s.rand.IntN(4) > 0 {
			s.systems = append(s.systems, &simSystem{pools: []Name{n}})
		}
	}
	for range s.rand.IntN(3) { // hubs may share pools with replicas and with one another
		s.systems = append(s.systems, &simSystem{hub: true, pools: pools[s.rand.IntN(2) : 2+s.rand.IntN(2)]})
	}
	s.staff()
	return s
}

// staff starts a controller of each system in each cluster.
func (s *sim) staff() {
	for _, y := range s.systems {
		for _, server := range s.servers {
			w := &simWriter{system: y, server: server, o: Options{Drain: 20 * time.Second}}
			if y.hub {
				w.o.Controller, w.o.MaxExports = HubController, len(y.pools)
			} else {
				w.o.Group = y.pools[0]
			}
			w.o.Serves, w.o.View, w.o.Publish = func() map[Name]string { return nil }, func() View { return View{} }, func(Local) {}
			if err := w.o.complete(); err != nil {
				s.t.Fatal(err)
			}
			y.writers = append(y.writers, w)
			s.start(w)
		}
	}
}

// hears reports whether w receives the statements of o.
func (w *simWriter) hears(o *simWriter, now time.Time) bool {
	if !o.running || o.local == nil || w.cut || o.cut {
		return false
	}
	return !w.system.hub || !o.server.down
}

func (s *sim) view(w *simWriter) View {
	v := View{Cluster: w.server.cluster, Settled: true}
	for _, o := range w.system.writers {
		if o == w {
			continue
		}
		m := Member{Cluster: o.server.cluster, Silent: !w.hears(o, s.now)}
		if m.Silent && s.now.Sub(w.began) < 2*w.o.Lease {
			v.Settled = false
		}
		if !m.Silent {
			m.Exports, m.Served, m.Holds, m.ServedKnown = o.local.Exports, o.local.Served, o.local.Holds, true
			for _, n := range m.Served {
				e, exports := m.exports(n)
				w.server.live[w.o.Controller][subject{n, m.Cluster}] = exports && !e.Draining
			}
		}
		v.Members = append(v.Members, m)
	}
	return v
}

// read returns the objects as a controller decodes them.
func (w *simWriter) read() {
	if w.server.down {
		return
	}
	w.pools, w.imports = map[Name]*pool{}, map[Name]*import_{}
	for n, p := range w.server.pools {
		o := &pool{Name: n, uid: p.uid, asked: p.asked, entry: p.parents[w.o.Controller]}
		if o.asked {
			o.export = ClusterSet
		}
		if o.entry != nil {
			o.entries = 1
		}
		w.pools[n] = o
	}
	for n, i := range w.server.imports {
		w.imports[n] = i.read(n, w.o.Controller)
	}
}

func (i *simImport) read(n Name, controller string) *import_ {
	o := &import_{Name: n, uid: i.uid, made: i.made == controller, ours: i.made != "", entry: i.entries[controller]}
	for name := range i.entries {
		if name != controller {
			o.others++
		}
	}
	if i.parents {
		o.others++
	}
	if o.made {
		o.group = i.group
	}
	return o
}

func (s *sim) facts(w *simWriter) *facts {
	serves := map[Name]string{}
	for _, n := range w.system.pools {
		serves[n] = ""
	}
	f := &facts{View: s.view(w), controller: w.o.Controller, now: s.now, drain: w.o.Drain, forget: w.o.DropAfter, lease: w.o.Lease, limit: w.o.MaxExports,
		pools: w.pools, imports: w.imports, serves: serves, memory: w.memory, failed: map[Name]string{}, outside: func(Name) bool { return false }, last: w.last}
	f.Members, f.over = f.sane(f.limit)
	f.memory.observe(f)
	return f
}

// round is Controller.round without a network.
func (s *sim) round(w *simWriter) {
	if w.read(); w.pools == nil {
		return
	}
	f := s.facts(w)
	p := desired(f)
	w.local = &p.local
	if w.server.down || w.server.gone[w.system] {
		return
	}
	for n, want := range p.parents {
		if have := w.pools[n]; !have.entry.equals(want) {
			s.write(w, object{Name: n, uid: have.uid}, want.text(), func() {
				if o := w.server.pools[n]; o.uid == have.uid {
					o.parents[w.o.Controller] = want
					if want == nil {
						delete(o.parents, w.o.Controller)
					}
				}
			})
		}
	}
	for n, want := range p.imports {
		have := w.imports[n]
		if want == nil && (have == nil || have.entry == nil && !have.removable()) || want != nil && have != nil && have.entry.equals(want) {
			continue
		}
		s.write(w, object{Name: n, imported: true}, want.text(), func() { s.apply(w, n, have, want) })
	}
}

func (s *sim) write(w *simWriter, o object, what string, do func()) {
	p := w.paces[o]
	if p == nil {
		p = &pace{}
		w.paces[o] = p
	}
	if p.due(what, 0, s.now, &w.o).After(s.now) {
		return
	}
	s.writes++
	do()
	p.done(what, nil, true, s.now)
}

// apply is writer.imported. It checks that no cluster disappears that has exported for a while.
func (s *sim) apply(w *simWriter, n Name, have *import_, want *control) {
	server, controller := w.server, w.o.Controller
	if have != nil && have.entry != nil {
		for _, e := range have.entry.Clusters {
			if !want.lists(e.Name) && server.live[controller][subject{n, e.Name}] {
				s.fail("%s of %v removes %s, which exports, from the import of %s", controller, w.system.pools, e.Name, n)
			}
		}
	}
	s.logf("%s %v in %s: %s = %s", controller, w.system.pools, server.cluster, n, want.text())
	i := server.imports[n]
	switch {
	case want == nil && have.removable():
		if i != nil && i.read(n, controller).others == 0 {
			delete(server.imports, n)
		}
		return
	case i == nil && have != nil:
		return
	case i == nil:
		server.uids++
		i = &simImport{uid: fmt.Sprint(server.uids), made: controller, entries: map[string]*control{}, owners: map[*simSystem]bool{}}
		if !w.system.hub {
			i.group = w.o.group()
		}
		server.imports[n] = i
	}
	if want == nil {
		delete(i.entries, controller)
		return
	}
	i.entries[controller] = want
	if !w.system.hub {
		i.owners[w.system] = true
	}
}

// change makes one random change.
func (s *sim) change() {
	server := s.servers[s.rand.IntN(len(s.servers))]
	y := s.systems[s.rand.IntN(len(s.systems))]
	w := y.writers[s.rand.IntN(len(y.writers))]
	n := []Name{{"prod", "llama"}, {"prod", "qwen"}, {"prod", "mixtral"}}[s.rand.IntN(3)]
	switch p := server.pools[n]; s.rand.IntN(8) {
	case 0, 1:
		if p == nil {
			server.uids++
			p = &simPool{uid: fmt.Sprint(server.uids), parents: map[string]*parent{}}
			server.pools[n] = p
		}
		p.asked = !p.asked
		s.logf("%s: %s asked=%t", server.cluster, n, p.asked)
	case 2:
		delete(server.pools, n)
		s.logf("%s: %s deleted", server.cluster, n)
	case 3:
		server.down = !server.down
		s.logf("%s: down=%t", server.cluster, server.down)
	case 4:
		w.cut = !w.cut && !y.hub
		s.logf("%s %v: cut=%t", w.server.cluster, y.pools, w.cut)
	case 5:
		if w.running {
			for _, w := range y.process(w) {
				w.running = false
			}
			s.logf("%s %v: stopped", w.server.cluster, y.pools)
			return
		}
		fallthrough
	case 6:
		for _, w := range y.process(w) {
			s.start(w)
		}
		s.logf("%s %v: started", w.server.cluster, y.pools)
	case 7: // somebody deletes an import
		if w.running {
			delete(server.imports, n)
			s.logf("%s: import of %s deleted", server.cluster, n)
		}
	}
}

// process returns the controllers that run in one process with w: all of a hub.
func (y *simSystem) process(w *simWriter) []*simWriter {
	if y.hub {
		return y.writers
	}
	return []*simWriter{w}
}

// collect deletes the imports whose owner is gone, as Kubernetes does.
func (s *simServer) collect() {
	for n, i := range s.imports {
		alive := len(i.owners) == 0
		for y := range i.owners {
			alive = alive || !s.gone[y]
		}
		if !alive {
			delete(s.imports, n)
		}
	}
}

func (s *sim) run(d, step time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(step) {
		for _, server := range s.servers {
			server.collect()
		}
		for _, y := range s.systems {
			for _, i := range s.rand.Perm(len(y.writers)) {
				if w := y.writers[i]; w.running && s.rand.IntN(4) > 0 {
					s.round(w)
				}
			}
		}
	}
}

// heal ends all faults.
func (s *sim) heal() {
	for _, server := range s.servers {
		server.down = false
	}
	for _, y := range s.systems {
		for _, w := range y.writers {
			if w.cut = false; !w.running {
				s.start(w)
			}
		}
	}
}

// want is the expected content of an import: the exporting clusters of each controller.
func (s *sim) want(n Name) string {
	out := map[string][]string{}
	for _, y := range s.systems {
		for _, w := range y.writers {
			if p := w.server.pools[n]; slices.Contains(y.pools, n) && p != nil && p.asked {
				out[w.o.Controller] = append(out[w.o.Controller], w.server.cluster)
			}
		}
	}
	for c := range out {
		slices.Sort(out[c])
		out[c] = slices.Compact(out[c])
	}
	return fmt.Sprint(out)
}

func (s *simServer) have(n Name) string {
	out := map[string][]string{}
	if i := s.imports[n]; i != nil {
		for c, e := range i.entries {
			for _, x := range e.Clusters {
				out[c] = append(out[c], x.Name)
			}
		}
		if len(i.entries) == 0 {
			return "empty"
		}
	}
	return fmt.Sprint(out)
}

// TestManyWriters: the replica groups of several pools, and hubs with different and overlapping
// lists of pools, share the imports of two or three clusters. Pools, annotations and imports
// change, controllers restart, and links and API servers fail. At no time does a controller remove
// a cluster that exports. When the faults end, every import names every exporter, every pool is
// Exported, and there is no write for ten minutes.
func TestManyWriters(t *testing.T) {
	for seed := *simFirst; seed < *simFirst+uint64(*simSeeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newSim(t, seed)
			if len(s.systems) == 0 {
				return
			}
			for range 60 {
				s.change()
				s.run(time.Duration(s.rand.IntN(8))*time.Second, simStep)
			}
			s.heal()
			s.logf("healed")
			s.run(25*time.Minute, 5*time.Second) // the longest pace, after deleted imports
			before := s.writes
			s.run(10*time.Minute, 5*time.Second)
			if s.writes != before {
				s.fail("%d writes in ten minutes without a change", s.writes-before)
			}
			for _, server := range s.servers {
				for _, n := range slices.SortedFunc(maps.Keys(allNames), Name.compare) {
					if got, want := server.have(n), s.want(n); got != want {
						s.fail("import of %s in %s: %s, want %s", n, server.cluster, got, want)
					}
					s.checkParents(server, n)
				}
			}
		})
	}
}

// newUninstall returns two clusters that export two pools, each with replica groups of its own, and
// with a hub for both if the seed says so.
func newUninstall(t *testing.T, seed uint64) *sim {
	s := &sim{t: t, rand: rand.New(rand.NewPCG(seed, 37)), now: epoch}
	pools := []Name{{"prod", "llama"}, {"prod", "qwen"}}
	for _, c := range []string{"a", "b"} {
		server := &simServer{cluster: c, pools: map[Name]*simPool{}, imports: map[Name]*simImport{}, gone: map[*simSystem]bool{},
			live: map[string]map[subject]bool{DefaultController: {}, HubController: {}}}
		for _, n := range pools {
			server.pools[n] = &simPool{uid: "1", asked: true, parents: map[string]*parent{}}
		}
		s.servers = append(s.servers, server)
	}
	s.systems = []*simSystem{{pools: pools[:1]}, {pools: pools[1:]}}
	if seed%2 == 0 {
		s.systems = append(s.systems, &simSystem{hub: true, pools: pools})
	}
	s.staff()
	return s
}

// TestUninstall: a cluster's pools, pickers and their service accounts are removed in any order, one pool
// after the other or only one. Once drain and two leases have passed, no import of the other cluster
// names it, and those of the other pool still do. A restart of the other cluster's controllers begins
// that time again, after the two leases that a new process waits. If the pickers are killed, the other
// cluster lists it as silent. The uninstalled cluster has no entry of these pickers.
func TestUninstall(t *testing.T) {
	for seed := *simFirst; seed < *simFirst+uint64(*simSeeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newUninstall(t, seed)
			s.run(time.Minute, simStep)
			a, b := s.servers[0], s.servers[1]
			removed, killed := s.systems[:1+s.rand.IntN(2)], seed%5 == 0
			if removed[0].hub {
				t.Fatal("the hub is not uninstalled")
			}
			var steps []func()
			for _, y := range removed {
				n, w := y.pools[0], y.writers[0]
				steps = append(steps, func() {
					s.logf("a: %s deleted", n)
					delete(a.pools, n)
				}, func() {
					s.logf("a: service account of %s deleted", n)
					a.gone[y] = true
				}, func() {
					s.logf("a: last replica of %s leaves, killed %t", n, killed)
					w.last = !killed
					s.run(2*time.Second, simStep)
					w.running = false
				})
			}
			o := removed[0].writers[0].o
			wait := o.Drain + 2*o.Lease
			for _, i := range s.rand.Perm(len(steps)) {
				steps[i]()
				s.run(time.Duration(1+s.rand.IntN(8))*time.Second, simStep)
				if w := s.systems[s.rand.IntN(2)].writers[1]; seed%3 == 0 && s.rand.IntN(2) == 0 {
					s.logf("b: replicas of %v restart", w.system.pools)
					s.start(w)
					wait = o.Drain + 4*o.Lease
				}
			}
			s.run(wait+2*time.Second, simStep)
			if killed {
				s.checkKilled(removed)
				return
			}
			for i, n := range []Name{{"prod", "llama"}, {"prod", "qwen"}} {
				for name, e := range b.imports[n].entries {
					if gone := i < len(removed); e.lists("a") == gone || !e.lists("b") {
						s.fail("import of %s in b, entry %s: %s; uninstalled %t", n, name, e.text(), gone)
					}
				}
				if i < len(removed) {
					s.checkNone(a, n)
				}
			}
		})
	}
}

// checkNone asserts that an uninstalled group has no entry in its own cluster.
func (s *sim) checkNone(server *simServer, n Name) {
	if i := server.imports[n]; i != nil && i.entries[DefaultController] != nil {
		s.fail("import of %s in %s: %s; its pool and its replicas are uninstalled", n, server.cluster, i.entries[DefaultController].text())
	}
}

// checkKilled asserts that the other cluster lists one whose pickers were killed as silent, or not at
// all.
func (s *sim) checkKilled(removed []*simSystem) {
	for _, y := range removed {
		n := y.pools[0]
		s.checkNone(s.servers[0], n)
		own := s.servers[1].imports[n].entries[DefaultController]
		if e := own.stated("a"); own.lists("a") && !e.silent && !e.draining {
			s.fail("import of %s in b: %s; no process of a is left", n, own.text())
		}
	}
}

// TestHubOfManyPools: a hub serves all pools of its list.
func TestHubOfManyPools(t *testing.T) {
	h := &Hub{o: HubOptions{Log: slog.New(slog.DiscardHandler)}}
	for i := range 201 {
		h.o.Pools = append(h.o.Pools, Name{"prod", fmt.Sprint("p", i)})
	}
	o := h.options(&hubMember{name: "a"})
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	m := Member{Cluster: "b", Served: h.o.Pools, ServedKnown: true}
	for _, n := range h.o.Pools {
		m.Exports = append(m.Exports, Export{Name: n})
	}
	f := &facts{View: View{Cluster: "a", Settled: true, Members: []Member{m}}, controller: o.Controller, now: epoch, limit: o.MaxExports,
		serves: o.Serves(), memory: newMemory(), outside: func(Name) bool { return false }}
	f.Members, f.over = f.sane(f.limit)
	f.memory.observe(f)
	if n := len(desired(f).imports); n != 201 || len(f.over) != 0 {
		t.Errorf("%d imports, %d refused, want 201 and none", n, len(f.over))
	}
}

var allNames = map[Name]bool{{"prod", "llama"}: true, {"prod", "qwen"}: true, {"prod", "mixtral"}: true}

func (s *sim) checkParents(server *simServer, n Name) {
	p := server.pools[n]
	for _, y := range s.systems {
		if p == nil || !slices.Contains(y.pools, n) {
			continue
		}
		e := p.parents[y.writers[0].o.Controller]
		if p.asked && (e == nil || e.Conditions[0].Status != "True") || !p.asked && e != nil {
			s.fail("pool %s in %s: entry %+v, asked %t", n, server.cluster, e, p.asked)
		}
	}
}
