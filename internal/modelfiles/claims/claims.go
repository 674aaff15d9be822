package claims

import (
	"cmp"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Stage is a replica's progress with the files of a repository.
type Stage byte

// Stages, in order.
const (
	None    Stage = iota
	Wanted        // waits for the files and may download them
	Claimed       // downloads them unless a replica with a better claim appears within Settle
	Loading       // downloads them
	Ready         // has them and sends them to others
)

const (
	// Stall is the age at which a download without progress expires. It exceeds the time limits of a
	// request to the Hub.
	Stall = 45 * time.Second
	// Idle is the age at which the claims of earlier stages expire: a replica that is busy with other
	// models does not delay the others.
	Idle = 5 * time.Second
	// Settle is how long a replica claims a download before it begins. Claims that arrive within half
	// of it prevent a second download.
	Settle = time.Second
)

// File is a file in use.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Claim is one replica's claim to a revision of a repository.
type Claim struct {
	Stage  Stage
	Loaded int64  // bytes loaded so far
	Commit string // of the files; only if Ready
	Files  []File // only if Ready
}

// Peer is the claim of another replica.
type Peer struct {
	Member, Name string    // its ID and name
	Revision     string    // branch, tag or commit that it uses
	At           time.Time // of the claim's last change, by this replica's clock
	Claim
}

// Offers reports whether the peer has the files of a revision: it uses the same revision, or the
// revision is the commit of its files.
func (p *Peer) Offers(revision string) bool {
	return p.Stage == Ready && (p.Revision == revision || p.Commit == revision)
}

// Own is this replica's claim.
type Own struct {
	Member         string
	Repo, Revision string
	Stage          Stage
	At             time.Time // of the stage's beginning
}

// Action is the next step of a replica that lacks files.
type Action byte

// Actions.
const (
	Take    Action = iota // the files, from the peer
	Wait                  // for another replica, in stage Wanted
	Stay                  // in the same stage
	Contend               // enter stage Claimed
	Load                  // enter stage Loading
)

// Decide returns the next step of a replica. from is the peer to take the files from, or to wait
// for; nil if there is none. Decide does not check that the replica may download.
func Decide(own *Own, peers []Peer, now time.Time) (next Action, from *Peer) {
	var ahead *Peer
	for i := range peers {
		p := &peers[i]
		switch {
		case p.Offers(own.Revision):
			if from == nil || better(own.Repo, p, from) {
				from = p
			}
		case p.Revision != own.Revision || p.Stage == None || p.Stage == Ready || p.expired(now):
		case p.precedes(own) && (ahead == nil || p.Stage > ahead.Stage):
			ahead = p
		}
	}
	switch {
	case from != nil:
		return Take, from
	case ahead != nil:
		return Wait, ahead
	case own.Stage != Claimed:
		return Contend, nil
	case now.Sub(own.At) < Settle:
		return Stay, nil
	}
	return Load, nil
}

func (p *Peer) expired(now time.Time) bool {
	limit := Idle
	if p.Stage == Loading {
		limit = Stall
	}
	return now.Sub(p.At) >= limit
}

// precedes reports whether the peer downloads before this replica. A replica that loads precedes all
// others. Among replicas in the same stage, the order differs by repository, so that several models
// are downloaded by several replicas.
func (p *Peer) precedes(own *Own) bool {
	stage := max(own.Stage, Wanted)
	if p.Stage != stage {
		return p.Stage > stage
	}
	return before(own.Repo, p.Member, own.Member)
}

func before(repo, a, b string) bool {
	return cmp.Or(cmp.Compare(rank(repo, a), rank(repo, b)), cmp.Compare(a, b)) < 0
}

func rank(repo, member string) uint64 {
	return xxhash.Sum64String(member + "\x00" + repo)
}

// better reports whether a's files are preferred: more of them, then by order.
func better(repo string, a, b *Peer) bool {
	if len(a.Files) != len(b.Files) {
		return len(a.Files) > len(b.Files)
	}
	return before(repo, a.Member, b.Member)
}

// Conflict returns two peers that offer different content for the same file of a commit; nil if
// there are none.
func Conflict(peers []Peer, revision string) (a, b *Peer) {
	type file struct{ commit, name string }
	seen := map[file]int{}
	sums := map[file]string{}
	for i := range peers {
		if !peers[i].Offers(revision) {
			continue
		}
		for _, f := range peers[i].Files {
			k := file{peers[i].Commit, f.Name}
			if first, ok := seen[k]; ok && sums[k] != f.SHA256 {
				return &peers[first], &peers[i]
			} else if !ok {
				seen[k], sums[k] = i, f.SHA256
			}
		}
	}
	return nil, nil
}
