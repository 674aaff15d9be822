package sim

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// TestScripts runs the scenarios in testdata. -rewrite accepts their output.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.run(t, d)
			if s.w != nil && len(s.w.Failures()) > 0 {
				t.Errorf("%s: %s", filepath.Base(path), strings.Join(s.w.Failures(), "\n"))
			}
			return out
		})
	})
}

// script is a running scenario.
type script struct {
	w    *World
	ways map[string]int // frames with deltas since they were last shown
}

// way formats the direction of a frame and whether it crosses zones.
func (w *World) way(from, to int) string {
	if w.plan.zone(from) == w.plan.zone(to) {
		return w.members[from].name + " to " + w.members[to].name
	}
	return w.members[from].name + " across to " + w.members[to].name
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	if d.Cmd == "new" {
		return s.build(t, d)
	}
	switch d.Cmd {
	case "start":
		s.each(t, d, func(i int) { s.w.Start(i) })
	case "kill":
		s.each(t, d, s.w.Kill)
	case "drain":
		s.each(t, d, func(i int) { s.w.Drain(i, 2*time.Second) })
	case "pause":
		s.each(t, d, func(i int) { s.w.Pause(i, argDuration(t, d, "for")) })
	case "partition":
		side := map[int]bool{}
		s.each(t, d, func(i int) { side[i] = true })
		s.w.Partition(side, d.HasArg("oneway"))
	case "block": // drop frames from the first to the second, undetected by both
		var pair []int
		s.each(t, d, func(i int) { pair = append(pair, i) })
		s.w.Net.Block(pair[0], pair[1], true)
	case "heal":
		s.w.Net.Heal()
		clear(s.w.cut)
		s.w.topology()
	case "cut":
		s.each(t, d, func(i int) { s.w.Cut(i, argEngine(t, d), true) })
	case "emit":
		var n int
		d.ScanArgs(t, "n", &n)
		s.w.Emit(argEngine(t, d), n)
	case "restart-engine":
		s.w.RestartEngine(argEngine(t, d))
	case "set":
		var key string
		var v uint64
		d.ScanArgs(t, "key", &key)
		d.ScanArgs(t, "to", &v)
		s.each(t, d, func(i int) {
			m := s.w.members[i]
			s.w.afterFor(m, 0, func() { m.Set(key, v) })
		})
	case "quiet":
		s.w.Quiet(true)
	case "run":
		s.w.Run(argDuration(t, d, "for"))
	default:
		return s.show(t, d)
	}
	return ""
}

func (s *script) build(t *testing.T, d *datadriven.TestData) string {
	p := Plan{Seed: 1, Members: 3, Sources: 1, Share: group.SharePartitioned}
	p.Net.Delay = 500 * time.Microsecond
	scan(t, d, "members", &p.Members)
	scan(t, d, "sources", &p.Sources)
	scan(t, d, "seed", &p.Seed)
	scan(t, d, "ring", &p.Ring)
	scan(t, d, "zones", &p.Zones)
	p.Options.Relay = d.HasArg("relay")
	if d.HasArg("old") { // letters of members of a release without relays
		var old string
		d.ScanArgs(t, "old", &old)
		p.PreviousRelease = map[int]bool{}
		for _, c := range old {
			p.PreviousRelease[int(c-'a')] = true
		}
	}
	s.ways = map[string]int{}
	p.Frame = func(from, to int, f []byte) []byte {
		if f[2] == group.KindDelta || f[2] == group.KindRelay || f[2] == group.KindRelayed {
			s.ways[s.w.way(from, to)]++
		}
		return f
	}
	scan(t, d, "member-ring", &p.Options.RingDeltas)
	if d.HasArg("every") {
		p.Every = argDuration(t, d, "every")
	}
	if d.HasArg("mesh") {
		p.Share = group.ShareMesh
	}
	if d.HasArg("gauges") {
		p.Gauges = argDuration(t, d, "gauges")
	}
	s.w = New(p)
	return ""
}

// show prints some state, or runs until a condition holds.
func (s *script) show(t *testing.T, d *datadriven.TestData) string {
	w := s.w
	switch d.Cmd {
	case "source":
		return s.source(w.engines[argEngine(t, d)])
	case "members":
		return s.members()
	case "ways":
		var b strings.Builder
		for _, way := range slices.Sorted(maps.Keys(s.ways)) {
			fmt.Fprintf(&b, "%s: %d\n", way, s.ways[way])
		}
		clear(s.ways)
		return b.String()
	case "gauges":
		return s.gauges()
	case "converge":
		limit := w.now + argDuration(t, d, "within")
		for {
			why := w.Converged()
			if why == "" && w.Exact() {
				return "all know the same, exactly"
			}
			if why == "" {
				return "all know the same, approximately"
			}
			if w.now >= limit {
				return "not converged: " + why
			}
			w.Run(10 * time.Millisecond)
		}
	case "traffic":
		var limit int
		d.ScanArgs(t, "max", &limit)
		window := argDuration(t, d, "for")
		before := w.Stats.Bytes
		w.Run(window)
		perMember := int(float64(w.Stats.Bytes-before) / window.Seconds() / float64(len(w.members)))
		if perMember > limit {
			return fmt.Sprintf("%d bytes per second and member, more than %d", perMember, limit)
		}
		return fmt.Sprintf("at most %d bytes per second and member", limit)
	case "memory":
		var limit int
		d.ScanArgs(t, "max", &limit)
		for _, m := range w.members {
			if h := m.core.MemoryUse(); m.up && h.Total() > limit {
				return fmt.Sprintf("%s holds %+v, more than %d", m.name, h, limit)
			}
		}
		return fmt.Sprintf("at most %d bytes held by any member", limit)
	}
	t.Fatalf("unknown command %s", d.Cmd)
	return ""
}

// source prints every member's state of a source, with incarnations numbered from 1.
func (s *script) source(e *engine) string {
	var incs []uint64
	for inc := range e.truth {
		incs = append(incs, inc)
	}
	slices.Sort(incs)
	var b strings.Builder
	fmt.Fprintf(&b, "engine: life %d, next %d\n", slices.Index(incs, e.inc)+1, len(e.batch))
	for _, m := range s.w.members {
		if !m.up {
			continue
		}
		v, _ := m.log.Source(e.name)
		fmt.Fprintf(&b, "%s: life %d, next %d, lost %d, %s, %s", m.name, slices.Index(incs, v.Position.Inc)+1,
			v.Position.Next, v.Position.Lost, v.Knowledge, v.Role)
		if v.Reading {
			b.WriteString(", reads")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (s *script) members() string {
	var b strings.Builder
	for _, m := range s.w.members {
		if !m.up {
			fmt.Fprintf(&b, "%s: not running\n", m.name)
			continue
		}
		up, known := m.core.Reachable()
		fmt.Fprintf(&b, "%s: %s, %d of %d peers up\n", m.name, m.core.Phase(), up, known)
	}
	return b.String()
}

func (s *script) gauges() string {
	var b strings.Builder
	for _, m := range s.w.members {
		if !m.up {
			continue
		}
		fmt.Fprintf(&b, "%s believes", m.name)
		for _, o := range s.w.members {
			if g := m.gauges.of[o.id]; o != m && len(g) > 0 {
				fmt.Fprintf(&b, " %s%v", o.name, g)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// each calls fn for the members given by letter.
func (s *script) each(t *testing.T, d *datadriven.TestData, fn func(i int)) {
	t.Helper()
	for _, a := range d.CmdArgs {
		if len(a.Vals) > 0 || len(a.Key) != 1 {
			continue
		}
		i := int(a.Key[0] - 'a')
		if i < 0 || i >= len(s.w.members) {
			t.Fatalf("no member %s", a.Key)
		}
		fn(i)
	}
}

func scan[T any](t *testing.T, d *datadriven.TestData, key string, v *T) {
	if d.HasArg(key) {
		d.ScanArgs(t, key, v)
	}
}

func argDuration(t *testing.T, d *datadriven.TestData, key string) time.Duration {
	t.Helper()
	var v string
	d.ScanArgs(t, key, &v)
	dur, err := time.ParseDuration(v)
	if err != nil {
		t.Fatal(err)
	}
	return dur
}

func argEngine(t *testing.T, d *datadriven.TestData) int {
	t.Helper()
	var v string
	d.ScanArgs(t, "engine", &v)
	var i int
	if _, err := fmt.Sscanf(v, "e%d", &i); err != nil {
		t.Fatal(err)
	}
	return i - 1
}
