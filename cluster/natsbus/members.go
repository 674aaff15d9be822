package natsbus

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
)

// heartbeat is a member's self-description. Fields are only added at the end.
type heartbeat struct {
	Seq           uint64
	Bye           bool
	Name, Version string
	Addr          string // the server it is connected to
	Answers       bool   // it answers proof requests
	Zone          string
}

const (
	flagBye     = 1 << iota // it is leaving
	flagAnswers             // Answers
)

var errHeartbeat = errors.New("natsbus: malformed heartbeat")

func (h heartbeat) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, h.Seq)
	flags := byte(0)
	if h.Bye {
		flags |= flagBye
	}
	if h.Answers {
		flags |= flagAnswers
	}
	b = append(b, flags)
	for _, s := range [...]string{h.Name, h.Version, h.Addr, h.Zone} {
		s = s[:min(len(s), maxField)]
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	return b
}

func parseHeartbeat(b []byte) (h heartbeat, err error) {
	if len(b) < 9 {
		return h, errHeartbeat
	}
	h.Seq, h.Bye, h.Answers = binary.LittleEndian.Uint64(b), b[8]&flagBye != 0, b[8]&flagAnswers != 0
	b = b[9:]
	for _, s := range [...]*string{&h.Name, &h.Version, &h.Addr} {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return h, errHeartbeat
		}
		n := 1 + int(b[0])
		*s, b = string(b[1:n]), b[n:]
	}
	if len(b) > 0 && len(b) >= 1+int(b[0]) { // older members omit it
		h.Zone = string(b[1 : 1+int(b[0])])
	}
	return h, nil
}

// silent is how many missed heartbeats remove a member.
const silent = 4

// roster is the list of members with recent heartbeats. Not safe for concurrent use.
type roster struct {
	self    string
	members map[string]*seen
	// past holds the last heartbeat of departed processes, so that a replayed one does not add them
	// again.
	past map[process]seen
}

type process struct {
	id   string
	boot uint64
}

type seen struct {
	cluster.Member
	seq uint64
	at  time.Time
}

const maxPast = 256

func newRoster(self string) *roster {
	return &roster{self: self, members: map[string]*seen{}, past: map[process]seen{}}
}

// hear handles a heartbeat and reports whether the roster changed.
func (r *roster) hear(from string, boot uint64, h heartbeat, now time.Time) (changed bool) {
	if from == r.self {
		return false
	}
	if was, ok := r.past[process{from, boot}]; ok && h.Seq <= was.seq {
		return false
	}
	m := r.members[from]
	if m != nil && m.Boot == boot && h.Seq <= m.seq {
		return false
	}
	if h.Bye {
		return m != nil && m.Boot == boot && r.remove(from, h.Seq)
	}
	if m != nil && m.Boot != boot {
		r.remove(from, m.seq)
		m = nil
	}
	if m == nil {
		m = &seen{Member: cluster.Member{ID: from, Boot: boot}}
		r.members[from] = m
		changed = true
	}
	changed = changed || m.Name != h.Name || m.Version != h.Version || m.Addr != h.Addr || m.Zone != h.Zone
	m.Name, m.Version, m.Addr, m.Zone, m.seq, m.at = h.Name, h.Version, h.Addr, h.Zone, h.Seq, now
	return changed
}

func (r *roster) remove(id string, seq uint64) bool {
	m := r.members[id]
	delete(r.members, id)
	if len(r.past) >= maxPast {
		clear(r.past)
	}
	m.seq = max(m.seq, seq)
	r.past[process{id, m.Boot}] = *m
	return true
}

// expire removes members without a heartbeat since before.
func (r *roster) expire(before time.Time) (changed bool) {
	for id, m := range r.members {
		if m.at.Before(before) {
			changed = r.remove(id, m.seq)
		}
	}
	return changed
}

// refresh renews the lease of all members.
func (r *roster) refresh(now time.Time) {
	for _, m := range r.members {
		m.at = now
	}
}

// list returns the members by ID.
func (r *roster) list() []cluster.Member {
	out := make([]cluster.Member, 0, len(r.members))
	for _, m := range r.members {
		out = append(out, m.Member)
	}
	slices.SortFunc(out, func(a, b cluster.Member) int { return strings.Compare(a.ID, b.ID) })
	return out
}
