package events

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

// vllm is a running testdata/engine.py, which publishes with libzmq and msgspec like a vLLM engine.
type vllm struct {
	*parts.Script
	tb testing.TB
}

func startVLLM(tb testing.TB, at Stream, form string, before, seed int) *vllm {
	tb.Helper()
	v := &vllm{parts.Start(tb, "testdata/engine.py", at.Events, at.Replay, form, strconv.Itoa(before), strconv.Itoa(seed)), tb}
	if got := v.Line(); got != "ready" {
		tb.Fatalf("the engine did not start: %q", got)
	}
	return v
}

func (v *vllm) do(command string, args ...any) string {
	v.tb.Helper()
	v.Send(strings.TrimSuffix(fmt.Sprintln(append([]any{command}, args...)...), "\n"))
	return v.Line()
}

// truth waits until the index of r holds exactly the engine's cache, and
// returns how long that took.
func (v *vllm) truth(r *reader) time.Duration {
	v.tb.Helper()
	var want struct {
		Hashes []string
		Next   uint64
	}
	if err := json.Unmarshal([]byte(v.do("truth")), &want); err != nil {
		v.tb.Fatal(err)
	}
	start := time.Now()
	for {
		got, _ := r.index.Digest(testSource)
		p, _ := r.Position(testSource)
		k := r.Knowledge(testSource.Endpoint)
		if int(got) == len(want.Hashes) && p.Seq == want.Next && k.State.Followed() {
			break
		}
		if time.Since(start) > 2*patience {
			v.tb.Fatalf("%d blocks of %d, next batch %d of %d, %+v", got, len(want.Hashes), p.Seq, want.Next, k)
		}
		time.Sleep(time.Millisecond)
	}
	for _, h := range want.Hashes {
		n, _ := strconv.ParseUint(h, 10, 64)
		if _, ok := r.index.Lookup(testSource, block.EngineHash(n)); !ok {
			v.tb.Fatalf("block %s is not in the index", h)
		}
	}
	return time.Since(start)
}

// TestVLLM follows a publisher made of vLLM's components, in both encodings. It covers lost
// batches, a cleared cache and a restart whose sequence numbers are ahead of the old ones.
func TestVLLM(t *testing.T) {
	for _, form := range []string{"array", "map"} {
		t.Run(form, func(t *testing.T) {
			at := Stream{Rank: testSource.Rank, Events: "tcp://" + parts.FreeAddress(t), Replay: "tcp://" + parts.FreeAddress(t)}
			v := startVLLM(t, at, form, 500, 1)
			opt := testOptions()
			opt.CoolDown = 200 * time.Millisecond
			opt.ReplayIdle = 3 * time.Second
			r := openReader(t, opt)
			r.follow(at)
			t.Logf("joined after 500 batches: %v", v.truth(r))
			v.do("slow", 300)
			t.Logf("300 live batches: %v", v.truth(r))
			v.do("lose", 20)
			v.do("step", 1)
			t.Logf("20 batches lost: %v", v.truth(r))
			v.do("clear")
			v.do("step", 100)
			t.Logf("cleared: %v", v.truth(r))

			v.Stop()
			v = startVLLM(t, at, form, 1500, 2)
			t.Logf("restarted ahead of the old sequence: %v", v.truth(r))
			v.do("slow", 100)
			v.truth(r)
			v.Stop()
			v = startVLLM(t, at, form, 10, 3)
			t.Logf("restarted behind the old sequence: %v", v.truth(r))
		})
	}
}

// TestVLLMLongReplay joins behind ten thousand batches, more than a ROUTER
// with libzmq's high-water mark sends without losses.
func TestVLLMLongReplay(t *testing.T) {
	at := Stream{Rank: testSource.Rank, Events: "tcp://" + parts.FreeAddress(t), Replay: "tcp://" + parts.FreeAddress(t)}
	v := startVLLM(t, at, "map", 9_000, 4)
	opt := testOptions()
	opt.ReplayIdle = 3 * time.Second
	r := openReader(t, opt)
	r.follow(at)
	t.Logf("9,000 batches: %v", v.truth(r))
	gaps := testutil.ToFloat64(r.metrics.failures.WithLabelValues("gap"))
	t.Logf("%v replays, %v failed, %v holes", testutil.ToFloat64(r.metrics.replays.WithLabelValues(resultOK)),
		testutil.ToFloat64(r.metrics.replays.WithLabelValues(resultFailed)), gaps)
}
