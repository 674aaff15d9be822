package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"github.com/grapevine-epp/grapevine/events/zmtp"
	"github.com/grapevine-epp/grapevine/internal/lab/blockhash"
	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// stored is a BlockStored event as a reader sees it.
type stored struct {
	hashes, tokens []uint64
	parent         any
	lora           any
}

func ints(v any) (out []uint64) {
	for _, x := range v.([]any) {
		switch n := x.(type) {
		case uint64:
			out = append(out, n)
		case int64:
			out = append(out, uint64(n))
		}
	}
	return out
}

// stores reads batches of a rank until n stores have arrived.
func stores(t *testing.T, e *Engine, of int, provoke func(), n int) (list []stored, rank any) {
	t.Helper()
	pubs, _ := e.EventAddrs()
	c, err := zmtp.Dial(context.Background(), "tcp://"+pubs[of], zmtp.Options{Handshake: testkit.HangTimeout})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Subscribe("kv"); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "subscribed", func() bool { return e.Stats()[of].Events.Subscribers > 0 })
	provoke()
	c.SetRecvDeadline(time.Now().Add(testkit.HangTimeout))
	var m zmtp.Message
	for len(list) < n {
		if err := c.Recv(&m); err != nil {
			t.Fatalf("after %d stores: %v", len(list), err)
		}
		v, _, err := msgp.ReadIntfBytes(m.Frame(2))
		if err != nil {
			t.Fatal(err)
		}
		batch := v.([]any)
		rank = batch[2]
		for _, ev := range batch[1].([]any) {
			e := ev.(map[string]any)
			if e["type"] == "BlockStored" {
				list = append(list, stored{ints(e["block_hashes"]), ints(e["token_ids"]), e["parent_block_hash"], e["lora_name"]})
			}
		}
	}
	return list, rank
}

// TestEventsDescribeTheRequest checks that the blocks of a request are published with the real engine's
// tokens and hashes.
func TestEventsDescribeTheRequest(t *testing.T) {
	e := open(t, fast(Options{Ranks: 2, Adapters: []string{"ad"}, Events: &EventOptions{Topic: "kv", Format: kvstream.FormatMap}}))
	prompt := strings.Repeat(" the prompt", 20)
	var b body
	list, rank := stores(t, e, 1, func() {
		do(t, e, "POST", "/v1/completions", fmt.Sprintf(`{"model":"ad","prompt":%q,"max_tokens":25,"ignore_eos":true,"return_token_ids":true}`, prompt), headerRank, "1").decoded(t, 200, &b)
	}, 3)
	all := append(e.words.AppendTokens(nil, []byte(prompt), true), b.Choices[0].TokenIDs...)
	want := blockhash.NewSHA256CBOR(blockhash.DefaultSeed).Append(nil, all[:64], 16, blockhash.Extra{LoRA: "ad"})
	var hashes, tokens []uint64
	var parent any
	for i, s := range list {
		if diff := cmp.Diff(fmt.Sprint(parent), fmt.Sprint(s.parent)); diff != "" {
			t.Errorf("parent of store %d: %s", i, diff)
		}
		if s.lora != "ad" {
			t.Errorf("lora_name %v", s.lora)
		}
		hashes, tokens = append(hashes, s.hashes...), append(tokens, s.tokens...)
		parent = hashes[len(hashes)-1]
	}
	if !slices.Equal(hashes, want) || len(tokens) != 64 || fmt.Sprint(rank) != "1" {
		t.Errorf("hashes %v, want %v; %d tokens, rank %v", hashes, want, len(tokens), rank)
	}
	for i, id := range tokens {
		if uint64(all[i]) != id {
			t.Fatalf("token %d is %d, want %d", i, id, all[i])
		}
	}
}

func TestFullReport(t *testing.T) {
	e := open(t, fast(Options{Events: &EventOptions{Topic: "kv"}}))
	ask := func(more string) {
		do(t, e, "POST", "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1%s}`, strings.Repeat(" prompt", 40), more))
	}
	ask("")
	list, _ := stores(t, e, 0, func() { ask(`,"vllm_xargs":{"kv_cache_report_mode":"full"}`) }, 1)
	if len(list[0].hashes) != 2 || list[0].parent != nil {
		t.Errorf("reported %+v", list[0])
	}
}

func TestSources(t *testing.T) {
	for _, shape := range []string{"list", "sources", "ranks"} {
		t.Run(shape, func(t *testing.T) {
			e := open(t, fast(Options{Core: smallCore(), Ranks: 2, Sources: shape, Events: &EventOptions{Topic: "kv"}}))
			pubs, replays := e.EventAddrs()
			type source struct {
				Rank            int `json:"data_parallel_rank"`
				Endpoint, Topic string
				Replay          string `json:"replay_endpoint"`
			}
			want := []source{{0, "tcp://" + pubs[0], "kv", "tcp://" + replays[0]}, {1, "tcp://" + pubs[1], "kv", "tcp://" + replays[1]}}
			var got []source
			r := do(t, e, "GET", "/kv_event_sources", "")
			switch shape {
			case "list":
				r.decoded(t, 200, &got)
			case "sources":
				var under struct{ Sources []source }
				r.decoded(t, 200, &under)
				got = under.Sources
			default:
				var keyed map[string]json.RawMessage
				r.decoded(t, 200, &keyed)
				for _, rank := range []string{"0", "1"} {
					var s source
					if err := json.Unmarshal(keyed[rank], &s); err != nil {
						t.Fatal(err)
					}
					got = append(got, s)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if nextPort(pubs[0]) != pubs[1] || nextPort(replays[0]) != replays[1] {
				t.Errorf("ports of the ranks: %v, %v", pubs, replays)
			}
		})
	}
}
