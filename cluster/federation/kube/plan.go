package kube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// View is the state of the federation's other clusters.
type View struct {
	Cluster string // name of this cluster
	Members []Member
	// Settled means that every member was heard, or was silent for longer than a lease. Until then
	// entries stay as they are.
	Settled bool
}

// Member is another cluster of the set.
type Member struct {
	Cluster string
	Silent  bool     // its lease has ended, it was never heard, or it refuses
	Reason  string   // reason in a word; "": silent
	Exports []Export // as last received
	// Served lists the pools for which Exports is complete: a served pool that is missing in Exports
	// has been withdrawn. About other pools the member states nothing. ServedKnown is false for older
	// releases.
	Served      []Name
	ServedKnown bool
	Holds       []FoundImport
}

// Export is a pool that a cluster exports.
type Export struct {
	Name
	Draining bool `json:"draining,omitempty"` // withdrawn: no new requests
}

// FoundImport is an import in a cluster's own API server.
type FoundImport struct {
	Name
	Clusters []string `json:"clusters,omitempty"` // exporting clusters that it names, sorted
	Problem  string   `json:"problem,omitempty"`  // why it is not as wanted; "": it is, or will be soon
}

// Local is the state that this cluster publishes to the others.
type Local struct {
	Exports []Export
	Served  []Name // pools for which Exports is complete, sorted
	Holds   []FoundImport
}

// Equal reports whether two states are equal.
func (l Local) Equal(o Local) bool {
	return slices.Equal(l.Exports, o.Exports) && slices.Equal(l.Served, o.Served) && slices.EqualFunc(l.Holds, o.Holds, func(a, b FoundImport) bool {
		return a.Name == b.Name && a.Problem == b.Problem && slices.Equal(a.Clusters, b.Clusters)
	})
}

// maxProblem limits the text of another cluster, in bytes.
const maxProblem = 200

// sane returns the members without invalid entries, and with at most limit exports each. A malicious
// member can create no more objects than that, with valid names. It also returns the exports beyond
// the limit.
func (v *View) sane(limit int) (out []Member, over []subject) {
	for _, m := range v.Members {
		if m.Cluster == "" || len(m.Cluster) > 253 || m.Cluster == v.Cluster {
			continue
		}
		var exports []Export
		for _, e := range m.Exports {
			switch {
			case !e.valid():
			case len(exports) < limit:
				exports = append(exports, e)
			default:
				over = append(over, subject{e.Name, m.Cluster})
			}
		}
		m.Exports = exports
		out = append(out, m)
	}
	return out, over
}

// valid reports whether n is a valid namespace and object name.
func (n Name) valid() bool {
	label := func(s string) bool {
		return s != "" && len(s) <= 63 && s[0] != '-' && s[len(s)-1] != '-' && !strings.ContainsFunc(s, notLabel)
	}
	return label(n.Namespace) && len(n.Name) <= 253 && !slices.ContainsFunc(strings.Split(n.Name, "."), func(s string) bool { return !label(s) })
}

func notLabel(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }

// facts is the complete input of a plan.
type facts struct {
	View
	controller string
	now        time.Time
	drain      time.Duration // how long withdrawn exports are kept
	forget     time.Duration // how long silent clusters are kept

	lease time.Duration // how long a member's statements are valid

	pools   map[Name]*pool
	imports map[Name]*import_
	serves  map[Name]string // pools that this replica serves, and why one cannot be exported, or ""
	memory  *memory
	over    []subject       // exports beyond the limit
	limit   int             // of a member's exports
	failed  map[Name]string // why an import could not be written
	blind   string          // why imports cannot be read or written at all, or ""
	last    bool            // this cluster's last replica leaves
	outside func(Name) bool // reports a namespace that this controller does not manage
}

// plan is the wanted content of objects.
type plan struct {
	parents map[Name]*parent  // of every served pool in view; nil: no entry of ours
	imports map[Name]*control // of every import in view or wanted; nil: no entry of ours
	local   Local
	later   time.Time // when to plan again even without changes; zero: never
}

// Reasons of conditions.
const (
	reasonExported     = "Exported"
	reasonNotRequested = "NotRequested"
	reasonNotSupported = "NotSupported"
	reasonPending      = "Pending"
	reasonAccepted     = "Accepted"
	reasonDraining     = "Draining"
	reasonSilent       = "Silent"
)

// desired computes the wanted content of all objects. It does not modify its input.
func desired(f *facts) plan {
	p := plan{parents: map[Name]*parent{}, imports: map[Name]*control{}}
	for _, n := range f.names() {
		have := f.imports[n]
		if !f.concerned(n) {
			if f.abandoned(have, &p) {
				p.imports[n] = nil
			}
			continue
		}
		list := f.exporters(n, &p)
		if len(list) > 0 || have != nil && f.Settled && (have.entry != nil || f.owns(n)) {
			p.imports[n] = f.control(n, list)
		}
		if own := list.of(f.Cluster); own != nil && f.reports(n) {
			p.local.Exports = append(p.local.Exports, Export{n, own.draining})
		}
		if len(list) > 0 {
			p.local.Holds = append(p.local.Holds, f.held(n, p.imports[n]))
		}
	}
	for _, s := range f.over[:min(len(f.over), f.limit)] {
		if p.imports[s.Name] == nil {
			p.local.Holds = append(p.local.Holds, FoundImport{Name: s.Name, Problem: fmt.Sprintf("it imports at most %d pools of a cluster", f.limit)})
		}
	}
	p.local.Served = slices.SortedFunc(maps.Keys(f.serves), Name.compare)
	for n := range f.serves {
		if o := f.pools[n]; o != nil {
			p.parents[n] = f.parent(o)
		}
	}
	return p
}

// names returns all pools in the input, sorted.
func (f *facts) names() []Name {
	all := map[Name]bool{}
	for n := range f.pools {
		all[n] = true
	}
	for n := range f.imports {
		all[n] = true
	}
	for _, m := range f.Members {
		for _, e := range m.Exports {
			all[e.Name] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), Name.compare)
}

// exporter is a cluster that exports a pool.
type exporter struct {
	cluster          string
	draining, silent bool
}

// stated returns a cluster's state as our entry has it: it is part of Accepted's message.
func (c *control) stated(cluster string) exporter {
	e := exporter{cluster: cluster}
	accepted, _ := conditionOf(c.Conditions, typeAccepted)
	_, list, _ := strings.Cut(accepted.Message, statesPrefix(accepted.Status))
	for _, text := range strings.Split(list, ", ") {
		switch text {
		case exporter{cluster: cluster, silent: true}.state():
			e.silent = true
		case exporter{cluster: cluster, draining: true}.state():
			e.draining = true
		}
	}
	return e
}

// statesPrefix is the text before the clusters' states in Accepted's message.
func statesPrefix(status string) string {
	if status == "True" {
		return "exported by "
	}
	return "no cluster takes further requests: "
}

func (e exporter) state() string {
	switch {
	case e.silent:
		return e.cluster + " (silent)"
	case e.draining:
		return e.cluster + " (draining)"
	}
	return e.cluster
}

type exporters []exporter

func (l exporters) of(cluster string) *exporter {
	for i := range l {
		if l[i].cluster == cluster {
			return &l[i]
		}
	}
	return nil
}

// exported reports whether a pool of this cluster should be exported.
func (f *facts) exported(n Name) bool {
	o := f.pools[n]
	if o == nil || o.deleted || !o.asked || o.export != ClusterSet || f.last {
		return false
	}
	problem, served := f.serves[n]
	return served && problem == "" || !served && o.entry != nil
}

// reports reports whether this replica publishes the export of a pool.
func (f *facts) reports(n Name) bool {
	_, served := f.serves[n]
	return served
}

// exporters returns the clusters that a pool's import should name, by name. A cluster is added or
// removed only by its own statement, and removed after too long a silence. Otherwise our entry
// stays as it is.
func (f *facts) exporters(n Name, p *plan) (out exporters) {
	var have *control
	if i := f.imports[n]; i != nil {
		have = i.entry
	}
	if own, ok := f.own(n, have, p); ok {
		out = append(out, own)
	}
	for _, m := range f.Members {
		if e, ok := m.exports(n); ok && !m.Silent && out.of(m.Cluster) == nil {
			out = append(out, exporter{cluster: m.Cluster, draining: e.Draining})
		}
	}
	if have != nil {
		for _, c := range have.Clusters {
			if c.Name == "" || c.Name == f.Cluster || out.of(c.Name) != nil {
				continue
			}
			if e, ok := f.remembered(n, c.Name, have, p); ok {
				out = append(out, e)
			}
		}
	}
	slices.SortFunc(out, func(a, b exporter) int { return cmp.Compare(a.cluster, b.cluster) })
	return out
}

// own returns this cluster's part in a pool's import.
func (f *facts) own(n Name, have *control, p *plan) (exporter, bool) {
	own := exporter{cluster: f.Cluster}
	switch {
	case f.exported(n):
		return own, true
	case !have.lists(f.Cluster):
		return own, false
	case !f.reports(n):
		return have.stated(f.Cluster), true // the group that serves the pool decides
	}
	own.draining = true
	return own, !f.Settled || p.until(f.drained(have), f.now)
}

// remembered returns a cluster that our entry of a pool's import names, and that does not export
// the pool now according to this replica's view.
func (f *facts) remembered(n Name, cluster string, have *control, p *plan) (exporter, bool) {
	e := have.stated(cluster)
	m := f.memberOf(cluster)
	switch {
	case m != nil && !m.Silent && f.withdrawn(m, n):
		return e, false
	case !f.Settled || !f.owns(n):
		return e, true
	}
	if draining, claimed := f.memory.claims[subject{n, cluster}]; claimed {
		e.draining = draining // our entry may be older, if the API server was away
	}
	since, known := f.memory.lost[subject{n, cluster}]
	if e.draining { // it had begun to withdraw
		e.silent = false
		return e, !known || p.until(since.Add(f.drain+2*f.lease), f.now)
	}
	e.silent = true
	return e, !known || p.until(since.Add(f.forget), f.now)
}

// drained returns when this cluster's withdrawn export ends.
func (f *facts) drained(have *control) time.Time {
	begin := f.now
	if c, ok := conditionOf(have.Conditions, typeDraining); ok && c.Since.Before(begin) {
		begin = c.Since
	}
	return begin.Add(f.drain)
}

// until records a time at which the plan changes, and reports whether it is in the future.
func (p *plan) until(t, now time.Time) bool {
	if !t.After(now) {
		return false
	}
	if p.later.IsZero() || t.Before(p.later) {
		p.later = t
	}
	return true
}

// control is our entry of an import, or nil.
func (f *facts) control(n Name, list exporters) *control {
	if len(list) == 0 {
		return nil
	}
	c := &control{Name: f.controller}
	live := 0
	var texts, draining []string
	for _, e := range list {
		c.Clusters = append(c.Clusters, exporting{e.cluster})
		texts = append(texts, e.state())
		if !e.silent && !e.draining {
			live++
		}
		if e.draining {
			draining = append(draining, e.cluster)
		}
	}
	accepted := condition{Type: typeAccepted, Status: "True", Reason: reasonAccepted, Message: statesPrefix("True") + strings.Join(texts, ", ")}
	if live == 0 {
		accepted.Status, accepted.Reason = "False", reasonSilent
		if len(draining) > 0 {
			accepted.Reason = reasonDraining
		}
		accepted.Message = statesPrefix("False") + strings.Join(texts, ", ")
	}
	c.Conditions = append(c.Conditions, accepted)
	if own := list.of(f.Cluster); own != nil && own.draining {
		c.Conditions = append(c.Conditions, condition{Type: typeDraining, Status: "True", Reason: reasonDraining,
			Message: "cluster " + f.Cluster + " has withdrawn its export"})
	}
	var have []condition
	if i := f.imports[n]; i != nil && i.entry != nil {
		have = i.entry.Conditions
	}
	c.Conditions = begun(c.Conditions, have, f.now)
	return c
}

// held is the published state of an import: its content as read, not as wanted.
func (f *facts) held(n Name, want *control) FoundImport {
	h := FoundImport{Name: n}
	if i := f.imports[n]; i != nil && i.entry != nil {
		for _, c := range i.entry.Clusters {
			h.Clusters = append(h.Clusters, c.Name)
		}
		slices.Sort(h.Clusters)
		if i.entry.equals(want) {
			return h
		}
	}
	h.Problem = f.problem(n)
	return h
}

// problem returns why an import cannot be as wanted, or "".
func (f *facts) problem(n Name) string {
	switch {
	case f.blind != "":
		return f.blind
	case f.outside(n):
		return "the namespace is not managed"
	}
	return f.failed[n]
}

// reached returns whether every member has the import that names this cluster.
func (f *facts) reached(n Name) (status, reason, message string) {
	var reached, waiting, refused []string
	look := func(cluster string, holds []FoundImport) {
		i := slices.IndexFunc(holds, func(h FoundImport) bool { return h.Name == n })
		switch {
		case i >= 0 && holds[i].Problem != "":
			refused = append(refused, cluster+": "+clip(holds[i].Problem))
		case i >= 0 && slices.Contains(holds[i].Clusters, f.Cluster):
			reached = append(reached, cluster)
		default:
			waiting = append(waiting, cluster)
		}
	}
	own := FoundImport{Name: n, Problem: f.problem(n)}
	if i := f.imports[n]; i != nil && i.entry.lists(f.Cluster) {
		own = FoundImport{Name: n, Clusters: []string{f.Cluster}}
	}
	look(f.Cluster, []FoundImport{own})
	for _, m := range f.Members {
		switch {
		case m.Cluster == f.Cluster:
		case m.Silent:
			waiting = append(waiting, fmt.Sprintf("%s (%s)", m.Cluster, cmp.Or(m.Reason, "silent")))
		default:
			look(m.Cluster, m.Holds)
		}
	}
	var parts []string
	for _, x := range []struct {
		what string
		list []string
	}{{"not to ", refused}, {"waiting for ", waiting}, {"exported to ", reached}} {
		if slices.Sort(x.list); len(x.list) > 0 {
			parts = append(parts, x.what+strings.Join(x.list, ", "))
		}
	}
	message = strings.Join(parts, "; ")
	message = strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
	switch {
	case len(refused) > 0:
		return "False", reasonNotSupported, message
	case len(waiting) > 0:
		return "False", reasonPending, message
	case len(f.Members) == 0:
		return "False", reasonPending, "no other cluster of the set is known"
	}
	return "True", reasonExported, message
}

// clip makes another cluster's text safe for a message.
func clip(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), maxProblem)], "")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

// maxMessage is far below the API server's limit, and enough for fifty clusters.
const maxMessage = 8192

// parent is our entry of a pool, or nil.
func (f *facts) parent(o *pool) *parent {
	if o.deleted || !o.asked {
		return nil
	}
	why := f.serves[o.Name]
	c := condition{Type: typeExported, Status: "False", Generation: o.generation}
	switch {
	case o.export == "":
		c.Reason, c.Message = reasonNotRequested, fmt.Sprintf("the annotation %s is empty: want %s", Annotation, ClusterSet)
	case o.export != ClusterSet:
		c.Reason, c.Message = reasonNotSupported, fmt.Sprintf("%.100q is not a known scope: want %s", o.export, ClusterSet)
	case why != "":
		c.Reason, c.Message = reasonNotSupported, why
	case f.last:
		c.Reason, c.Message = reasonPending, "the last replica of this cluster has left"
	case !f.Settled && o.entry.whole(f.controller, o.Name):
		return o.entry // keep the state from before a restart until more is known
	case !f.Settled:
		c.Reason, c.Message = reasonPending, "no message from other clusters yet"
	default:
		c.Status, c.Reason, c.Message = f.reached(o.Name)
	}
	e := parentOf(f.controller, o.Name, c)
	var have []condition
	if o.entry != nil {
		have = o.entry.Conditions
	}
	e.Conditions = begun(e.Conditions, have, f.now)
	return e
}
