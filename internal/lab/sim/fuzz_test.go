package sim

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// FuzzRequest checks that every body gets a response or an error, and that its planned work can be
// computed.
func FuzzRequest(f *testing.F) {
	e, err := Open(fast(Options{Core: smallCore()}))
	if err != nil {
		f.Fatal(err)
	}
	defer e.Close()
	for _, seed := range []string{
		`{"prompt":"x"}`, `{"prompt":[1,2]}`, `{"prompt":[[1],[2]],"n":3}`, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"stop":["e"]}`,
		`{"prompt":"x","max_tokens":1600}`, `{"prompt":"x","stop":"a","min_tokens":-5,"seed":-1}`, `{`, `[]`, `{"prompt":["",""]}`, `{"stop":null,"prompt":"x"}`,
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, body []byte, chat bool) {
		p, prompts, err := e.parse(body, chat)
		if err != nil {
			return
		}
		seqs, err := e.plan(p, prompts, chat)
		if err != nil {
			return
		}
		for _, s := range seqs {
			if len(s.ends) != len(s.output) || len(s.output) == 0 || s.ends[len(s.ends)-1] != len(s.text) {
				t.Fatalf("%d ends, %d tokens, %d bytes", len(s.ends), len(s.output), len(s.text))
			}
		}
		core := e.current().cores[0]
		for _, s := range seqs {
			core.Submit(s.job)
		}
		for _, s := range seqs {
			for over := false; !over; {
				select {
				case <-s.job.Notify:
				case <-time.After(testkit.HangTimeout):
					t.Fatalf("no end of %q", body)
				}
				if _, _, over, err = s.job.State(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// TestNothingIsLeft: engines that start and stop under load leave no goroutine.
func TestNothingIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 3 {
		var engines [4]*Engine
		for i := range engines {
			var err error
			if engines[i], err = Open(Options{Core: smallCore(), Ranks: 2, Events: &EventOptions{}}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		for i := range 12 {
			go func() {
				_, _ = try(ctx, engines[i%4], "POST", "/v1/completions", `{"prompt":"x","max_tokens":1000,"ignore_eos":true,"stream":true}`)
				ended <- struct{}{}
			}()
		}
		testkit.Await(t, "all run", func() bool {
			n := 0
			for _, e := range engines {
				for _, s := range e.Stats() {
					n += s.Engine.Running
				}
			}
			return n == 12
		})
		engines[0].Hang(faults.HangAll)
		for _, e := range engines {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
		cancel()
		for range 12 {
			<-ended
		}
	}
	testkit.Await(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	buf := make([]byte, 1<<16)
	if s := string(buf[:runtime.Stack(buf, true)]); strings.Contains(s, "core.(*Core)") {
		t.Errorf("a core lives on:\n%s", s)
	}
}
