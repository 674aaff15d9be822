package claims

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

const (
	repo   = "org/m"
	commit = "0123456789abcdef0123456789abcdef01234567"
)

var start = time.Unix(1_800_000_000, 0)

// TestDecide states the next step for each situation.
func TestDecide(t *testing.T) {
	first, second := "a", "b"
	if before(repo, second, first) {
		first, second = second, first
	}
	peer := func(member string, stage Stage, age time.Duration) Peer {
		return Peer{Member: member, Revision: "main", At: start.Add(-age), Claim: Claim{Stage: stage}}
	}
	ready := func(member, revision, commit string, files int) Peer {
		return Peer{Member: member, Revision: revision, Claim: Claim{Stage: Ready, Commit: commit, Files: make([]File, files)}}
	}
	for name, c := range map[string]struct {
		own      string
		stage    Stage
		age      time.Duration
		revision string
		peers    []Peer
		want     Action
		from     string
	}{
		"alone":                              {want: Contend},
		"alone, just claimed":                {stage: Claimed, age: Settle - 1, want: Stay},
		"alone, claim settled":               {stage: Claimed, age: Settle, want: Load},
		"a peer has the files":               {stage: Claimed, peers: []Peer{peer("x", Loading, 0), ready("y", "main", commit, 1)}, want: Take, from: "y"},
		"the peer with most files":           {peers: []Peer{ready("x", "main", commit, 1), ready("y", "main", commit, 2)}, want: Take, from: "y"},
		"a peer with another branch":         {peers: []Peer{ready("x", "v2", commit, 1)}, want: Contend},
		"the commit of another branch":       {revision: commit, peers: []Peer{ready("x", "v2", commit, 1)}, want: Take, from: "x"},
		"another commit":                     {revision: strings.Repeat("f", 40), peers: []Peer{ready("x", "main", commit, 1)}, want: Contend},
		"a peer loads":                       {stage: Claimed, age: Settle, peers: []Peer{peer("x", Loading, 0)}, want: Wait, from: "x"},
		"a peer loads another branch":        {revision: "v2", peers: []Peer{peer("x", Loading, 0)}, want: Contend},
		"a peer has stalled":                 {peers: []Peer{peer("x", Loading, Stall)}, want: Contend},
		"a peer is slow":                     {peers: []Peer{peer("x", Loading, Stall-1)}, want: Wait, from: "x"},
		"a peer has claimed":                 {stage: Wanted, peers: []Peer{peer("x", Claimed, 0)}, want: Wait, from: "x"},
		"the first of two claims":            {own: first, stage: Claimed, age: Settle, peers: []Peer{peer(second, Claimed, 0)}, want: Load},
		"the second of two claims":           {own: second, stage: Claimed, age: Settle, peers: []Peer{peer(first, Claimed, 0)}, want: Wait, from: first},
		"the first that wants":               {own: first, stage: Wanted, peers: []Peer{peer(second, Wanted, 0)}, want: Contend},
		"the second that wants":              {own: second, stage: Wanted, peers: []Peer{peer(first, Wanted, 0)}, want: Wait, from: first},
		"the second, without a stage":        {own: second, peers: []Peer{peer(first, Wanted, 0)}, want: Wait, from: first},
		"the first does nothing":             {own: second, stage: Wanted, peers: []Peer{peer(first, Wanted, Idle)}, want: Contend},
		"a claim is better than a wish":      {own: second, stage: Claimed, age: Settle, peers: []Peer{peer(first, Wanted, 0)}, want: Load},
		"the furthest peer is reported":      {own: second, peers: []Peer{peer(first, Wanted, 0), peer("x", Loading, 0)}, want: Wait, from: "x"},
		"a peer that has it, but of nothing": {peers: []Peer{peer("x", None, 0)}, want: Contend},
	} {
		own := Own{Member: c.own, Repo: repo, Revision: c.revision, Stage: c.stage, At: start.Add(-c.age)}
		if own.Revision == "" {
			own.Revision = "main"
		}
		got, from := Decide(&own, c.peers, start)
		member := ""
		if from != nil {
			member = from.Member
		}
		if got != c.want || member != c.from {
			t.Errorf("%s: Decide() = %d from %q, want %d from %q", name, got, member, c.want, c.from)
		}
	}
}

// TestOneLoads: replicas that see each other's claims with any delay up to Settle/2 never load the same
// files together, and one loads within a bounded time, also after the replica that loads has died.
func TestOneLoads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const step = 10 * time.Millisecond
		n := rapid.IntRange(1, 4).Draw(t, "replicas")
		delay := time.Duration(rapid.IntRange(0, int(Settle/2/step)).Draw(t, "delay")) * step
		type change struct {
			at    time.Time
			stage Stage
		}
		own, log, dead := make([]Own, n), make([][]change, n), make([]bool, n)
		begin := make([]time.Time, n)
		for i := range n {
			own[i] = Own{Member: fmt.Sprint("m", i), Repo: repo, Revision: "main"}
			begin[i] = start.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "begin")) * step)
		}
		loads := 0
		// Each turn takes a second of loading, a claim that settles, and the delays until others know.
		limit := 2*time.Second + time.Duration(n)*(time.Second+Settle+2*delay)
		for now := start; now.Sub(start) < limit; now = now.Add(step) {
			for i := range n {
				if dead[i] || now.Before(begin[i]) || own[i].Stage == Loading {
					continue
				}
				var peers []Peer
				for k := range n {
					p := Peer{Member: own[k].Member, Revision: "main"}
					for _, c := range log[k] {
						if !c.at.Add(delay).After(now) {
							p.Stage, p.At = c.stage, c.at.Add(delay)
						}
					}
					if k != i && p.Stage != None {
						peers = append(peers, p)
					}
				}
				next, _ := Decide(&own[i], peers, now)
				stage := map[Action]Stage{Wait: Wanted, Stay: own[i].Stage, Contend: Claimed, Load: Loading}[next]
				if stage != own[i].Stage {
					own[i].Stage, own[i].At = stage, now
					log[i] = append(log[i], change{now, stage})
				}
			}
			loading := 0
			for i := range n {
				if own[i].Stage == Loading && !dead[i] {
					if loading++; loading > 1 {
						t.Fatalf("%d replicas load at %s", loading, now.Sub(start))
					}
					if now.Sub(own[i].At) > time.Second { // it dies in the middle of the download
						dead[i], own[i].Stage = true, None
						log[i] = append(log[i], change{now, None})
						loads++
					}
				}
			}
		}
		if loads != n {
			t.Fatalf("%d of %d replicas have loaded in turn", loads, n)
		}
	})
}

// TestConflict: offers of one commit with different content are found, others are no conflict.
func TestConflict(t *testing.T) {
	offer := func(member, commit, name, sum string) Peer {
		return Peer{Member: member, Revision: "main", Claim: Claim{Stage: Ready, Commit: commit, Files: []File{{Name: name, SHA256: sum}}}}
	}
	for _, c := range []struct {
		peers []Peer
		want  bool
	}{
		{[]Peer{offer("a", "c", "x", "1"), offer("b", "c", "x", "1"), offer("d", "c", "y", "2")}, false},
		{[]Peer{offer("a", "c", "x", "1"), offer("b", "e", "x", "2")}, false},
		{[]Peer{offer("a", "c", "x", "1"), offer("b", "c", "y", "2"), offer("d", "c", "x", "2")}, true},
	} {
		if a, b := Conflict(c.peers, "main"); (a != nil) != c.want || c.want && (a.Member != "a" || b.Member != "d") {
			t.Errorf("Conflict(%+v) = %v, %v, want found: %t", c.peers, a, b, c.want)
		}
	}
}

// FuzzClaim decodes any claim. Accepted claims are bounded, and encode to the same claim.
func FuzzClaim(f *testing.F) {
	for _, c := range []Claim{
		{Stage: Wanted}, {Stage: Loading, Loaded: 1 << 20},
		{Stage: Ready, Commit: commit, Files: []File{{"tokenizer.json", 7, strings.Repeat("ab", 32)}, {"config.json", 0, strings.Repeat("00", 32)}}},
	} {
		f.Add(c.Append(nil))
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		c, err := Read(b)
		if err != nil {
			return
		}
		if len(c.Files) > maxFiles || c.Stage == None || c.Loaded < 0 || len(c.Commit) > maxCommit {
			t.Errorf("accepted %+v", c)
		}
		if again, err := Read(c.Append(nil)); err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%+v encodes to %+v, %v", c, again, err)
		}
	})
}
