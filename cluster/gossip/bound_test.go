package gossip

import (
	"bytes"
	"encoding/binary"
	"io"
	"log"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// FuzzPackets: for any input, the packets delivered are a prefix of those sent, and none is longer
// than its length field.
func FuzzPackets(f *testing.F) {
	f.Add([]byte{0, 3, 'o', 'n', 'e', 0, 0, 0, 1, 'x'})
	f.Add([]byte{255, 255, 1})
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		var again []byte
		err := readPackets(bytes.NewReader(b), func() {}, func(p []byte) bool {
			again = append(binary.BigEndian.AppendUint16(again, uint16(len(p))), p...)
			return true
		})
		if err == nil || !bytes.HasPrefix(b, again) || len(b)-len(again) > 2+maxPacket {
			t.Errorf("%x decodes as %x (%v)", b, again, err)
		}
	})
}

// TestBounds: connections above the limit are closed and counted, accepted ones are limited in
// bytes, and a closed connection frees its slot.
func TestBounds(t *testing.T) {
	for name, open := range map[string]func(refused func()) (memberlist.Transport, string, []byte, int){
		"udp and tcp": func(refused func()) (memberlist.Transport, string, []byte, int) {
			tr, err := newNetTransport("127.0.0.1", 0, log.New(io.Discard, "", 0), refused)
			if err != nil {
				t.Fatal(err)
			}
			return tr, (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: tr.GetAutoBindPort()}).String(), nil, streamConns
		},
		"tcp alone": func(refused func()) (memberlist.Transport, string, []byte, int) {
			tr, err := newTCPTransport("127.0.0.1:0", refused)
			if err != nil {
				t.Fatal(err)
			}
			return tr, tr.lis.Addr().String(), []byte{streamMark}, packetConns
		},
	} {
		t.Run(name, func(t *testing.T) {
			var refused atomic.Int64
			tr, addr, first, most := open(func() { refused.Add(1) })
			defer func() { _ = tr.Shutdown() }()
			in := make(chan net.Conn, most)
			go func() {
				for {
					select {
					case c := <-tr.StreamCh():
						in <- c
					case <-t.Context().Done():
						return
					}
				}
			}()
			dial := func() net.Conn {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			one := dial()
			_, _ = one.Write(append(first, make([]byte, maxStreamBytes)...))
			got := <-in
			if n, err := io.Copy(io.Discard, got); n != maxStreamBytes || err == nil {
				t.Errorf("read %d bytes, error %v", n, err)
			}
			for range most - 1 {
				dial()
			}
			over := dial()
			_ = over.SetReadDeadline(time.Now().Add(testkit.HangTimeout))
			if _, err := over.Read(make([]byte, 1)); err == nil || refused.Load() != 1 {
				t.Errorf("connection above the limit: %v, %d refused", err, refused.Load())
			}
		})
	}
}
