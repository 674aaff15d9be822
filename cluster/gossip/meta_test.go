package gossip

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/stream"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

func FuzzMeta(f *testing.F) {
	f.Add(meta{Boot: 1, StreamPort: 2, StreamHost: "h", Fingerprint: stream.Fingerprint{3}, Name: "n", Version: "v", Zone: "z"}.append(nil))
	f.Add([]byte{1, 2, 3})
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		m, err := parseMeta(b)
		if err != nil {
			return
		}
		if len(m.StreamHost) > 128 || len(m.Name) > 128 || len(m.Version) > 128 || len(m.Zone) > 128 {
			return // longer than this version writes
		}
		if again, err := parseMeta(append(m.append(nil), "added later"...)); err != nil || again != m {
			t.Errorf("%+v decodes as %+v (%v)", m, again, err)
		}
	})
}

// A member of a release without zones has no zone.
func TestMetaWithoutZone(t *testing.T) {
	m := meta{Boot: 1, StreamPort: 2, StreamHost: "h", Name: "n", Version: "v"}
	b := m.append(nil)
	if got, err := parseMeta(b[:len(b)-1]); err != nil || got != m {
		t.Errorf("%+v decodes as %+v (%v)", m, got, err)
	}
}

// TestDeparted: departed members are contacted at growing intervals, a few at a time, and finally
// dropped. Memory is bounded.
func TestDeparted(t *testing.T) {
	var d departed
	start := time.Unix(1000, 0)
	for i := range maxDeparted + 10 {
		d.add(fmt.Sprintf("10.0.0.%d:7946", i), start)
	}
	asked := map[string]int{}
	for s := range 1800 {
		due := d.due(start.Add(time.Duration(s+1)*time.Second), 15*time.Second)
		if len(due) > maxDue {
			t.Fatalf("%d addresses due at once", len(due))
		}
		for _, a := range due {
			asked[a]++
		}
	}
	if len(asked) != maxDeparted {
		t.Errorf("%d addresses contacted, want %d", len(asked), maxDeparted)
	}
	for a, n := range asked {
		if n < 30 || n > 250 {
			t.Errorf("%s was contacted %d times in half an hour", a, n)
		}
	}
	d.remove("10.0.0.73:7946")
	if len(d.of) != maxDeparted-1 {
		t.Errorf("%d addresses kept", len(d.of))
	}
	d.due(start.Add(forgetDeparted+time.Second), time.Second)
	if len(d.of) != 0 {
		t.Errorf("%d addresses never dropped", len(d.of))
	}
}

// TestDepartedAreManifold: if the list is full of long-gone pods, a member that just left is
// contacted before them, and they are still contacted too.
func TestDepartedAreManifold(t *testing.T) {
	var d departed
	start := time.Unix(1000, 0)
	for i := range 3 * maxDeparted {
		d.add(fmt.Sprintf("10.0.%d.%d:7946", i/maxDeparted, i%maxDeparted), start.Add(time.Duration(i)*time.Second))
	}
	now := start.Add(10 * time.Minute)
	for s := range 600 {
		d.due(start.Add(time.Duration(s)*time.Second), 15*time.Second)
	}
	back := []string{"10.1.0.1:7946", "10.1.0.2:7946"}
	for _, a := range back {
		d.add(a, now)
	}
	if len(d.of) != maxDeparted {
		t.Errorf("%d addresses kept", len(d.of))
	}
	asked := map[string]int{}
	for s := range 60 {
		due := d.due(now.Add(time.Duration(s+1)*time.Second), 15*time.Second)
		for _, a := range due {
			asked[a]++
		}
		if s == 0 && (len(due) != maxDue || !slices.Contains(due[:2], back[0]) || !slices.Contains(due[:2], back[1])) {
			t.Errorf("first contacted %v", due)
		}
	}
	for _, a := range back {
		if asked[a] < 10 {
			t.Errorf("%s was contacted %d times in a minute", a, asked[a])
		}
	}
	if len(asked) != maxDeparted {
		t.Errorf("%d addresses contacted, want %d", len(asked), maxDeparted)
	}
	for a := range asked {
		if strings.HasPrefix(a, "10.0.0.") {
			t.Errorf("%s is kept, but later departures are not", a)
		}
	}
}

func TestHostPort(t *testing.T) {
	for _, tc := range []struct {
		in, host string
		port     int
		bad      bool
	}{
		{"10.0.0.1:1", "10.0.0.1", 1, false},
		{"10.0.0.1", "10.0.0.1", 7946, false},
		{"replicas.svc", "replicas.svc", 7946, false},
		{"[::1]:2", "::1", 2, false},
		{"::1", "::1", 7946, false},
		{"a:b:c", "", 0, true},
		{"a:99999", "", 0, true},
	} {
		host, port, err := hostPort(tc.in, DefaultPort)
		if (err != nil) != tc.bad || host != tc.host || port != tc.port {
			t.Errorf("%q: %q %d %v", tc.in, host, port, err)
		}
	}
}

func TestOptions(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("accepted an empty ID")
	}
	o := Options{Keys: [][]byte{[]byte("short")}}
	o.Self.ID = "a"
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "5 bytes") {
		t.Errorf("key of five bytes: %v", err)
	}
}
