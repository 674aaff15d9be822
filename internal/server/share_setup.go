package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

const (
	stateSetup    = "setup"
	keySetup      = "setup"
	maxModelNames = 4096
)

// The prints of a model that has no usable files. Any other value is a
// fingerprint of how its tokens become bytes.
const (
	printLoading uint64 = iota // not known yet
	printNone                  // its engines are matched by token ids
)

// setup is what replicas must have in common to share the index.
type setup struct {
	secret uint64            // fingerprint of how block keys are seeded
	models map[string]uint64 // fingerprints by every name that stands for the model; nil: not known yet
}

// setupShare tells the group this replica's setup, and finds out whose is another.
// Blocks named by another secret or read by another vocabulary mean nothing here,
// and nothing would show: positions and digests are equal. It is safe for concurrent use.
type setupShare struct {
	s     *Server
	gauge *cluster.Gauge

	prints map[*prompt.Model]uint64 // of look
	told   []byte                   // of tell

	mu     sync.Mutex
	own    setup
	theirs map[string]setup // by origin

	apart atomic.Bool // some member's models are others
}

func newSetupShare(s *Server) *setupShare {
	x := &setupShare{s: s, theirs: map[string]setup{}}
	x.own.secret = uint64(s.hasher.Root(indexer.Scope{}))
	x.gauge = s.node.Gauge(stateSetup, stateVersion, x)
	return x
}

// tell sends this replica's setup when it is another than last time. Calls follow
// each other.
func (x *setupShare) tell() {
	models := x.look()
	x.mu.Lock()
	x.own.models = models
	value := x.own.append(nil)
	x.compare()
	x.mu.Unlock()
	if bytes.Equal(value, x.told) {
		return
	}
	x.told = value
	if err := x.gauge.Set(keySetup, slices.Clone(value)); err != nil {
		x.s.o.Log.Warn("models in use are not told to the others", "error", err)
	}
}

// compare notes whether anybody's models are others. x.mu is held.
func (x *setupShare) compare() {
	apart := false
	for _, t := range x.theirs {
		apart = apart || len(x.own.differ(&t)) > 0
	}
	x.apart.Store(apart)
}

// look fingerprints the models as they are at present. That takes long for large
// vocabularies, and the group's lock may wait for x.mu: it must not be held.
func (x *setupShare) look() map[string]uint64 {
	prints, names := map[*prompt.Model]uint64{}, map[string]uint64{}
	for _, st := range x.s.models.all.Status() {
		p, sum := x.s.models.model(st.Name), printNone
		switch {
		case p != nil:
			if sum = x.prints[p]; sum == 0 {
				sum = fingerprint(p)
			}
			prints[p] = sum
		case st.State == prompt.StateLoading:
			sum = printLoading
		}
		names[st.Name] = sum
	}
	x.prints = prints
	for name, base := range x.s.models.all.Names() {
		names[name] = names[base]
	}
	return names
}

// fingerprint sums up what decides which keys the blocks of a model's engines get.
func fingerprint(p *prompt.Model) uint64 {
	h := xxhash.New()
	_, _ = h.WriteString(p.Name() + "\x00")
	var token []byte
	for id := range uint32(p.Vocab().Size()) {
		token, _ = p.AppendToken(token[:0], id)
		token = append(token, byte(len(token)), byte(len(token)>>8))
		_, _ = h.Write(token)
	}
	return max(h.Sum64(), printNone+1)
}

// conflict names a member that reads an endpoint's events by other files than
// this replica does, "" when none is known to.
func (x *setupShare) conflict(ep *endpoint.Endpoint) string {
	if !x.apart.Load() {
		return ""
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	mine := x.own.of(ep.Models)
	for _, id := range slices.Sorted(maps.Keys(x.theirs)) {
		t := x.theirs[id]
		if its := t.of(ep.Models); t.secret == x.own.secret && its != mine && its != printLoading && mine != printLoading {
			return id
		}
	}
	return ""
}

// of returns the print of the model that an endpoint of these names is read by:
// the first that has files, the only one when there are no names.
func (u *setup) of(names []string) uint64 {
	if len(names) == 0 {
		prints := slices.Compact(slices.Sorted(maps.Values(u.models)))
		if len(prints) != 1 {
			return printNone
		}
		return prints[0]
	}
	for _, name := range names {
		if p, ok := u.models[name]; ok && p != printNone {
			return p
		}
	}
	return printNone
}

// trouble names a member of another setup and says what follows; "" when there is none.
func (x *setupShare) trouble() (member, what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(x.theirs)) {
		t := x.theirs[id]
		if t.secret != x.own.secret {
			return id, "has another --secret-file: no index is shared with it"
		}
		if other := x.own.differ(&t); len(other) > 0 {
			return id, fmt.Sprintf("has other files, or none, for %s: each reads those engines itself", strings.Join(other, ", "))
		}
	}
	return "", ""
}

// differ lists the model names that stand for something else in another setup,
// none while this one is not known yet.
func (u *setup) differ(other *setup) (names []string) {
	if u.models == nil {
		return nil
	}
	of := func(of *setup, name string) uint64 {
		if p, ok := of.models[name]; ok {
			return p
		}
		return printNone
	}
	all := maps.Clone(u.models)
	maps.Copy(all, other.models)
	for name := range all {
		a, b := of(u, name), of(other, name)
		if a != b && a != printLoading && b != printLoading {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (u *setup) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, u.secret)
	b = binary.AppendVarint(b, int64(len(u.models)))
	for _, name := range slices.Sorted(maps.Keys(u.models)) {
		b = binary.LittleEndian.AppendUint64(appendText(b, name), u.models[name])
	}
	return b
}

// maxModelName bounds the model names that peers send, in bytes.
const maxModelName = 1024

func readSetup(b []byte) (u setup, err error) {
	w := wire{b: b}
	u.secret = w.fixed()
	n := w.count()
	if w.bad || n > maxModelNames {
		return setup{}, errWire
	}
	u.models = map[string]uint64{}
	for range n {
		name := w.text(maxModelName)
		u.models[name] = w.fixed()
		if w.bad {
			return setup{}, errWire
		}
	}
	return u, nil
}

// Merge implements cluster.GaugeSink.
func (x *setupShare) Merge(origin string, _ uint64, key string, value []byte) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if key != keySetup {
		return nil
	}
	defer x.compare()
	if value == nil {
		delete(x.theirs, origin)
		return nil
	}
	u, err := readSetup(value)
	if err != nil {
		return err
	}
	x.theirs[origin] = u
	return nil
}

// Drop implements cluster.GaugeSink.
func (x *setupShare) Drop(origin string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.theirs, origin)
	x.compare()
}
