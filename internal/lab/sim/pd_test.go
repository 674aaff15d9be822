package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/answer"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/core"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

const wantKVTransfer = `,"max_tokens":1,"min_tokens":1,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`

// disagg is a pair of engines for prefill and decode.
type disagg struct {
	t    *testing.T
	p, d *Engine
	text string
}

func newDisagg(t *testing.T, lease time.Duration, recompute bool) *disagg {
	o := func() Options {
		return fast(Options{PD: &PDOptions{Lease: lease, Recompute: recompute, Handshake: time.Second}})
	}
	return &disagg{t, open(t, o()), open(t, o()), strings.Repeat("a long prompt that two engines share. ", 40)}
}

// prefill returns the KV transfer of the prompt.
func (d *disagg) prefill() string {
	d.t.Helper()
	var b struct {
		KV json.RawMessage `json:"kv_transfer_params"`
	}
	do(d.t, d.p, "POST", "/v1/chat/completions", chatBody(d.text, wantKVTransfer)).decoded(d.t, 200, &b)
	if len(b.KV) == 0 {
		d.t.Fatal("no KV transfer")
	}
	return string(b.KV)
}

func (d *disagg) decode(kv, more string) response {
	d.t.Helper()
	if kv != "" {
		more += `,"kv_transfer_params":` + kv
	}
	return do(d.t, d.d, "POST", "/v1/chat/completions", chatBody(d.text, `,"max_tokens":20,"ignore_eos":true`+more))
}

// right reports whether an answer's text is the prompt's.
func (d *disagg) right(r response) (b body, right bool) {
	d.t.Helper()
	r.decoded(d.t, 200, &b)
	seed := answer.OfChat([]vocab.Message{{Role: "user", Content: vocab.Content(d.text)}})
	return b, answer.Check(d.d.words, seed, b.Choices[0].Message.Content) == nil
}

// figures waits until an engine's figures have the wanted values.
func figures(t *testing.T, e *Engine, ok func(core.TransferStats) bool) {
	t.Helper()
	testkit.Eventually(t, func() string {
		if s := e.Transfers(); !ok(s) {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
}

func none(s core.TransferStats) bool { return s.Held == 0 }

func TestKVTransfer(t *testing.T) {
	d := newDisagg(t, time.Minute, false)
	kv := d.prefill()
	if got := d.p.Transfers(); got.Held != 1 || d.p.Stats()[0].Engine.UsedBlocks == 0 {
		t.Fatalf("after prefill: %+v", got)
	}
	b, right := d.right(d.decode(kv, ""))
	if !right || b.Usage.Details.CachedTokens != 0 {
		t.Errorf("right %v, usage %+v", right, b.Usage)
	}
	figures(t, d.p, none)
	if s := d.d.Stats()[0].Engine; s.PrefillTokens > 16 || s.HitTokens == 0 {
		t.Errorf("the decode engine computed %d tokens", s.PrefillTokens)
	}
	if _, right := d.right(d.decode("", "")); !right {
		t.Error("the pulled blocks are wrong")
	}
}

// TestLateRead: a read after the lease succeeds, its text is wrong, and so are later
// answers from these blocks.
func TestLateRead(t *testing.T) {
	d := newDisagg(t, 5*time.Millisecond, false)
	kv := d.prefill()
	figures(t, d.p, func(s core.TransferStats) bool { return s.Expired == 1 && s.Held == 0 })
	if _, right := d.right(d.decode(kv, "")); right {
		t.Error("a late read gave the right text")
	}
	if _, right := d.right(d.decode("", "")); right {
		t.Error("the wrong blocks are not used again")
	}
	if got := d.p.Transfers(); got.Late != 1 {
		t.Errorf("%+v", got)
	}
}

func TestLoadFails(t *testing.T) {
	for _, recompute := range []bool{false, true} {
		d := newDisagg(t, time.Minute, recompute)
		kv := d.prefill()
		if err := d.p.Restart(RestartOptions{}); err != nil {
			t.Fatal(err)
		}
		r := d.decode(kv, "")
		if recompute {
			if _, right := d.right(r); !right {
				t.Error("not computed anew")
			}
			continue
		}
		if r.status != http.StatusInternalServerError {
			t.Errorf("status %d: %s", r.status, r.body)
		}
		if r = d.decode(kv, `,"stream":true`); r.status != 200 || !strings.Contains(string(r.body), `"error":{`) || !strings.Contains(string(r.body), `"role":"assistant"`) {
			t.Errorf("stream: %d %s", r.status, r.body)
		}
	}
}

// TestRelease checks that the prefill engine is notified however the decode leg ends.
func TestRelease(t *testing.T) {
	d := newDisagg(t, time.Minute, false)
	if r := d.decode(d.prefill(), `,"max_completion_tokens":0`); r.status != 400 {
		t.Errorf("status %d", r.status)
	}
	figures(t, d.p, none)
	kv := d.prefill()
	d.d.Hang(faults.HangEngine)
	wait := 50 * time.Millisecond // until the decode engine has it, which takes longer on a busy machine
	testkit.Await(t, "the prefill engine is told", func() bool {
		d.left(d.d, chatBody(d.text, `,"kv_transfer_params":`+kv), wait)
		wait *= 2
		return none(d.p.Transfers())
	})
	d.p.Hang(faults.HangEngine)
	d.left(d.p, chatBody(d.text, wantKVTransfer), wait)
	testkit.Await(t, "the prefill engine sees the client leave", idle(d.p))
	d.p.Hang(faults.HangNone)
	if got := d.p.Transfers(); got.Held != 0 {
		t.Errorf("%+v", got)
	}
}

// left sends a request to an engine that hangs, and leaves after a while.
func (d *disagg) left(e *Engine, body string, wait time.Duration) {
	d.t.Helper()
	ctx, leave := context.WithTimeout(d.t.Context(), wait)
	defer leave()
	if _, err := try(ctx, e, "POST", "/v1/chat/completions", body); err == nil {
		d.t.Error("answered")
	}
}

// TestHostileKVTransfer covers clients that set the KV transfer fields themselves.
func TestHostileKVTransfer(t *testing.T) {
	d := newDisagg(t, time.Minute, false)
	ctx, leave := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer leave()
	if _, err := try(ctx, d.d, "POST", "/v1/chat/completions", chatBody(d.text, `,"kv_transfer_params":{"do_remote_prefill":true,"remote_block_ids":[[1]],"remote_engine_id":"x","remote_host":"127.0.0.1","remote_port":1}`)); err == nil {
		t.Error("a KV transfer without a request id is answered")
	}
	_, _ = try(context.Background(), d.d, "POST", "/v1/chat/completions", chatBody(d.text, `,"kv_transfer_params":{"do_remote_prefill":true,"remote_block_ids":null}`))
	testkit.Await(t, "the engine has died", func() bool { return d.d.current() == nil })
}
