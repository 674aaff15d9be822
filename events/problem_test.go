package events

import (
	"encoding/binary"
	"log/slog"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/events/zmtp"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// A stream that cannot be read, and a failing replay, are logged once, and returned by Problem
// while they last.
func TestFailureIsReported(t *testing.T) {
	log := new(parts.Output)
	o := testOptions()
	o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r := openReader(t, o)
	trouble := func(parts ...string) func() bool {
		return func() bool {
			text := r.Problem(testSource.Endpoint)
			for _, p := range parts {
				if !strings.Contains(text, p) {
					return false
				}
			}
			return len(parts) > 0 || text == ""
		}
	}
	e := newFakeEngine(t, 7)
	nowhere := "tcp://" + parts.FreeAddress(t)
	r.follow(Stream{Events: nowhere})
	const line = "event stream not connected, the endpoint is approximate"
	testkit.Await(t, "a warning", func() bool { return strings.Count(log.String(), line) == 1 })
	testkit.Await(t, "the trouble", trouble("event stream "+nowhere+" cannot be read", "refused"))
	_, failed := connects(r)
	testkit.Await(t, "more attempts", func() bool { _, n := connects(r); return n > failed+reportAfter })
	if n := strings.Count(log.String(), line); n != 1 {
		t.Errorf("logged %d times", n)
	}
	at := e.stream()
	at.Replay = nowhere
	r.follow(at)
	testkit.Await(t, "the subscription", func() bool { return e.pub.Subscribers() == 1 })
	e.publish(20)
	testkit.Await(t, "the next trouble", trouble("replay from "+nowhere+" failed"))
	testkit.Await(t, "a warning", func() bool { return strings.Count(log.String(), "replay failed") == 1 })
	router, err := zmtp.ListenRouter(nowhere, e.replay, zmtp.RouterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer router.Close()
	r.agrees(t, e)
	testkit.Await(t, "no trouble", trouble())
	if n := strings.Count(log.String(), "replay failed"); n != 1 {
		t.Errorf("a failed replay is logged %d times", n)
	}
}

// A replay that failed is no trouble any more once the engine has emptied its cache,
// with which all is known without one.
func TestFailureEndsWithEmptyCache(t *testing.T) {
	r, e := openReader(t, testOptions()), newFakeEngine(t, 7)
	at := e.stream()
	at.Replay = "tcp://" + parts.FreeAddress(t)
	r.follow(at)
	testkit.Await(t, "the subscription", func() bool { return e.pub.Subscribers() == 1 })
	e.publish(20)
	testkit.Await(t, "the trouble", func() bool { return strings.Contains(r.Problem(testSource.Endpoint), "replay from") })
	seq, emptied := uint64(20), encodeEvents([]decode.Event{{Kind: decode.AllBlocksCleared}})
	testkit.Await(t, "exact knowledge", func() bool {
		_ = e.pub.Send(nil, binary.BigEndian.AppendUint64(nil, seq), emptied)
		seq++
		return r.Knowledge(testSource.Endpoint).State.Followed()
	})
	testkit.Await(t, "no trouble", func() bool { return r.Problem(testSource.Endpoint) == "" })
}

// connects counts the attempts to connect.
func connects(r *reader) (ok, failed float64) {
	families, _ := r.reg.Gather()
	for _, f := range families {
		if f.GetName() != "grapevine_events_connects_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == resultOK {
				ok = m.GetCounter().GetValue()
			} else {
				failed = m.GetCounter().GetValue()
			}
		}
	}
	return ok, failed
}
