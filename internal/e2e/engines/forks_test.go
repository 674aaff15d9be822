//go:build engines

package engines

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// forks starts engines from one process that has imported vLLM.
type forks struct {
	mu  sync.Mutex
	in  *json.Encoder
	out *bufio.Scanner
}

func startForks(t *testing.T) *forks {
	t.Helper()
	cmd := exec.Command(part(t, "venv", "bin", "python"), filepath.Join("testdata", "fork.py"))
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "VLLM_CPU_KVCACHE_SPACE=1",
		"VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES=", "VLLM_HOST_IP=127.0.0.1", "GLOO_SOCKET_IFNAME=lo",
		"VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1", "UCX_TLS=tcp,sm,self", "UCX_NET_DEVICES=lo")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(t.TempDir(), "forks.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &forks{in: json.NewEncoder(in), out: bufio.NewScanner(out)}
}

// start starts an engine and returns its process group.
func (f *forks) start(engine any) (group int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.in.Encode(engine) != nil {
		return 0
	}
	for f.out.Scan() {
		if n, _ := fmt.Sscan(f.out.Text(), &group); n == 1 { // other lines are the modules'
			return group
		}
	}
	return 0
}

// forked is an engine that is started again whenever it has died.
type forked struct {
	at, url string
	log     string
	group   atomic.Int64
	starts  atomic.Int64
}

// lease is the time in seconds that the forked engines keep unread blocks.
const lease = 3

// start starts an engine of a pair on ports of its own.
func (f *forks) engine(t *testing.T, model string) *forked {
	t.Helper()
	ports := freePorts(t, 2)
	e := &forked{at: fmt.Sprint("127.0.0.1:", ports[0]), log: filepath.Join(t.TempDir(), "vllm.log")}
	e.url = "http://" + e.at
	run := map[string]any{
		"log": e.log, "env": map[string]string{"VLLM_NIXL_SIDE_CHANNEL_PORT": fmt.Sprint(ports[1])},
		"args": []string{
			"serve", model, "--host", "127.0.0.1", "--port", fmt.Sprint(ports[0]), "--served-model-name", tiny, "--dtype", "float32", "--max-model-len", "4096",
			"--block-size", fmt.Sprint(tinyBlock), "--enforce-eager", "--max-num-seqs", "8", "--disable-uvicorn-access-log", "--enable-prefix-caching",
			"--num-gpu-blocks-override", "500", "--max-num-batched-tokens", "2048",
			"--kv-transfer-config", fmt.Sprintf(`{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_buffer_device":"cpu","kv_connector_extra_config":{"kv_lease_duration":%d}}`, lease),
		},
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				_ = syscall.Kill(-int(e.group.Load()), syscall.SIGKILL)
				return
			case <-tick.C:
			}
			if group := int(e.group.Load()); group == 0 || syscall.Kill(group, 0) != nil {
				if group != 0 {
					_ = syscall.Kill(-group, syscall.SIGKILL) // its worker
				}
				e.group.Store(int64(f.start(run)))
				e.starts.Add(1)
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-ended
		if t.Failed() {
			text, _ := os.ReadFile(e.log)
			t.Logf("log of the engine at %s:\n%s", e.url, tail(string(text)))
		}
	})
	return e
}

// ready waits until the engine serves.
func (e *forked) ready(t *testing.T) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if resp, err := http.Get(e.url + "/health"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Since(began) > startsWithin {
			t.Fatalf("the engine at %s does not start", e.url)
		}
	}
}

func (e *forked) signal(s syscall.Signal) { _ = syscall.Kill(-int(e.group.Load()), s) }

// byteVocabulary is the number of tokens of a model whose tokens are bytes.
const byteVocabulary = 384

// writeBytes writes the folder of a model whose tokens are bytes. It starts much faster than others.
func writeBytes(t *testing.T) string {
	t.Helper()
	dir, vocab := t.TempDir(), map[string]int{}
	spare := 256
	for b := range 256 { // the byte-level alphabet of BPE tokenizers
		r := rune(b)
		if b < '!' || b > '~' && b < 0xa1 || b == 0xad {
			r, spare = rune(spare), spare+1
		}
		vocab[string(r)] = b
	}
	added := []map[string]any{{"id": 256, "content": "<end>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}}
	for i := 257; i < byteVocabulary; i++ { // pairs, so that most of the model's tokens are text
		vocab[string([]rune{rune('a' + i%26), rune('A' + i/26%26)})] = i
	}
	byteLevel := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	for name, value := range map[string]any{
		"tokenizer.json": map[string]any{
			"version": "1.0", "added_tokens": added, "pre_tokenizer": byteLevel, "decoder": byteLevel,
			"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}, "fuse_unk": false, "byte_fallback": false},
		},
		"tokenizer_config.json": map[string]any{
			"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "pad_token": "<end>", "model_max_length": 4096,
			"chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:",
		},
	} {
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := strings.NewReplacer("151936", fmt.Sprint(byteVocabulary), "151643", "256", "151645", "256").Replace(tinyConfig)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	writeWeights(t, dir, byteVocabulary)
	return dir
}
