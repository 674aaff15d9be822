package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

var (
	wholeTable = flag.Bool("cluster.traffic", false, "simulate the whole table of traffic")
	oneCell    = flag.String("cluster.cell", "", "simulate one cell of it: replicas, engines, time between an engine's batches (0: idle), such as 100,512,10s")
)

// Overhead of a frame on the network (TCP/IP, TLS, HTTP/2, gRPC), and the size of an engine's
// batch, as measured on vLLM's streams with one or two blocks per batch.
const (
	framing   = 100
	batchWire = 268
)

// flow is a group's traffic and load per second.
type flow struct {
	deltas, claims, beats float64 // bytes, including overhead
	everybody             float64 // bytes if every replica read every engine
	// Per replica, including its part of the simulated network: CPU seconds per second, and live
	// heap bytes.
	cpu, live float64
}

// spent returns this process's CPU time.
func spent() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// live returns the heap bytes in use.
func live() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// traffic simulates a group of r replicas that share the streams of n engines. Each engine writes a
// batch per every, or never if it is 0.
func traffic(t *testing.T, r, n int, every time.Duration) flow {
	t.Helper()
	var bytes [256]float64
	empty := live()
	p := Plan{
		Seed: 1, Members: r, Sources: n, Every: every, Share: group.SharePartitioned, Name: "10.20.30.%d:8000/0",
		Net:   Conditions{Delay: 200 * time.Microsecond},
		Frame: func(_, _ int, f []byte) []byte { bytes[f[2]] += float64(len(f) + framing); return f },
	}
	w := New(p)
	w.StartAll()
	w.Run(max(8*time.Second, 4*every)) // until every engine has written and the batches were sent
	bytes = [256]float64{}
	before := w.Stats.Batches
	const window = 20
	begun := spent()
	w.Run(window * time.Second)
	f := flow{
		cpu: (spent() - begun).Seconds() / window / float64(r), live: (live() - empty) / float64(r),
		deltas: bytes[group.KindDelta] / window, claims: (bytes[group.KindDigest] + bytes[group.KindTips] + bytes[group.KindMissed]) / window,
		beats: bytes[group.KindBeat] / window, everybody: float64(w.Stats.Batches-before) / window * float64(r) * batchWire,
	}
	for kind := range bytes {
		switch kind {
		case group.KindDelta, group.KindDigest, group.KindTips, group.KindMissed, group.KindBeat:
		default:
			if bytes[kind] > 0 {
				t.Errorf("%d replicas, %d engines: %.0f bytes of kind %d, in a group at rest", r, n, bytes[kind], kind)
			}
		}
	}
	if fs := w.Failures(); len(fs) > 0 {
		t.Error(fs)
	}
	return f
}

// manual holds the formulas in docs/clustering.md, for a group of n replicas and b batches per
// second. The byte counts are parsed from the page.
type manual struct{ message, claim, beat float64 }

func readManual(t *testing.T) (m manual) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/clustering.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct {
		formula string // per replica, with a verb for the bytes
		to      *float64
	}{
		{"| with b batches per second: b/n × (n−1) × %g |", &m.message},
		{"| min(b, streams/10)/n × (n−1) × %g |", &m.claim},
		{"| (n−1) × %g / min(max(0.2, (n−1) × 0.025), 0.75) |", &m.beat},
	} {
		before, after, _ := strings.Cut(f.formula, "%g")
		_, rest, ok := strings.Cut(string(text), before)
		number, _, ends := strings.Cut(rest, after)
		if *f.to, err = strconv.ParseFloat(number, 64); !ok || !ends || err != nil {
			t.Fatalf("docs/clustering.md has no formula like %q: %v", f.formula, err)
		}
	}
	return m
}

func (m manual) deltas(n int, b float64) float64 { return b * float64(n-1) * m.message }

func (m manual) claims(n, streams int, b float64) float64 {
	return min(b, float64(streams)/10) * float64(n-1) * m.claim
}

// beats is the heartbeat traffic of an idle group.
func (m manual) beats(n int) float64 {
	peers := float64(n - 1)
	return float64(n) * peers * m.beat / min(max(.2, peers*.025), .75)
}

// TestTraffic checks docs/clustering.md on the traffic between replicas: each delta is sent to
// every other replica once, claims are rare, and idle sources cost nothing. Sharing costs at most
// half of the saved traffic, or 5 kB/s per replica. That counts deltas, claims, and the heartbeats
// in excess of an idle group's, since other traffic replaces heartbeats.
func TestTraffic(t *testing.T) {
	parts.Full(t)
	type cell struct {
		r, n  int
		every time.Duration
	}
	formulas := readManual(t)
	cells := []cell{{3, 64, 0}, {3, 64, time.Second}, {9, 128, 500 * time.Millisecond}, {9, 64, 10 * time.Second}, {9, 512, 10 * time.Second}, {30, 64, time.Second}, {30, 64, 5 * time.Second}}
	if *wholeTable {
		cells = nil
		for _, r := range []int{3, 9, 30} {
			for _, n := range []int{64, 512, 2048} {
				for _, every := range []time.Duration{0, 10 * time.Second, time.Second} {
					cells = append(cells, cell{r, n, every})
				}
			}
		}
	}
	if *oneCell != "" {
		c, wait := cell{}, ""
		if _, err := fmt.Sscanf(strings.ReplaceAll(*oneCell, ",", " "), "%d %d %s", &c.r, &c.n, &wait); err != nil {
			t.Fatal(err)
		}
		var err error
		if c.every, err = time.ParseDuration(wait); err != nil {
			t.Fatal(err)
		}
		cells = []cell{c}
	}
	for _, c := range cells {
		f := traffic(t, c.r, c.n, c.every)
		rate := 0.0
		if c.every > 0 {
			rate = f.everybody / batchWire / float64(c.r) // batches per second
		}
		line := fmt.Sprintf("%2d replicas, %4d engines, %6.1f batches/s: deltas %8.1f kB/s, claims %7.1f kB/s, heartbeats %6.1f kB/s; each reads everything %8.1f kB/s; %.4f cores and %.1f MB a replica",
			c.r, c.n, rate, f.deltas/1e3, f.claims/1e3, f.beats/1e3, f.everybody/1e3, f.cpu, f.live/1e6)
		t.Log(line)
		if want := formulas.deltas(c.r, rate); f.deltas > want || f.deltas < want/4 {
			t.Errorf("%s: deltas %.0f according to the page", line, want)
		}
		if want := formulas.claims(c.r, c.n, rate); f.claims > want {
			t.Errorf("%s: claims %.0f according to the page", line, want)
		}
		rest := formulas.beats(c.r)
		if f.beats > rest*1.05 || f.beats < rest/3 || c.every == 0 && f.beats < rest*.9 {
			t.Errorf("%s: idle heartbeats %.0f according to the page", line, rest)
		}
		limit := max(f.everybody/2, float64(c.r)*5e3)
		if added, alone := f.deltas+f.claims+f.beats-rest, f.deltas+f.claims; added > limit || alone > limit {
			t.Errorf("%s: %.1f kB/s are added to heartbeats at rest, %.1f without heartbeats: more than half of that, and more than 5 kB/s for each replica",
				line, added/1e3, alone/1e3)
		}
	}
}
