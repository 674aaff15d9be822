package wan

import (
	"bufio"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// echo starts a server that returns each line.
func echo(t *testing.T) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lis.Close() })
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return lis.Addr().String()
}

// TestWire checks that bytes arrive, and not before the delay; that a cut closes and refuses
// connections; and that a healed wire has the same address.
func TestWire(t *testing.T) {
	to := echo(t)
	for _, delay := range []time.Duration{0, 10 * time.Millisecond} {
		w, err := Open("127.0.0.1:0", func() string { return to }, delay)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		talk := func() net.Conn {
			t.Helper()
			c, err := net.Dial("tcp", w.Addr())
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			if _, err := io.WriteString(c, "hello\n"); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(c).ReadString('\n'); line != "hello\n" {
				t.Fatalf("received %q, %v", line, err)
			}
			if took := time.Since(begun); took < 2*delay {
				t.Errorf("there and back in %v, with a delay of %v each way", took, delay)
			}
			return c
		}
		c := talk()
		w.Cut()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a connection outlived the cut")
		}
		c.Close()
		if _, err := net.Dial("tcp", w.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a cut wire returns %v", err)
		}
		if err := w.Heal(); err != nil {
			t.Fatal(err)
		}
		talk().Close()
	}
}
