package gossip

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/stream"
)

func FuzzMeta(f *testing.F) {
	f.Add(meta{Boot: 1, StreamPort: 2, StreamHost: "h", Fingerprint: stream.Fingerprint{3}, Name: "n", Version: "v"}.append(nil))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMeta(b)
		if err != nil {
			return
		}
		if len(m.StreamHost) > 128 || len(m.Name) > 128 || len(m.Version) > 128 {
			return // longer than this version writes
		}
		if again, err := parseMeta(append(m.append(nil), "added later"...)); err != nil || again != m {
			t.Errorf("%+v reads as %+v (%v)", m, again, err)
		}
	})
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
		t.Error("took no ID")
	}
	o := Options{Keys: [][]byte{[]byte("short")}}
	o.Self.ID = "a"
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "5 bytes") {
		t.Errorf("key of five bytes: %v", err)
	}
}
