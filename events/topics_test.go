package events

import (
	"encoding/binary"
	"testing"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/events/zmtp"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// runningProbes is the number of running topic probes.
func (m *Manager) runningProbes() int {
	m.topicProbes.mu.Lock()
	defer m.topicProbes.mu.Unlock()
	return m.topicProbes.busy
}

// A check finds the only topic under which a publisher sends batches. It finds nothing if some
// batches have the configured topic, if there are several topics, or if there are only other
// messages.
func TestOtherTopicIsFound(t *testing.T) {
	batch := encodeEvents([]decode.Event{{Kind: decode.AllBlocksCleared}})
	for _, c := range []struct {
		name  string
		read  string   // topic
		sends []string // topics, in turn
		want  string   // topic; "-": nothing is found
	}{
		{"another topic", "kv@", []string{"kv-events"}, "kv-events"},
		{"no topic", "kv@", []string{""}, ""},
		{"a prefix of it", "kv-events", []string{"kv-"}, "kv-"},
		{"the right one", "kv@", []string{"kv@10.0.0.1:8000@m"}, "-"},
		{"the right one among others", "kv@", []string{"load", "kv@10.0.0.1:8000@m"}, "-"},
		{"several", "kv@", []string{"a", "b"}, "-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := openReader(t, testOptions())
			pub, err := zmtp.ListenPub("tcp://127.0.0.1:0", zmtp.PubOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer pub.Close()
			at := []Stream{{Events: "tcp://" + pub.Addr().String(), Topic: c.read}}
			r.ProbeTopics(at)
			testkit.Await(t, "somebody looks", func() bool { return pub.Subscribers() == 1 })
			for i := 0; r.runningProbes() > 0; i++ {
				_ = pub.Send([]byte(c.sends[i%len(c.sends)]), binary.BigEndian.AppendUint64(nil, uint64(i)), batch)
			}
			got := r.TopicMismatch(at)
			if found := got != nil; found != (c.want != "-") || found && (got.Topic != c.want || got.At == 0) {
				t.Errorf("found %+v, want %q", got, c.want)
			}
			r.ProbeTopics(at)
			if r.runningProbes() > 0 {
				t.Error("it is looked at again at once")
			}
		})
	}
}

// Messages that are not batches do not count, whether or not their topic is right.
func TestOtherTopicBatchesOnly(t *testing.T) {
	r := openReader(t, testOptions())
	pub, err := zmtp.ListenPub("tcp://127.0.0.1:0", zmtp.PubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	at := []Stream{{Events: "tcp://" + pub.Addr().String(), Topic: "kv@"}}
	r.ProbeTopics(at)
	testkit.Await(t, "somebody looks", func() bool { return pub.Subscribers() == 1 })
	for i := 0; r.runningProbes() > 0; i++ { // until it has read its maximum of messages
		_ = pub.Send([]byte("load"), binary.BigEndian.AppendUint64(nil, uint64(i)), []byte("\x01nothing"))
	}
	if got := r.TopicMismatch(at); got != nil {
		t.Errorf("found %+v", got)
	}
}

// Streams that dial in, or that are read completely, are not checked. A hanging check ends with the
// manager. The number of concurrent checks is limited.
func TestOtherTopicIsBounded(t *testing.T) {
	r := openReader(t, testOptions())
	r.ProbeTopics([]Stream{{Events: "tcp://" + parts.FreeAddress(t)}, {Events: InboundFrom("10.0.0.1"), Topic: "kv@"}})
	if n := r.runningProbes(); n != 0 {
		t.Errorf("%d are looked at", n)
	}
	pub, err := zmtp.ListenPub("tcp://127.0.0.1:0", zmtp.PubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	for i := range 3 * maxTopicProbes {
		r.ProbeTopics([]Stream{{Rank: uint16(i), Events: "tcp://" + pub.Addr().String(), Topic: "kv@"}})
	}
	if n := r.runningProbes(); n != maxTopicProbes {
		t.Errorf("%d are looked at, want %d", n, maxTopicProbes)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if n := r.runningProbes(); n != 0 {
		t.Errorf("%d are looked at after the end", n)
	}
	r.ProbeTopics([]Stream{{Events: "tcp://" + pub.Addr().String(), Topic: "late"}})
	if n := r.runningProbes(); n != 0 {
		t.Errorf("%d are looked at after the end", n)
	}
}
