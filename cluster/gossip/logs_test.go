package gossip

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Warnings that differ only in names and addresses are logged once a minute, regardless of how many
// nodes or unknown senders cause them.
func TestMemberlistWarnsOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newMemberlistLog(slog.New(slog.NewTextHandler(&out, nil)))
		lines := func() int {
			n := strings.Count(out.String(), "\n")
			out.Reset()
			return n
		}
		write := func(format string, a ...any) {
			if _, err := fmt.Fprintf(l, "[WARN] memberlist: "+format+"\n", a...); err != nil {
				t.Fatal(err)
			}
		}
		ping := func() {
			for i := range 100 {
				write("Got ping for unexpected node 'replica-%d' from=127.0.0.1:%d", i, 20000+i)
			}
		}
		ping()
		if n := lines(); n != 1 {
			t.Errorf("100 similar warnings produced %d lines", n)
		}
		write("Failed fallback TCP ping: EOF")
		if n := lines(); n != 1 {
			t.Errorf("another warning produced %d lines", n)
		}
		time.Sleep(repeatPause)
		ping()
		if got := out.String(); !strings.Contains(got, "left_out=99") || lines() != 1 {
			t.Errorf("a minute later: %q", got)
		}
		for i := range 1000 {
			write("%s kind of trouble", strings.Repeat("x", i+1))
		}
		if n := lines(); n > repeatKinds {
			t.Errorf("1000 different warnings produced %d lines", n)
		}
		write("Decrypt packet failed from=10.0.0.1:5")
		if n := lines(); n != 0 || l.refused[refusedKey] != 1 {
			t.Errorf("packet from an unknown sender produced %d lines, refused %v", n, l.refused)
		}
	})
}

// Packet loss is not reported as blocked UDP.
func TestUDPIsBlockedOrLossy(t *testing.T) {
	l := newMemberlistLog(slog.New(slog.DiscardHandler))
	lose := func(member string) {
		_, _ = fmt.Fprintf(l, "[WARN] memberlist: Was able to connect to %s over TCP but UDP probes failed, network may be misconfigured\n", member)
	}
	blocked := func(want bool, what string) {
		t.Helper()
		if _, got := l.state(); got != want {
			t.Errorf("%s: blocked = %v", what, got)
		}
	}
	for i := range 500 { // 20% loss: a few consecutive probes fail, never many
		for range i % udpOften {
			lose("Pod-a")
		}
		l.probed("Pod-a")
		blocked(false, "one of some probes gets through")
	}
	for range udpOften - 1 {
		lose("Pod-a")
		lose("pod-b")
	}
	blocked(false, "some probes of each")
	l.probed("pod-b")
	lose("Pod-a")
	blocked(true, "none of many")
	l.probed("Pod-a")
	blocked(false, "it gets through again")
}
