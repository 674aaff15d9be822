package link_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestOneFloods: a cluster that opens more and more connections gets at most its share, and another
// one is still answered.
func TestOneFloods(t *testing.T) {
	ca := fixture(t)
	ca.issue(t, "c")
	a := exporter(t, tlsConfig(ca, "a", trusted("b"), trusted("c")), "a-0")
	config := ca.member(t, "c")
	for range 128 + 16 {
		c, err := tls.Dial("tcp", a.Addr().String(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	await(t, "refused", a, func(*federation.View) bool { return a.Status().Refused["connections"] >= 16 })
	b := open(t, tlsConfig(ca, "b", trusted("a", a.Addr().String())), "b-0")
	await(t, "held there", b, holds)
	if n := a.Status().Refused["connections"]; n != 16 {
		t.Errorf("%d connections rejected, want 16", n)
	}
}

// few opens an exporter with a limit of eight connections, including four for unauthenticated
// peers.
func few(t *testing.T, c *link.Config, log *slog.Logger) *link.Link {
	t.Helper()
	l, err := link.Open(link.Options{Config: c, Replica: "a-0", Connections: 8, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	l.Hot(pool).Touch(l.View().Secret.Chain("m", prompt, nil))
	l.SetExports([]federation.Export{{Pool: pool, Ready: []federation.Ready{{Model: "m", Count: 2}}}})
	return l
}

// TestSilentUnknownPeers: any number of silent, unauthenticated connections keeps no cluster out and
// is counted. The log has no line per connection.
func TestSilentUnknownPeers(t *testing.T) {
	ca := fixture(t)
	var log parts.Output
	a := few(t, tlsConfig(ca, "a", trusted("b")), slog.New(slog.NewTextHandler(&log, nil)))
	const strangers = 200
	for range strangers {
		c, err := net.Dial("tcp", a.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	// Those above four are closed immediately; the last four time out.
	await(t, "counted", a, func(*federation.View) bool { return a.Status().Refused["connections"] >= strangers-4 })
	c, err := tls.Dial("tcp", a.Addr().String(), ca.member(t, "b"))
	if err != nil {
		t.Fatalf("unauthenticated connections keep a cluster out: %v", err)
	}
	defer c.Close()
	b := open(t, tlsConfig(ca, "b", trusted("a", a.Addr().String())), "b-0")
	await(t, "held beside strangers", b, holds)
	if n := strings.Count(log.String(), "\n"); n > 8 {
		t.Errorf("%d lines in the log:\n%s", n, log.String())
	}
}

// TestHostileCluster: a configured cluster that sends garbage, oversized frames or duplicates, or
// reads nothing, is disconnected. Another one is still answered.
func TestHostileCluster(t *testing.T) {
	ca := fixture(t)
	ca.issue(t, "c")
	a := few(t, tlsConfig(ca, "a", trusted("b"), trusted("c")), nil)
	config := ca.member(t, "c")
	frame := func(n int, b []byte) []byte { return append(binary.LittleEndian.AppendUint32(nil, uint32(n)), b...) }
	garbage := frame(federation.MaxMessage, bytes.Repeat([]byte{0xa5}, federation.MaxMessage))
	before := runtime.NumGoroutine()
	for _, f := range []struct {
		name  string
		bytes []byte
		cut   bool // the connection is closed because of it
	}{
		{"a frame larger than any message", frame(1<<32-1, nil), true},
		{"a frame one byte too large", frame(federation.MaxMessage+1, nil), true},
		{"empty frames", bytes.Repeat(frame(0, nil), 10_000), false},
		{"garbage", bytes.Repeat(garbage, 20), false},
		{"the beginning of a frame", frame(1000, []byte("x")), false},
	} {
		c, err := tls.Dial("tcp", a.Addr().String(), config)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := c.Write(f.bytes); err != nil && !f.cut {
			t.Errorf("%s: %v", f.name, err)
		}
		if f.cut {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Errorf("%s: got an answer", f.name)
			}
		}
		c.Close()
	}
	b := open(t, tlsConfig(ca, "b", trusted("a", a.Addr().String())), "b-0")
	await(t, "held beside a hostile cluster", b, holds)
	for _, c := range a.Status().Clusters {
		if c.Name == "c" && (c.Sessions != 0 || len(c.Pools) != 0) {
			t.Errorf("garbage was accepted: %+v", c)
		}
	}
	if !testkit.PollUntil(func() bool { return runtime.NumGoroutine() < before+20 }) {
		t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
	}
}

// TestPacedMember: messages of a cluster that sends at full speed are read at its pace and counted.
// Another cluster is still answered.
func TestPacedMember(t *testing.T) {
	ca := fixture(t)
	ca.issue(t, "c")
	a := exporter(t, tlsConfig(ca, "a", trusted("b"), trusted("c")), "a-0")
	begun := time.Now()
	for range 2 {
		c, err := tls.Dial("tcp", a.Addr().String(), ca.member(t, "c"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			many := bytes.Repeat(binary.LittleEndian.AppendUint32(nil, 0), 1000) // not valid messages
			for err := error(nil); err == nil; {
				_, err = c.Write(many)
			}
		}()
	}
	b := open(t, tlsConfig(ca, "b", trusted("a", a.Addr().String())), "b-0")
	await(t, "held beside it", b, holds)
	const perSecond = 6 << 10 // messages, each counted as a kilobyte: 6 MiB
	testkit.Eventually(t, func() string {
		n := a.Status().Refused[federation.RefusedMalformed]
		if most := uint64((time.Since(begun).Seconds()+1)*perSecond) + 2; n > most {
			t.Fatalf("%d messages accepted, want at most %d", n, most)
		}
		if n <= perSecond*3/2 {
			return "no more than the messages that may come at once have come"
		}
		return ""
	})
}
