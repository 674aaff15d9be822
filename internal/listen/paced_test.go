package listen

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// said returns n streams as frames, after the preface.
func said(n int, say func(f *http2.Framer, id uint32)) []byte {
	b := bytes.NewBufferString(http2.ClientPreface)
	f := http2.NewFramer(b, nil)
	f.AllowIllegalWrites = true
	_ = f.WriteSettings()
	for i := range n {
		say(f, uint32(2*i+1))
	}
	return b.Bytes()
}

func opened(f *http2.Framer, id uint32) {
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: make([]byte, 60), EndHeaders: true})
}

// TestPaced sends streams of several kinds in virtual time. Streams with data are read without
// delay, however they end. Streams that end without data are paced, with one log line and one
// count.
func TestPaced(t *testing.T) {
	const many = 5000
	empty := func(f *http2.Framer, id uint32) { opened(f, id); _ = f.WriteRSTStream(id, http2.ErrCodeCancel) }
	abort := func(f *http2.Framer, id uint32) {
		opened(f, id)
		_ = f.WriteData(id, false, []byte("a"))
		_ = f.WriteRSTStream(id, http2.ErrCodeCancel)
	}
	for _, c := range []struct {
		name   string
		say    func(f *http2.Framer, id uint32)
		empty  int
		atOnce bool
	}{
		{"served", func(f *http2.Framer, id uint32) { opened(f, id); _ = f.WriteData(id, true, []byte("a")) }, 0, true},
		{"aborted", abort, 0, true},
		{"without a body", func(f *http2.Framer, id uint32) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: true})
		}, many, false},
		{"every second aborted before its message", func(f *http2.Framer, id uint32) { []func(*http2.Framer, uint32){abort, empty}[id/2%2](f, id) }, many / 2, true},
		{"reset", empty, many, false},
		{"ended by data of no length", func(f *http2.Framer, id uint32) { opened(f, id); _ = f.WriteData(id, true, nil) }, many, false},
		{"reset after data of no length", func(f *http2.Framer, id uint32) {
			opened(f, id)
			_ = f.WriteData(id, false, nil)
			_ = f.WriteRSTStream(id, http2.ErrCodeCancel)
		}, many, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				waits := 0
				p := &Pacing{Listener: "x", Paced: func() { waits++ }, Log: slog.New(slog.NewTextHandler(&log, nil))}
				for range 2 { // two connections
					client, server := net.Pipe()
					conn, _, err := p.Over(insecure.NewCredentials()).Clone().ServerHandshake(server)
					if err != nil {
						t.Fatal(err)
					}
					go func() {
						_, _ = client.Write(said(many, c.say))
						client.Close()
					}()
					began := time.Now()
					if _, err := io.Copy(io.Discard, conn); err != nil {
						t.Error(err)
					}
					// The last piece is not waited for.
					took, most := time.Since(began), time.Duration(c.empty-emptyBurst)*emptyEvery
					if c.atOnce && took > 0 || !c.atOnce && (took > most || took < most*9/10) {
						t.Errorf("%d streams took %v", many, took)
					}
					conn.Close()
				}
				want := 2
				if c.atOnce {
					want = 0
				}
				if lines := strings.Count(log.String(), "\n"); waits != want || lines != want/2 {
					t.Errorf("counted %d connections, logged %d lines: %s", waits, lines, log.String())
				}
			})
		})
	}
}

// TestPacedClose: closing a waiting connection makes its reader return.
func TestPacedClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		conn, _, _ := (&Pacing{Paced: func() {}, Log: slog.New(slog.DiscardHandler)}).Over(insecure.NewCredentials()).ServerHandshake(server)
		defer client.Close()
		go func() {
			_, _ = client.Write(said(10_000, func(f *http2.Framer, id uint32) { opened(f, id); _ = f.WriteRSTStream(id, http2.ErrCodeCancel) }))
		}()
		began, ended := time.Now(), make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			close(ended)
		}()
		synctest.Wait()
		conn.Close()
		if <-ended; time.Since(began) > 0 {
			t.Errorf("waiting connection ended after %v", time.Since(began))
		}
	})
}

// TestFramesInPieces: pieces of any size give the same count, without allocation.
func TestFramesInPieces(t *testing.T) {
	text := said(700, func(f *http2.Framer, id uint32) {
		opened(f, id)
		if id%3 == 0 {
			_ = f.WriteData(id, false, make([]byte, id))
		}
		_ = f.WriteRSTStream(id, http2.ErrCodeCancel)
	})
	count := func(size int) (n int) {
		f := frames{left: prefaceLen}
		for at := 0; at < len(text); at += size {
			n += f.see(text[at:min(at+size, len(text))])
		}
		return n
	}
	want := count(len(text))
	if want != 700-2*233 {
		t.Errorf("%d, want %d", want, 700-2*233)
	}
	for size := range 200 {
		if got := count(size + 1); got != want {
			t.Errorf("%d in pieces of %d, %d in one", got, size+1, want)
		}
	}
	f := frames{left: prefaceLen}
	if n := testing.AllocsPerRun(10, func() { f.see(text) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

// FuzzFrames: any input is consumed completely, and no stream counts twice.
func FuzzFrames(f *testing.F) {
	f.Add(said(3, func(f *http2.Framer, id uint32) { opened(f, id); _ = f.WriteRSTStream(id, http2.ErrCodeCancel) }))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		s := frames{left: prefaceLen}
		if n := s.see(b); max(n, -n) > len(b)/headerLen {
			t.Errorf("%d streams in %d bytes", n, len(b))
		}
	})
}
