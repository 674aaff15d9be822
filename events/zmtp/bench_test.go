package zmtp

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// endless repeats b.
type endless struct {
	b []byte
	r bytes.Reader
}

func (e *endless) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if errors.Is(err, io.EOF) {
		e.r.Reset(e.b)
		return e.r.Read(p)
	}
	return n, err
}

// BenchmarkReader measures the parsing of messages of three frames, 1 KiB.
func BenchmarkReader(b *testing.B) {
	wire := appendMessage(nil, [][]byte{[]byte("topic"), make([]byte, 8), make([]byte, 1024)})
	r := newReader(&endless{b: bytes.Repeat(wire, 100)}, Limits{}.withDefaults())
	var m Message
	b.SetBytes(int64(len(wire)))
	b.ReportAllocs()
	for range b.N {
		if err := r.next(&m, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPubSub measures messages of 1 KiB from our PUB to our SUB over
// loopback, both ends and the kernel included.
func BenchmarkPubSub(b *testing.B) {
	pub := listenPub(b, PubOptions{HWM: 1 << 30, MaxQueued: 1 << 40})
	c := dial(b, pub.Addr().String(), Options{})
	if err := c.Subscribe(""); err != nil {
		b.Fatal(err)
	}
	testkit.Await(b, "the subscription", func() bool { return pub.Subscribers() == 1 })
	payload := make([]byte, 1024)
	b.SetBytes(1024)
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		for range b.N {
			_ = pub.Send([]byte("topic"), payload[:8], payload)
		}
	}()
	var m Message
	for range b.N {
		if err := c.Recv(&m); err != nil {
			b.Fatal(err)
		}
	}
}
