package facts

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/varint"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

const (
	keySetup      = "setup"
	maxModelNames = 4096
)

// Fingerprints of a model without usable files. Any other value is a fingerprint of how its tokens
// become bytes.
const (
	printLoading uint64 = iota // unknown yet
	printNone                  // its engines are matched by token IDs
)

// setup is the configuration that replicas must share to share the index.
type setup struct {
	secret uint64            // fingerprint of the block keys' seed
	models map[string]uint64 // fingerprints by every name of a model; nil: unknown yet
}

// SetupOptions configure a Setup.
type SetupOptions struct {
	Secret uint64 // fingerprint of the block keys' seed
	// Models lists the models in use, by every name. It may be slow and is called only by Publish.
	Models func() []ModelInUse
	Log    *slog.Logger
}

// ModelInUse is a model name and its model.
type ModelInUse struct {
	Name    string
	Model   *prompt.Model // nil: no usable files
	Loading bool          // its files are being read for the first time
}

// Setup publishes this replica's setup to the group and detects members with a different one.
// Blocks with another secret or vocabulary are unusable here. No other check would reveal it, since
// positions and digests are equal. It is safe for concurrent use, except that Publish must not be
// called concurrently.
type Setup struct {
	o   SetupOptions
	set SetFunc

	published []byte // owned by Publish

	mu     sync.Mutex
	own    setup
	theirs Origins[setup] // under keySetup

	apart atomic.Bool // some member uses different models
}

// NewSetup returns a Setup without a group. See Join.
func NewSetup(o SetupOptions) *Setup {
	return &Setup{o: o, own: setup{secret: o.Secret}, set: func(string, []byte) error { return nil }}
}

// Join registers the setup with a group. Call it before the first Publish.
func (x *Setup) Join(g Group) { x.set = g.Gauge(stateSetup, StateVersion, x) }

// Publish sends this replica's setup if it has changed.
func (x *Setup) Publish() {
	models := x.look()
	x.mu.Lock()
	x.own.models = models
	value := x.own.append(nil)
	x.compare()
	x.mu.Unlock()
	if bytes.Equal(value, x.published) {
		return
	}
	x.published = value
	if err := x.set(keySetup, slices.Clone(value)); err != nil {
		x.o.Log.Warn("models in use not shared", "error", err)
	}
}

// compare updates whether any member uses different models. The caller holds x.mu.
func (x *Setup) compare() {
	apart := false
	for t := range x.theirs.Values(keySetup) {
		apart = apart || len(x.own.differ(&t)) > 0
	}
	x.apart.Store(apart)
}

// look fingerprints the current models. The caller must not hold x.mu: large vocabularies take
// long, and the group's lock may wait for x.mu.
func (x *Setup) look() map[string]uint64 {
	names := map[string]uint64{}
	for _, m := range x.o.Models() {
		switch {
		case m.Model != nil:
			names[m.Name] = max(m.Model.Fingerprint(), printNone+1)
		case m.Loading:
			names[m.Name] = printLoading
		default:
			names[m.Name] = printNone
		}
	}
	return names
}

// Conflict returns a member that reads an endpoint's events with different files than this replica,
// or "".
func (x *Setup) Conflict(ep *endpoint.Endpoint) string {
	if !x.apart.Load() {
		return ""
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	mine := x.own.ofEndpoint(ep)
	for _, s := range x.theirs.Of(keySetup) {
		id, t := s.Origin, &s.Value
		if its := t.ofEndpoint(ep); t.secret == x.own.secret && its != mine && its != printLoading && mine != printLoading {
			return id
		}
	}
	return ""
}

// ofEndpoint returns the fingerprint of an endpoint's model, by its configured names or, without
// these, by its engine's own list.
func (u *setup) ofEndpoint(ep *endpoint.Endpoint) uint64 {
	if len(ep.Models) == 0 {
		if names := ep.BaseModels(); len(names) > 0 {
			if p := u.of(names); p != printNone {
				return p
			}
		}
	}
	return u.of(ep.Models)
}

// of returns the fingerprint of the model for an endpoint with these names: the first that has
// files, or the only model if there are no names.
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

// Mismatch returns a member with a different setup and the consequence, or "".
func (x *Setup) Mismatch() (member, what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.theirs.Of(keySetup) {
		id, t := s.Origin, &s.Value
		if t.secret != x.own.secret {
			why := "has another --secret-file"
			if x.own.secret == GroupSecret || t.secret == GroupSecret {
				why = "only one of the two replicas has a --secret-file"
			}
			return id, why + ": no index is shared with it"
		}
		if other := x.own.differ(t); len(other) > 0 {
			return id, fmt.Sprintf("has different files, or none, for %s, so each replica reads those engines itself", strings.Join(other, ", "))
		}
	}
	return "", ""
}

// differ lists the model names with a different fingerprint in another setup. It returns none while
// this setup is unknown.
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

// maxModelName is the longest model name accepted from peers, in bytes.
const maxModelName = 1024

func readSetup(b []byte) (u setup, err error) {
	w := varint.Reader{B: b}
	u.secret = w.Fixed64()
	n := w.Natural()
	if w.Err != nil || n > maxModelNames {
		return setup{}, errWire
	}
	u.models = map[string]uint64{}
	for range n {
		name := readText(&w, maxModelName)
		u.models[name] = w.Fixed64()
		if w.Err != nil {
			return setup{}, errWire
		}
	}
	return u, nil
}

// Merge implements cluster.GaugeSink.
func (x *Setup) Merge(origin string, _ uint64, key string, value []byte) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if key != keySetup {
		return nil
	}
	defer x.compare()
	if value == nil {
		x.theirs.Delete(key, origin)
		return nil
	}
	u, err := readSetup(value)
	if err != nil {
		return err
	}
	x.theirs.Set(key, origin, u)
	return nil
}

// Drop implements cluster.GaugeSink.
func (x *Setup) Drop(origin string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.theirs.Drop(origin)
	x.compare()
}
