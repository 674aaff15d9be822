package bodies

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// TestBodyIsKept: the memory of a request's body is used again when the request has ended and
// every leg's body was closed, and no sooner.
func TestBodyIsKept(t *testing.T) {
	in := &Intake{kept: append(buffer(9<<10), "a prompt"...)}
	in.readers.Add(1)
	legs := []io.ReadCloser{in.Send(kvtransfer.Pieces{in.kept}), in.Send(kvtransfer.Pieces{in.kept[:1], in.kept[1:]})}
	in.leave() // the request
	legs[0].Close()
	legs[0].Close()
	if n := in.readers.Load(); n != 1 {
		t.Fatalf("%d look at the body, want one", n)
	}
	if got, err := io.ReadAll(legs[1]); string(got) != "a prompt" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := legs[0].Read(make([]byte, 9)); err == nil {
		t.Error("a body is read that was closed")
	}
	legs[1].Close()
	if n := in.readers.Load(); n != 0 {
		t.Errorf("%d look at a body that all have closed", n)
	}
}

// TestGather: the rest of a body is written without copying, and a body that is closed during a
// write is kept until the write ends.
func TestGather(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Gathering(net.Dial("tcp", l.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	const size = 32 << 20 // more than sockets take
	in := &Intake{}
	in.readers.Add(1)
	o := in.Send(kvtransfer.Pieces{bytes.Repeat([]byte("x"), size/2), bytes.Repeat([]byte("y"), size/2)})
	written := make(chan error, 1)
	go func() {
		_, err := c.(io.ReaderFrom).ReadFrom(io.LimitReader(o, size))
		c.Close()
		written <- err
	}()
	first := make([]byte, 1)
	if _, err := io.ReadFull(peer, first); err != nil { // it is being written
		t.Fatal(err)
	}
	o.Close()
	if n := in.readers.Load(); n != 2 {
		t.Errorf("the body is given back while it is written: %d look at it", n)
	}
	rest, err := io.ReadAll(peer)
	if err != nil || len(rest) != size-1 || bytes.Count(rest, []byte("y")) != size/2 {
		t.Errorf("%d bytes, %v", len(rest), err)
	}
	if err := <-written; err != nil || in.readers.Load() != 1 {
		t.Errorf("%v, and %d look at the body", err, in.readers.Load())
	}
	if _, err := (gather{c.(gather).TCPConn}).ReadFrom(io.LimitReader(o, 1)); err == nil {
		t.Error("a body is written that was closed")
	}
}
