package facts

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/varint"
	"github.com/grapevine-epp/grapevine/picker/discovery"
)

// The list and its age are separate values, because the age is sent more often.
const (
	stateLists = "endpoints"
	keyList    = "list"
	keyAge     = "age"

	// maxList bounds an uncompressed list from a peer, in bytes.
	maxList = 64 << 20
)

// Lists gives each replica's list of endpoints to the others, so that a replica that cannot read its
// source still serves. A replica publishes only lists that it read itself. Safe for concurrent use,
// except that Publish must not be called concurrently.
type Lists struct {
	set SetFunc
	now func() time.Time
	log *slog.Logger

	sent []byte // last published list; owned by Publish

	mu   sync.Mutex
	list Origins[*receivedList] // under keyList
	read Origins[time.Time]     // under keyAge; by this replica's clock
}

// receivedList is the compressed list of a peer. It is decoded when it is first needed, because
// values arrive on the event loop of the group.
type receivedList struct {
	raw    []byte
	decode sync.Once
	record *discovery.Record // nil: malformed
}

// PeerList is the list of a peer.
type PeerList struct {
	discovery.Record
	Peer string
}

// NewLists registers the state with a group.
func NewLists(g Group, now func() time.Time, log *slog.Logger) *Lists {
	x := &Lists{now: now, log: log}
	x.set = g.Gauge(stateLists, StateVersion, x)
	return x
}

// Publish sends a list that this replica read from its source. Only the age is sent if the list has
// not changed.
func (x *Lists) Publish(r *discovery.Record) {
	list := *r
	list.Read = time.Time{} // the age has it
	b, err := list.Encode()
	if err != nil {
		x.log.Error("endpoints not shared", "error", err)
		return
	}
	if !bytes.Equal(b, x.sent) {
		x.sent = b
		if err := x.set(keyList, deflate(b)); err != nil {
			x.log.Warn("endpoint list not shared with the group", "endpoints", len(r.Found.Specs), "error", err)
		}
	}
	age := max(x.now().Sub(r.Read), 0)
	if err := x.set(keyAge, binary.AppendVarint(nil, int64(age))); err != nil {
		x.log.Warn("age of the endpoints not shared", "error", err)
	}
}

// Newest returns the most recently read list of a peer with this source; false if there is none.
// Malformed lists are logged once and ignored.
func (x *Lists) Newest(from string) (newest PeerList, ok bool) {
	type candidate struct {
		peer string
		list *receivedList
		read time.Time
	}
	var candidates []candidate
	x.mu.Lock()
	for _, said := range x.list.Of(keyList) {
		if read := x.read.Get(keyAge, said.Origin); !read.IsZero() {
			candidates = append(candidates, candidate{said.Origin, said.Value, read})
		}
	}
	x.mu.Unlock()
	for _, c := range candidates {
		r := x.decoded(c.peer, c.list)
		if r == nil || r.From != from || ok && !c.read.After(newest.Read) {
			continue
		}
		newest, ok = PeerList{Record: *r, Peer: c.peer}, true
		newest.Read = c.read
	}
	return newest, ok
}

// decoded returns the decoded list, or nil if it is malformed.
func (x *Lists) decoded(peer string, l *receivedList) *discovery.Record {
	l.decode.Do(func() {
		r, err := readList(l.raw)
		l.raw = nil
		if err != nil {
			x.log.Warn("malformed list of endpoints from a peer", "peer", peer, "error", err)
			return
		}
		l.record = r
	})
	return l.record
}

// Merge implements cluster.GaugeSink.
func (x *Lists) Merge(origin string, _ uint64, key string, value []byte) error {
	switch {
	case key != keyList && key != keyAge:
		return nil
	case value == nil:
		x.mu.Lock()
		defer x.mu.Unlock()
		x.list.Delete(key, origin)
		x.read.Delete(key, origin)
		return nil
	case key == keyAge:
		r := varint.Reader{B: value}
		age := time.Duration(r.Natural())
		if r.Err != nil {
			return errWire
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.read.Set(keyAge, origin, x.now().Add(-age))
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list.Set(keyList, origin, &receivedList{raw: bytes.Clone(value)})
	return nil
}

// Drop implements cluster.GaugeSink.
func (x *Lists) Drop(origin string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list.Drop(origin)
	x.read.Drop(origin)
}

func deflate(b []byte) []byte {
	var out bytes.Buffer
	w, _ := flate.NewWriter(&out, flate.BestSpeed) // the level is valid
	_, _ = w.Write(b)                              // a buffer accepts everything
	_ = w.Close()
	return slices.Clip(out.Bytes())
}

// readList decodes a compressed record.
func readList(b []byte) (*discovery.Record, error) {
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b)), maxList+1))
	if err != nil || len(text) > maxList {
		return nil, fmt.Errorf("%w: compressed list of endpoints: %w", errWire, err)
	}
	r, err := discovery.DecodeRecord(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errWire, err)
	}
	return r, nil
}
