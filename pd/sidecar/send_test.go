package sidecar

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/pd/handover"
)

// TestBodiesOfLegs: whatever the lengths, in buffers that are used again and again, each leg
// has its own request's bytes: split, whole and passed on, while other legs are given up by
// their clients and answered by engines that read nothing.
func TestBodiesOfLegs(t *testing.T) {
	check := func(r *http.Request) error { // "." is asked for where blocks are given up
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil // the client has left
		}
		o, err := handover.Parse(text)
		if err != nil {
			return fmt.Errorf("%w: %.80s … %d bytes", err, text, len(text))
		}
		name := handover.Text(o.Get("model"))
		if prompt := handover.Text(o.Get("prompt")); prompt != "." && prompt != strings.Repeat(name, len(prompt)/max(len(name), 1)) || name != r.Header.Get("X-Name") {
			return fmt.Errorf("request %s has the model %q and %.40q… of %d bytes", r.Header.Get("X-Name"), name, prompt, len(prompt))
		}
		return nil
	}
	engine := func(answer string) string {
		return prefiller(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Early") != "" {
				w.Header().Set("Connection", "close")
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			if err := check(r); err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer)
		})
	}
	target := engine(soundPrefill)
	s, err := New(Options{Engine: "http://" + engine(`{"choices":[]}`)})
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(s)
	defer proxy.Close()
	var clients sync.WaitGroup
	for n := range 6 {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		clients.Go(func() {
			for k := range 60 {
				name := fmt.Sprintf("n%dk%d-", n, k)
				body := fmt.Sprintf(`{"model":%q, "prompt":%q}`, name, strings.Repeat(name, 1+rng.IntN(1<<rng.IntN(15))))
				path := "/v1/completions"
				if rng.IntN(4) == 0 {
					path = "/v1/embeddings"
				}
				ctx, cancel := context.WithCancel(t.Context())
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, proxy.URL+path, strings.NewReader(body))
				if err != nil {
					t.Error(err)
				}
				r.Header.Set("X-Name", name)
				if rng.IntN(2) == 0 {
					r.Header.Set(headerPrefiller, target)
				}
				switch rng.IntN(6) {
				case 0:
					r.Header.Set("X-Early", "yes")
				case 1:
					go cancel()
				}
				if resp, err := http.DefaultClient.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				cancel()
			}
		})
	}
	clients.Wait()
}

// TestBodyIsKept: the memory of a request's body is used again when the request has ended and
// every leg's body was closed, and no sooner.
func TestBodyIsKept(t *testing.T) {
	in := &intake{kept: append(buffer(9<<10), "a prompt"...)}
	in.readers.Add(1)
	legs := []*outgoing{in.send(handover.Pieces{in.kept}), in.send(handover.Pieces{in.kept[:1], in.kept[1:]})}
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

// TestGather: what is left of a body goes out as it lies, and one that is closed while it is
// written is kept until then.
func TestGather(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := gathering(net.Dial("tcp", l.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	const size = 32 << 20 // more than sockets take
	in := &intake{}
	in.readers.Add(1)
	o := in.send(handover.Pieces{bytes.Repeat([]byte("x"), size/2), bytes.Repeat([]byte("y"), size/2)})
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
