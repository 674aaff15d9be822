package share

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/share/plan"
)

// Knowledge returns how far the index can be trusted for an endpoint, from this replica's reading
// and from the log. It takes no lock.
func (x *Index) Knowledge(id block.EndpointID) events.Knowledge {
	k := x.read(id)
	k.Lag = max(k.Lag, x.Age(id))
	if x.o.Index.Overflowed(id) {
		k.State, k.Complete = knowledge.Approximate, false
	}
	return k
}

// Age returns how far the content may be behind a working engine that has sent nothing for longer
// than usual; 0: no more than Knowledge reports. It takes no lock.
func (x *Index) Age(id block.EndpointID) (age time.Duration) {
	now := monotime.Now()
	for _, s := range (*x.byEndpoint.Load())[id] {
		age = max(age, s.shown.behindBy(now))
	}
	return age
}

// LastEvent returns when events of an endpoint were last applied, from any reader, in Unix
// nanoseconds; 0: never. It takes no lock.
func (x *Index) LastEvent(id block.EndpointID) int64 {
	at := x.events.LastEvent(id)
	for _, s := range (*x.byEndpoint.Load())[id] {
		at = max(at, s.shown.lastChange.Load())
	}
	return at
}

// ProbeTopics triggers a check of which other topics the publishers of an endpoint's streams use.
func (x *Index) ProbeTopics(streams []events.Stream) { x.events.ProbeTopics(streams) }

// TopicMismatch returns the topic that an endpoint's publisher uses instead of the subscribed one,
// if that was detected after the last applied event; otherwise nil.
func (x *Index) TopicMismatch(id block.EndpointID, streams []events.Stream) *events.TopicMismatch {
	if a := x.events.TopicMismatch(streams); a != nil && x.LastEvent(id) < a.At {
		return a
	}
	return nil
}

// Reason returns the lasting reason why an endpoint's state is not better, or "".
func (x *Index) Reason(id block.EndpointID) string {
	if x.o.Index.Overflowed(id) {
		return fmt.Sprintf("it exceeds the limit of %d blocks per endpoint, or all endpoints exceed the total limit", x.o.Index.MaxSourceBlocks())
	}
	if x.State(id) == knowledge.Unreadable {
		return x.events.Problem(id)
	}
	for _, s := range (*x.byEndpoint.Load())[id] {
		if r := s.shown.reason.Load(); r != nil && *r != "" && s.isMode() == plan.Shared {
			return *r
		}
	}
	for _, s := range (*x.byEndpoint.Load())[id] {
		if s.shown.stalled.Load() && s.isMode() == plan.Direct {
			return whySilent
		}
	}
	if why := x.events.Problem(id); why != "" || x.State(id) != knowledge.Partial {
		return why
	}
	return whyLost
}

// Disconnected returns why this replica has no connection to an endpoint's event streams, "" if it has
// one or does not read them.
func (x *Index) Disconnected(id block.EndpointID) string { return x.events.Disconnected(id) }

// Final reports whether waiting cannot improve the state of an endpoint that is not exact: batches
// were lost that no member has.
func (x *Index) Final(id block.EndpointID) bool {
	all := (*x.byEndpoint.Load())[id]
	final := len(all) > 0
	for _, s := range all {
		final = final && (s.shown.final.Load() || knowledge.State(s.shown.state.Load()).Followed())
	}
	return final
}

// read returns the knowledge from all readers, here and elsewhere.
func (x *Index) read(id block.EndpointID) events.Knowledge {
	k := x.events.Knowledge(id)
	read, shared, direct, backed := false, false, false, true
	log := events.Knowledge{State: knowledge.Exact, Complete: true}
	for _, s := range (*x.byEndpoint.Load())[id] {
		if s.shown.reads.Load() {
			read, backed = true, backed && s.shown.backed.Load()
		}
		if s.isMode() == plan.Direct {
			if direct = true; s.shown.stalled.Load() {
				k.State = min(k.State, knowledge.CatchingUp)
			}
			continue
		}
		shared = true
		log.State = min(log.State, knowledge.State(s.shown.state.Load()))
		log.Behind += s.shown.behind.Load()
		log.Complete = log.Complete && s.shown.full.Load()
	}
	switch {
	case !shared:
		return k
	case !read:
		return log
	}
	k.State, k.Behind, k.Lag = joint(k.State, log.State, direct, backed), max(k.Behind, log.Behind), max(k.Lag, log.Lag)
	k.Complete = log.Complete && (k.Complete || !direct)
	return k
}

// joint combines the state of an endpoint's streams read here with the state of the log. A stream
// that continues from the log's position does not cover earlier events; the log does, unless some
// stream of the endpoint is read directly. A stream that is being opened does not degrade data from
// other readers (backed).
func joint(read, log knowledge.State, direct, backed bool) knowledge.State {
	if read == knowledge.Unreadable {
		return read
	}
	if !direct && (backed || read.Followed()) {
		return log
	}
	return min(read, log)
}

// count returns how many sources are in a mode.
func (x *Index) count(m plan.Mode) (n float64) {
	for _, s := range *x.byName.Load() {
		if s.isMode() == m {
			n++
		}
	}
	return n
}

// Readers returns the members that read an endpoint's streams, or this replica if it shares
// nothing.
func (x *Index) Readers(id block.EndpointID) (names []string) {
	for _, s := range (*x.byEndpoint.Load())[id] {
		name := ""
		switch r := s.shown.reader.Load(); {
		case s.isMode() != plan.Shared:
			name = "this replica, not shared"
		case s.shown.reads.Load():
			name = x.o.Node.Self().ID
		case r != nil:
			name = *r
		}
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Invalidate reports that the index was found wrong for an endpoint. Its stream is read again from
// the beginning, for the whole group if it is shared.
func (x *Index) Invalidate(id block.EndpointID) {
	alone := false
	for _, s := range (*x.byEndpoint.Load())[id] {
		if s.isMode() == plan.Direct {
			alone = true
			continue
		}
		s.in.note(func(r *reports) { r.invalidated = true })
	}
	if alone {
		x.events.Invalidate(id)
	}
	x.poke()
}

// SourceName returns the name of a rank's event stream in the group.
func SourceName(address string, rank uint16) string { return fmt.Sprintf("%s/%d", address, rank) }

// Sparse reports whether an endpoint's events, as far as they are read here, contain cache groups
// that the index does not store.
func (x *Index) Sparse(id block.EndpointID) bool { return x.events.Sparse(id) }

// Narrow reports whether they contain no cache group with full attention.
func (x *Index) Narrow(id block.EndpointID) bool { return x.events.Narrow(id) }

// Expect announces to the reader of an endpoint's streams that an engine will report its reuse for
// a prompt. It reports whether this replica is the reader.
func (x *Index) Expect(id block.EndpointID, q block.Query) bool { return x.events.Expect(id, q) }

// Answered returns the number of full reports announced by Expect that arrived.
func (x *Index) Answered(id block.EndpointID) uint64 { return x.events.Answered(id) }

// Listen accepts connections from publishers that dial in.
func (x *Index) Listen(o events.Inbound) error { return x.events.Listen(o) }

// Inbound returns the listen addresses.
func (x *Index) Inbound() []net.Addr { return x.events.Inbound() }

// Confirm clears the suspicion of an endpoint's entries after the index was verified.
func (x *Index) Confirm(id block.EndpointID) { x.events.Confirm(id) }

// State returns the State of Knowledge at a fraction of its cost. Every decision calls it for each
// endpoint.
func (x *Index) State(id block.EndpointID) knowledge.State {
	if x.o.Index.Overflowed(id) {
		return knowledge.Approximate
	}
	read, shared, direct, backed := false, false, false, true
	log, here := knowledge.Exact, knowledge.Exact
	for _, s := range (*x.byEndpoint.Load())[id] {
		if s.shown.reads.Load() {
			read, backed = true, backed && s.shown.backed.Load()
		}
		if s.isMode() == plan.Direct {
			if direct = true; s.shown.stalled.Load() {
				here = knowledge.CatchingUp
			}
			continue
		}
		shared, log = true, min(log, knowledge.State(s.shown.state.Load()))
	}
	switch {
	case shared && !read:
		return log
	case !shared:
		return min(here, x.events.State(id))
	}
	return joint(min(here, x.events.State(id)), log, direct, backed)
}

// NotShared returns which event streams are not shared and why, and which are stalled while their
// engines work; or "".
func (x *Index) NotShared() string {
	apart, still := x.apart(), x.still()
	if apart != "" && still != "" {
		return apart + "; " + still
	}
	return apart + still
}

// still lists the event streams that are stalled while their engines work.
func (x *Index) still() string {
	n, longest, which, now := 0, time.Duration(0), "", monotime.Now()
	for name, s := range *x.byName.Load() {
		if age := s.shown.behindBy(now); age > 0 && s.shown.stalled.Load() {
			n++
			if age > longest || age == longest && name < which {
				longest, which = age, name
			}
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("1 event stream is silent while its engine works: %s, up to %.1f s behind", which, longest.Seconds())
	}
	return fmt.Sprintf("%d event streams are silent while their engines work, up to %.1f s behind: %s, ...", n, longest.Seconds(), which)
}

// apart lists the event streams that are not shared.
func (x *Index) apart() string {
	var why string
	n := 0
	for name, s := range *x.byName.Load() {
		if r := s.shown.aside.Load(); x.log != nil && s.isMode() == plan.Direct && r != nil {
			n++
			if text := name + " because " + *r; why == "" || text < why {
				why = text
			}
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
		return "1 event stream is not shared: " + why
	}
	return fmt.Sprintf("%d event streams are not shared: %s, ...", n, why)
}

// StreamsRead returns how many event streams this replica reads, and how many there are.
func (x *Index) StreamsRead() (read, all int) {
	for _, s := range *x.byName.Load() {
		all++
		if s.shown.reads.Load() {
			read++
		}
	}
	return read, all
}

// SourceStatus is this replica's state of one event stream.
type SourceStatus struct {
	Name string
	Mode string // asking, direct, shared
	Read bool   // by this replica
	Log  cluster.SourceView
}

// Sources lists the event streams of a group, or none if nothing is shared.
func (x *Index) Sources() (out []SourceStatus) {
	if x.log == nil {
		return nil
	}
	for name, s := range *x.byName.Load() {
		st := SourceStatus{Name: name, Mode: s.isMode().String(), Read: s.shown.reads.Load()}
		st.Log, _ = x.log.Source(s.name)
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b SourceStatus) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Position returns a source's position in the group's log.
func (x *Index) Position(source string) cluster.Position {
	if s := (*x.byName.Load())[source]; s != nil {
		source = s.name
	}
	return x.log.Position(source)
}

// Followed returns how far this replica itself has read a source's stream.
func (x *Index) Followed(src block.Source) (events.Position, bool) { return x.events.Position(src) }
