package events

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/events/zmtp"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// lockedBuffer is a log that a test may read while it grows.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A publisher without sequence numbers makes its endpoint unreadable at the first message.
// Messages that cannot be read are no sign of life, and are logged once. A message that can
// be read ends the state.
func TestMessagesWithoutSequenceNumbers(t *testing.T) {
	pub, err := zmtp.ListenPub("tcp://127.0.0.1:0", zmtp.PubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	var log lockedBuffer
	o := testOptions()
	o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r := openReader(t, o)
	r.follow(Stream{Events: "tcp://" + pub.Addr().String()})
	id := testSource.Endpoint
	testkit.Await(t, "a subscriber", func() bool { return pub.Subscribers() == 1 })
	send := func(frames ...[]byte) {
		t.Helper()
		if err := pub.Send(frames...); err != nil {
			t.Fatal(err)
		}
	}
	payload := []byte{0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x90, 0xc0}
	send([]byte("kv"), payload)
	testkit.Await(t, "the state unreadable", func() bool { return r.State(id) == knowledge.Unreadable })
	if why := r.Problem(id); !strings.HasPrefix(why, "unreadable: ") || !strings.Contains(why, "2 frames without a sequence number") {
		t.Errorf("reason %q, want the frames and what is missing", why)
	}
	if k := r.Knowledge(id); k.State != knowledge.Unreadable || k.Silent != 0 || r.LastEvent(id) != 0 {
		t.Errorf("knowledge %+v, last event at %d, want unreadable and no sign of life", k, r.LastEvent(id))
	}
	send([]byte("kv"), payload)
	send([]byte("kv"), binary.BigEndian.AppendUint64(nil, 0), payload)
	testkit.Await(t, "a followed stream", func() bool { return r.State(id).Followed() })
	if r.LastEvent(id) == 0 || r.Problem(id) != "" {
		t.Errorf("last event at %d, problem %q after a readable message", r.LastEvent(id), r.Problem(id))
	}
	send([]byte("kv"), payload) // one of many does not spoil the stream
	send([]byte("kv"), binary.BigEndian.AppendUint64(nil, 1), payload)
	if got := strings.Count(log.String(), "cannot be read"); got != 1 {
		t.Errorf("%d warnings, want one:\n%s", got, log.String())
	}
}
