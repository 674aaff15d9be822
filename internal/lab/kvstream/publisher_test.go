package kvstream

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/events/zmtp"
	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

func open(t *testing.T, opt Options) *Publisher {
	t.Helper()
	opt.Addr = "127.0.0.1:0"
	opt.ReplayAddr = "127.0.0.1:0"
	p, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func dial(t *testing.T, addr string, kind zmtp.SocketType) *zmtp.Conn {
	t.Helper()
	c, err := zmtp.Dial(context.Background(), "tcp://"+addr, zmtp.Options{Socket: kind, Handshake: testkit.HangTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	c.SetRecvDeadline(time.Now().Add(testkit.HangTimeout))
	return c
}

// subscribe opens a connection and waits until the publisher has its subscription.
func subscribe(t *testing.T, p *Publisher) *zmtp.Conn {
	t.Helper()
	c := dial(t, p.Addr(), zmtp.SUB)
	if err := c.Subscribe(""); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testkit.HangTimeout); p.Stats().Subscribers == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the subscription never arrived")
		}
	}
	return c
}

func publish(p *Publisher, n int) {
	for range n {
		p.Publish([]byte(fmt.Sprintf("batch %d", p.Stats().NextSeq)))
	}
}

// receive reads n live messages as "topic seq payload".
func receive(t *testing.T, c *zmtp.Conn, n int) (got []string) {
	t.Helper()
	var m zmtp.Message
	for range n {
		if err := c.Recv(&m); err != nil {
			t.Fatalf("after %v: %v", got, err)
		}
		if m.Len() != 3 {
			t.Fatalf("%d frames", m.Len())
		}
		got = append(got, fmt.Sprintf("%s %d %s", m.Frame(0), binary.BigEndian.Uint64(m.Frame(1)), m.Frame(2)))
	}
	return got
}

// replayFrom requests a replay. It returns the sequence numbers of the reply and the number of
// frames per message.
func replayFrom(t *testing.T, p *Publisher, start uint64) (seqs []uint64, frames int) {
	t.Helper()
	c := dial(t, p.ReplayAddr(), zmtp.DEALER)
	number := seqFrame(start)
	if err := c.Send(nil, number[:]); err != nil {
		t.Fatal(err)
	}
	var m zmtp.Message
	for {
		if err := c.Recv(&m); err != nil {
			t.Fatalf("after %v: %v", seqs, err)
		}
		seq := binary.BigEndian.Uint64(m.Frame(m.Len() - 2))
		payload := m.Frame(m.Len() - 1)
		if seq == endMarker && len(payload) == 0 {
			return seqs, m.Len()
		}
		if want := fmt.Sprintf("batch %d", seq); string(payload) != want {
			t.Fatalf("replayed %q as number %d", payload, seq)
		}
		seqs = append(seqs, seq)
	}
}

func TestLiveAndReplay(t *testing.T) {
	p := open(t, Options{Topic: "kv@1@m", Ring: 4})
	c := subscribe(t, p)
	publish(p, 6)
	want := []string{"kv@1@m 0 batch 0", "kv@1@m 1 batch 1", "kv@1@m 2 batch 2", "kv@1@m 3 batch 3", "kv@1@m 4 batch 4", "kv@1@m 5 batch 5"}
	if got := receive(t, c, 6); !slices.Equal(got, want) {
		t.Errorf("received %q", got)
	}
	for start, want := range map[uint64][]uint64{0: {2, 3, 4, 5}, 4: {4, 5}, 6: nil, 99: nil} {
		if got, frames := replayFrom(t, p, start); !slices.Equal(got, want) || frames != 4 {
			t.Errorf("replay from %d: %v in %d frames, want %v in 4", start, got, frames, want)
		}
	}
}

func TestShortReply(t *testing.T) {
	p := open(t, Options{ShortReply: true, FirstSeq: 7})
	publish(p, 2)
	if got, frames := replayFrom(t, p, 0); !slices.Equal(got, []uint64{7, 8}) || frames != 3 {
		t.Errorf("%v in %d frames", got, frames)
	}
}

func TestFaults(t *testing.T) {
	p := open(t, Options{})
	c := subscribe(t, p)
	p.SetFaults(Faults{DropNext: 2})
	publish(p, 3)
	p.SetFaults(Faults{Duplicate: 1})
	publish(p, 1)
	p.SetFaults(Faults{Delay: 30 * time.Millisecond})
	publish(p, 2)
	p.SetFaults(Faults{})
	publish(p, 1) // waits for delayed batches
	want := []string{" 2 batch 2", " 3 batch 3", " 3 batch 3", " 4 batch 4", " 5 batch 5", " 6 batch 6"}
	if got := receive(t, c, 6); !slices.Equal(got, want) {
		t.Errorf("received %q, want %q", got, want)
	}
	if got, _ := replayFrom(t, p, 0); len(got) != 7 {
		t.Errorf("the ring lost batches: %v", got)
	}
	p.SetFaults(Faults{ReplayHoles: 0.5})
	publish(p, 93)
	if got, _ := replayFrom(t, p, 0); len(got) < 20 || len(got) > 80 {
		t.Errorf("%d of 100 batches with half of them missing", len(got))
	}
	if s := p.Stats(); s.Dropped != 2 || s.Duplicated != 1 || s.Published != 100 || s.Replays != 2 {
		t.Errorf("stats %+v", s)
	}
}

func TestReplayOff(t *testing.T) {
	p := open(t, Options{})
	publish(p, 1)
	p.SetFaults(Faults{ReplayOff: true})
	c := dial(t, p.ReplayAddr(), zmtp.DEALER)
	for _, request := range [][][]byte{{nil, make([]byte, 8)}, {make([]byte, 8)}, {nil, nil}, {nil, []byte("0")}} {
		if err := c.Send(request...); err != nil {
			t.Fatal(err)
		}
	}
	c.SetRecvDeadline(time.Now().Add(50 * time.Millisecond))
	var m zmtp.Message
	if err := c.Recv(&m); err == nil {
		t.Errorf("got %d frames from a replay that is off", m.Len())
	}
}

// TestReset checks that numbers and ring restart on the same connection.
func TestReset(t *testing.T) {
	p := open(t, Options{})
	c := subscribe(t, p)
	publish(p, 2)
	p.Reset(40)
	publish(p, 1)
	if got := receive(t, c, 3); got[2] != " 40 batch 40" {
		t.Errorf("received %q", got)
	}
	if got, _ := replayFrom(t, p, 0); !slices.Equal(got, []uint64{40}) {
		t.Errorf("replay %v", got)
	}
}

// TestLibzmq subscribes and requests a replay with libzmq, and decodes with msgspec and vLLM's
// struct declarations.
func TestLibzmq(t *testing.T) {
	for _, f := range []Format{FormatMap, FormatArray} {
		t.Run(f.String(), func(t *testing.T) {
			p := open(t, Options{Topic: "kv"})
			cmd := exec.Command(parts.Python(t), "testdata/subscriber.py", "tcp://"+p.Addr(), "tcp://"+p.ReplayAddr(), f.String())
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(testkit.HangTimeout); p.Stats().Subscribers == 0 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			events := []engine.Event{
				{Kind: engine.Stored, Hashes: []engine.Hash{h0, h1}, Tokens: tokens(0, 32), Tag: &engine.Tag{LoRA: "a", Salt: "s"}},
				{Kind: engine.Removed, Hash: h0}, {Kind: engine.Cleared},
			}
			for range 3 {
				p.Publish(AppendBatch(nil, f, Batch{Time: 1.5, Rank: 2, BlockSize: 16}, events))
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("subscriber: %v\n%s", err, stderr.Bytes())
			}
			var got struct {
				Live, Replayed []uint64
				Events         []string
				Rank           int
				Hashes         []uint64
				Extra          []any
			}
			if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
				t.Fatalf("%v in %s", err, stdout.Bytes())
			}
			if fmt.Sprint(got.Live, got.Replayed, got.Rank) != "[0 1 2] [0 1 2] 2" ||
				strings.Join(got.Events, " ") != "BlockStored BlockRemoved AllBlocksCleared" ||
				!slices.Equal(got.Hashes, []uint64{uint64(h0), uint64(h1)}) || fmt.Sprint(got.Extra) != "[[a s] [a]]" {
				t.Errorf("subscriber saw %+v", got)
			}
		})
	}
}
