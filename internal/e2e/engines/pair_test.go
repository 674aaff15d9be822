//go:build engines

package engines

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// tensor is a weight of a model: random numbers with a mean.
type tensor struct {
	name           string
	shape          []int
	mean, deviates float64
}

// weights returns weights with which every token of the prompt affects the answer: attention is
// sharp and outweighs the last token. With small weights, answers would not depend on the prompt.
func weights(vocabulary int) (out []tensor) {
	out = append(out, tensor{"model.embed_tokens.weight", []int{vocabulary, 128}, 0, .05}, tensor{"model.norm.weight", []int{128}, 1, 0})
	for l := range 2 {
		at := fmt.Sprintf("model.layers.%d.", l)
		for _, t := range []tensor{
			{"input_layernorm.weight", []int{128}, 1, 0}, {"post_attention_layernorm.weight", []int{128}, 1, 0},
			{"self_attn.q_proj.weight", []int{128, 128}, 0, .15}, {"self_attn.q_proj.bias", []int{128}, 0, .1},
			{"self_attn.k_proj.weight", []int{64, 128}, 0, .15}, {"self_attn.k_proj.bias", []int{64}, 0, .1},
			{"self_attn.v_proj.weight", []int{64, 128}, 0, .2}, {"self_attn.v_proj.bias", []int{64}, 0, .1},
			{"self_attn.o_proj.weight", []int{128, 128}, 0, .2},
			{"mlp.gate_proj.weight", []int{256, 128}, 0, .1}, {"mlp.up_proj.weight", []int{256, 128}, 0, .1}, {"mlp.down_proj.weight", []int{128, 256}, 0, .1},
		} {
			t.name = at + t.name
			out = append(out, t)
		}
	}
	return out
}

// writeWeights writes random weights as safetensors into the model's folder.
func writeWeights(t *testing.T, dir string, vocabulary int) {
	t.Helper()
	type entry struct {
		Type    string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header, size := map[string]entry{}, 0
	for _, w := range weights(vocabulary) {
		n := 4
		for _, d := range w.shape {
			n *= d
		}
		header[w.name] = entry{"F32", w.shape, [2]int{size, size + n}}
		size += n
	}
	head, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	to := bufio.NewWriter(f)
	_, _ = to.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(head))))
	_, _ = to.Write(head)
	rng, word := rand.New(rand.NewPCG(17, 1)), make([]byte, 4)
	for _, w := range weights(vocabulary) {
		for range (header[w.name].Offsets[1] - header[w.name].Offsets[0]) / 4 {
			binary.LittleEndian.PutUint32(word, math.Float32bits(float32(w.mean+w.deviates*rng.NormFloat64())))
			_, _ = to.Write(word)
		}
	}
	if err := to.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// startHalf starts one engine of a pair that transfers caches by NIXL.
func startHalf(t *testing.T, model string) *realEngine {
	t.Helper()
	return startEngine(t, model, []string{"--dtype", "float32", "--kv-transfer-config", `{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_buffer_device":"cpu"}`},
		func() []string {
			return []string{"VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1", fmt.Sprint("VLLM_NIXL_SIDE_CHANNEL_PORT=", freePorts(t, 1)[0]), "UCX_TLS=tcp,sm,self", "UCX_NET_DEVICES=lo"}
		})
}

// metric returns the sum of the samples on an engine's page whose name starts with name and that
// contain label.
func (e *realEngine) metric(t *testing.T, name, label string) (sum float64) {
	t.Helper()
	resp, err := http.Get(e.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, name+"{") && strings.Contains(line, label) {
			v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

// computed returns the number of prompt tokens that an engine has computed itself.
func (e *realEngine) computed(t *testing.T) float64 {
	t.Helper()
	return e.metric(t, "vllm:prompt_tokens_by_source_total", `source="local_compute"`)
}

// probeTokens is the number of tokens of a probe's prompt, "1 2 3".
const probeTokens = 5

// blockBytes is the size of a cache block of the pair: two layers, keys and values, one head of 64
// float32.
const blockBytes = tinyBlock * 2 * 2 * 64 * 4

// openPair starts two engines, the second behind a sidecar, a replica and an Envoy. whole counts
// requests that the sidecar got without a prefill engine. These are the replica's probes, which it
// sends when an engine is late, as on a busy machine.
func openPair(t *testing.T) (r *realRig, prefill, decode *realEngine, whole *atomic.Int64) {
	whole = new(atomic.Int64)
	r = &realRig{t: t, model: writeTiny(t)}
	writeWeights(t, r.model, tinyVocabulary)
	prefill, decode = startHalf(t, r.model), startHalf(t, r.model)
	prefill.ready(t)
	decode.ready(t)
	h, err := sidecar.New(sidecar.Options{
		Engine: decode.url, Targets: sidecar.Listed{prefill.front.Listener.Addr().String(): sidecar.AnyRole}, KVTransfer: kvtransfer.Policy{Action: kvtransfer.Strip},
	})
	if err != nil {
		t.Fatal(err)
	}
	beside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.Header.Get(request.HeaderPrefiller) == "" {
			whole.Add(1)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(beside.Close)
	var list []fleet.Endpoint
	var addrs []string
	for i, at := range []net.Addr{prefill.front.Listener.Addr(), beside.Listener.Addr()} {
		e := []*realEngine{prefill, decode}[i]
		list = append(list, fleet.Endpoint{
			Name: []string{"prefill", "decode"}[i], Namespace: "default", Address: "127.0.0.1", Port: at.(*net.TCPAddr).Port, Model: tiny,
			Labels: map[string]string{endpoint.LabelRole: []string{"prefill", "decode"}[i]},
			Events: &fleet.EndpointEvents{Port: e.events, ReplayPort: e.replay, Topic: "kv-events"},
		})
		addrs = append(addrs, at.String())
	}
	r.open(list, testkit.SplitAll, addrs)
	return r, prefill, decode, whole
}

// pulled counts a decode engine's transfers.
type pulled struct{ tokens, transfers, bytes float64 }

func (e *realEngine) pulled(t *testing.T) pulled {
	t.Helper()
	return pulled{
		e.metric(t, "vllm:prompt_tokens_by_source_total", `source="external_kv_transfer"`),
		e.metric(t, "vllm:nixl_xfer_time_seconds_count", ""), e.metric(t, "vllm:nixl_bytes_transferred_sum", ""),
	}
}

// after adds one prompt, which is transferred in whole blocks.
func (p pulled) after(tokens int) pulled {
	blocks := (tokens + tinyBlock - 1) / tinyBlock
	return pulled{p.tokens + float64(tokens), p.transfers + 1, p.bytes + float64(blocks*blockBytes)}
}

// TestRealPair checks that prompts that one vLLM computes and another one pulls get the answers of
// a single engine.
func TestRealPair(t *testing.T) {
	began := time.Now()
	r, prefill, decode, whole := openPair(t)
	t.Logf("two engines, a sidecar, a replica and Envoy serve after %.0f s", time.Since(began).Seconds())
	rng := rand.New(rand.NewPCG(17, 3))
	words := strings.Fields("the grape vine grows over an old wall and its leaves turn red while λόγος 文字 рѣка naïve 42 end")
	ask := func(to, prompt, salt string) (a answer) {
		body, err := json.Marshal(map[string]any{"model": tiny, "prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": true, "cache_salt": salt})
		if err != nil {
			t.Fatal(err)
		}
		r.post(to+"/v1/completions", body, &a)
		return a
	}
	const prompts = 24
	tokens, distinct := 0, map[string]bool{}
	for i := range prompts {
		var said []string
		for range 60 + 40*i {
			said = append(said, words[rng.IntN(len(words))]+strconv.Itoa(rng.IntN(40)))
		}
		prompt := strings.Join(said, " ")
		before := decode.pulled(t)
		got := ask(r.url, prompt, "pair")
		if want := before.after(got.Usage.Prompt); !testkit.PollUntil(func() bool { return decode.pulled(t) == want }) {
			t.Errorf("prompt %d: %+v were pulled, want %+v", i, decode.pulled(t), want)
		}
		alone := ask(prefill.url, prompt, "alone") // computed again
		tokens += got.Usage.Prompt
		if got.Choices[0].Text != alone.Choices[0].Text {
			t.Errorf("prompt %d of %d tokens: the pair answers %q, one engine %q", i, got.Usage.Prompt, got.Choices[0].Text, alone.Choices[0].Text)
		}
		distinct[alone.Choices[0].Text] = true
		early := slices.Clone(said)
		early[0], early[1] = "zebra7", "quartz9"
		if other := ask(prefill.url, strings.Join(early, " "), "early"); other.Choices[0].Text == alone.Choices[0].Text {
			t.Errorf("prompt %d: other words at its beginning leave the answer as it is: it proves nothing", i)
		}
	}
	sum, seconds := decode.pulled(t), decode.metric(t, "vllm:nixl_xfer_time_seconds_sum", "")
	failed := decode.metric(t, "vllm:nixl_num_failed_transfers_total", "") + prefill.metric(t, "vllm:nixl_num_kv_expired_reqs_total", "")
	local, probed := int64(decode.computed(t)), whole.Load()*probeTokens
	t.Logf("\n| prompts | tokens | pulled | computed at the decode engine | of probes | transfers | bytes | mean ms | failed or expired |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n| %d | %d | %.0f | %d | %d | %.0f | %.0f | %.1f | %.0f |",
		prompts, tokens, sum.tokens, local, probed, sum.transfers, sum.bytes, 1000*seconds/max(sum.transfers, 1), failed)
	if len(distinct) != prompts {
		t.Errorf("%d different answers to %d prompts", len(distinct), prompts)
	}
	if failed != 0 {
		t.Errorf("%.0f KV transfers failed or expired", failed)
	}
	// A cancelled probe may not have computed anything.
	if local > probed || local%probeTokens != 0 {
		t.Errorf("the decode engine has computed %d tokens of prompts itself, %d of them at most for probes", local, probed)
	}
}
