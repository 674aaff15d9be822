package events

import (
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/events/eventtest"
	"github.com/grapevine-epp/grapevine/events/order"
	"github.com/grapevine-epp/grapevine/events/zmtp"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

type reply struct{ Batch, End []string }

// frameVectors are the frames around batches, as engines send them.
type frameVectors struct {
	Pub      []string `json:"pub"`
	Request  []string `json:"replay_request_dealer_sends"`
	WithName reply    `json:"replay_reply_dealer_sees_5_frame_router"`
	Plain    reply    `json:"replay_reply_dealer_sees_4_frame_router"`
}

func frames(tb testing.TB, list []string) [][]byte {
	var out [][]byte
	for _, f := range list {
		out = append(out, eventtest.Unhex(tb, f))
	}
	return out
}

// TestFrameVectors sends the golden frames over real sockets: the request is
// the one that engines expect, and both shapes of reply are understood.
func TestFrameVectors(t *testing.T) {
	var v frameVectors
	if err := json.Unmarshal(eventtest.Load(t).Frames, &v); err != nil {
		t.Fatal(err)
	}
	asked := make(chan []string, 9)
	var shape reply
	router, err := zmtp.ListenRouter("tcp://127.0.0.1:0", func(c *zmtp.RouterConn, request [][]byte) {
		var seen []string
		for _, f := range request {
			seen = append(seen, hex.EncodeToString(f))
		}
		asked <- seen
		_ = c.Send(frames(t, shape.Batch)...)
		_ = c.Send(frames(t, shape.End)...)
	}, zmtp.RouterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer router.Close()
	for _, shape = range []reply{v.WithName, v.Plain} {
		r := openReader(t, testOptions())
		s := newSubscriber(r.Manager, &EndpointSource{Model: testModel}, Stream{Replay: "tcp://" + router.Addr().String()})
		s.order.Connected() // asks for a replay of everything, as attempt 1
		if err := s.fetch(t.Context(), 1, 5); err != nil {
			t.Fatal(err)
		}
		if request := <-asked; len(request) != 2 || request[0] != v.Request[0] || request[1] != v.Request[1] {
			t.Errorf("request %q, want %q", request, v.Request)
		}
		if p := s.position(); p.Seq != 6 || p.Sum != order.Sum(eventtest.Unhex(t, v.Plain.Batch[2])) || s.tr.Stats().Clears != 1 {
			t.Errorf("%+v after the replay, %+v", p, s.tr.Stats())
		}
	}

	pub, err := zmtp.ListenPub("tcp://127.0.0.1:0", zmtp.PubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	conn, err := zmtp.Dial(t.Context(), pub.Addr().String(), zmtp.Options{Handshake: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.Subscribe("kv@")
	testkit.Await(t, "the subscription", func() bool { return pub.Subscribers() == 1 })
	_ = pub.Send(frames(t, v.Pub)...)
	var m zmtp.Message
	conn.SetRecvDeadline(time.Now().Add(patience))
	if err := conn.Recv(&m); err != nil {
		t.Fatal(err)
	}
	if seq, payload, ok := parseBatch(&m); !ok || seq != 0x102 || hex.EncodeToString(payload) != v.Pub[2] {
		t.Errorf("%d %x %v", seq, payload, ok)
	}
}
