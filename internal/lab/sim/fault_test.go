package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/events/zmtp"
	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

func TestRefusals(t *testing.T) {
	e := open(t, fast(Options{Core: smallCore()}))
	statuses := func(n int) (list []int) {
		for range n {
			list = append(list, do(t, e, "POST", "/v1/completions", `{"prompt":"x","max_tokens":1}`).status)
		}
		return list
	}
	for _, c := range []struct{ faults, want string }{
		{`{"error_next":2}`, "[500 500 200]"},
		{`{"error_next":1,"error_status":503}`, "[503 200 200]"},
		{`{}`, "[200 200 200]"},
	} {
		if r := do(t, e, "PUT", "/sim/faults", c.faults); r.status != 200 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		if got := fmt.Sprint(statuses(3)); got != c.want {
			t.Errorf("%s: %s, want %s", c.faults, got, c.want)
		}
	}
	e.SetFaults(faults.Faults{ErrorShare: 0.25})
	if got := strings.Count(fmt.Sprint(statuses(20)), "500"); got != 5 {
		t.Errorf("%d of 20 refused, want 5", got)
	}
	all := `{"error_next":0,"error_share":0,"slow":2.5,"hang":"engine","events":{"drop":0.5,"duplicate":0.25,"delay":"1.5s","replay_off":true,"replay_holes":0.1}}`
	if r := do(t, e, "PUT", "/sim/faults", all); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	want := faults.Faults{Slow: 2.5, Hang: faults.HangEngine, Events: kvstream.Faults{Drop: .5, Duplicate: .25, Delay: 1500 * time.Millisecond, ReplayOff: true, ReplayHoles: .1}}
	if got := e.Faults(); got != want {
		t.Errorf("faults %+v, want %+v", got, want)
	}
	if r := do(t, e, "PUT", "/sim/faults", `{"hang":"up"}`); r.status != 400 {
		t.Errorf("unknown hang: %d", r.status)
	}
}

func TestHang(t *testing.T) {
	e := open(t, fast(Options{Core: smallCore()}))
	answers := func(method, path string, want bool) error {
		wait := 50 * time.Millisecond // time to wait for a response that must not arrive
		if want {
			wait = testkit.HangTimeout
		}
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		_, err := try(ctx, e, method, path, `{"prompt":"x","max_tokens":1}`)
		return err
	}
	for _, c := range []struct {
		hang            faults.Hang
		healthy, served bool
	}{{faults.HangEngine, true, false}, {faults.HangAll, false, false}, {faults.HangFrozen, false, false}, {faults.HangNone, true, true}} {
		e.Hang(c.hang)
		if err := answers("GET", "/health", c.healthy); (err == nil) != c.healthy {
			t.Errorf("hang %q: health %v", c.hang, err)
		}
		if err := answers("POST", "/v1/completions", c.served); (err == nil) != c.served {
			t.Errorf("hang %q: completion %v", c.hang, err)
		}
	}
	testkit.Await(t, "no request is left", idle(e))
}

// TestResets checks that a share of connections is reset, before the response or after some of its
// tokens.
func TestResets(t *testing.T) {
	e := open(t, fast(Options{Core: smallCore()}))
	broken := func(n int, body string) (count int, statuses []int) {
		for range n {
			r, err := try(context.Background(), e, "POST", "/v1/completions", body)
			if err != nil {
				count++
				continue
			}
			statuses = append(statuses, r.status)
		}
		return count, statuses
	}
	e.SetFaults(faults.Faults{ResetShare: .5})
	if n, rest := broken(8, `{"prompt":"x","max_tokens":1}`); n != 4 || fmt.Sprint(rest) != "[200 200 200 200]" {
		t.Errorf("%d of 8 were reset, want 4; the others %v", n, rest)
	}
	e.SetFaults(faults.Faults{ResetShare: 1, ResetAfter: 3})
	if n, rest := broken(2, `{"prompt":"x","max_tokens":9,"ignore_eos":true,"stream":true}`); n != 2 {
		t.Errorf("%d of 2 streams broke off; the others %v", n, rest)
	}
	if n, _ := broken(2, `{"prompt":"x","max_tokens":2,"stream":true}`); n != 0 {
		t.Errorf("%d streams broke off that end before", n)
	}
	if r := do(t, e, "PUT", "/sim/faults", `{"reset_share":1,"for":"1ms"}`); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	testkit.Await(t, "the fault ends by itself", func() bool { return e.Faults() == faults.Faults{} })
}

// TestDeaths checks that an engine dies of a poisonous prompt and restarts, and that repeated
// deaths continue until the fault is cleared.
func TestDeaths(t *testing.T) {
	e := open(t, fast(Options{Core: smallCore()}))
	serves := func() bool {
		r, err := try(context.Background(), e, "POST", "/v1/completions", `{"prompt":"x","max_tokens":1}`)
		return err == nil && r.status == 200
	}
	life := func() float64 {
		if st := e.current(); st != nil {
			return float64(st.start.UnixNano())
		}
		return 0
	}
	first := life()
	e.SetFaults(faults.Faults{Poison: "arsenic"})
	if r, err := try(context.Background(), e, "POST", "/v1/completions", `{"prompt":"some arsenic","max_tokens":1}`); err == nil {
		t.Errorf("poison was answered with %d", r.status)
	}
	testkit.Await(t, "another life", func() bool { return life() > first && serves() })

	second := life()
	if r := do(t, e, "PUT", "/sim/faults", `{"up":"1ms","down":"1ms"}`); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	testkit.Await(t, "a third life", func() bool { return life() > second })
	third := life()
	testkit.Await(t, "a fourth", func() bool { return life() > third })
	e.SetFaults(faults.Faults{})
	testkit.Await(t, "an end of it", func() bool { before := life(); return before > 0 && serves() && life() == before })
}

func TestDisconnectAborts(t *testing.T) {
	e := open(t, Options{Core: smallCore(), Speed: 1})
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error)
	go func() {
		_, err := try(ctx, e, "POST", "/v1/completions", `{"prompt":"x","max_tokens":1000,"ignore_eos":true,"stream":true}`)
		gone <- err
	}()
	testkit.Await(t, "the request runs", func() bool { return e.Stats()[0].Engine.Running == 1 })
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	testkit.Await(t, "the request is aborted", idle(e))
	if s := e.Stats()[0].Engine; s.Aborted != 1 || s.Finished != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestStartDelay(t *testing.T) {
	t.Parallel()
	e := open(t, fast(Options{Core: smallCore(), StartDelay: 2 * time.Second}))
	ready := func() bool {
		health := do(t, e, "GET", "/health", "").status
		answer := do(t, e, "POST", "/v1/completions", `{"prompt":"x"}`).status
		return health == 200 && answer == 200
	}
	if ready() {
		t.Error("ready at once")
	}
	testkit.Await(t, "ready", ready)
}

func TestSlow(t *testing.T) {
	e := open(t, Options{Core: smallCore(), Speed: 100})
	took := func() time.Duration {
		begun := time.Now()
		do(t, e, "POST", "/v1/completions", `{"prompt":"x","max_tokens":20,"ignore_eos":true}`)
		return time.Since(begun)
	}
	e.SetFaults(faults.Faults{Slow: 20}) // 20 steps of 18 ms, 100 times faster, 20 times slower
	if d := took(); d < 72*time.Millisecond {
		t.Errorf("slowed down, 20 steps took %v", d)
	}
}

// live is a subscriber to rank 0.
func live(t *testing.T, e *Engine) (next func() (seq uint64, err error)) {
	t.Helper()
	pub, _ := e.EventAddrs()
	c, err := zmtp.Dial(context.Background(), "tcp://"+pub[0], zmtp.Options{Handshake: testkit.HangTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Subscribe(""); err != nil {
		t.Fatal(err)
	}
	c.SetRecvDeadline(time.Now().Add(testkit.HangTimeout))
	testkit.Await(t, "subscribed", func() bool { return e.Stats()[0].Events.Subscribers > 0 })
	var m zmtp.Message
	return func() (uint64, error) {
		if err := c.Recv(&m); err != nil {
			return 0, err
		}
		f := m.Frame(1)
		return uint64(f[7]) | uint64(f[6])<<8, nil
	}
}

func (e *Engine) storeSomething(t *testing.T, salt string) {
	t.Helper()
	do(t, e, "POST", "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1,"cache_salt":%q}`, strings.Repeat(" prompt", 20), salt))
}

func TestRestart(t *testing.T) {
	for _, c := range []struct {
		name string
		o    RestartOptions
		want uint64
		cut  bool
	}{
		{"anew", RestartOptions{Down: 20 * time.Millisecond}, 0, true},
		{"ahead", RestartOptions{SeqAhead: 5}, 7, true},
		{"unseen", RestartOptions{SeqAhead: 1, KeepStream: true}, 3, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := open(t, fast(Options{Core: smallCore(), Events: &EventOptions{}}))
			addr := e.Addr()
			pubs, _ := e.EventAddrs()
			next := live(t, e)
			for seq := range uint64(2) {
				e.storeSomething(t, fmt.Sprint("before", seq))
				if got, err := next(); got != seq || err != nil {
					t.Fatalf("batch %d: %d, %v", seq, got, err)
				}
			}
			if err := e.Restart(c.o); err != nil {
				t.Fatal(err)
			}
			if again, _ := e.EventAddrs(); e.Addr() != addr || again[0] != pubs[0] {
				t.Errorf("moved from %s %v to %s %v", addr, pubs, e.Addr(), again)
			}
			if c.cut {
				if seq, err := next(); err == nil {
					t.Fatalf("batch %d on a connection that should be broken", seq)
				}
				next = live(t, e)
			}
			e.storeSomething(t, "after")
			if got, err := next(); got != c.want || err != nil {
				t.Errorf("first batch after the restart is %d, %v, want %d", got, err, c.want)
			}
			if s := e.Stats()[0].Engine; s.HitTokens != 0 || s.Finished != 1 {
				t.Errorf("the restarted engine remembers: %+v", s)
			}
		})
	}
}

func TestRestartWaitsForItsPort(t *testing.T) {
	e := open(t, fast(Options{Core: smallCore()}))
	back := make(chan error)
	go func() { back <- e.Restart(RestartOptions{Down: 100 * time.Millisecond}) }()
	testkit.Await(t, "the engine is down", func() bool { return e.current() == nil })
	var other net.Listener
	testkit.Await(t, "its port is free", func() (ok bool) {
		var err error
		other, err = net.Listen("tcp", e.Addr())
		return err == nil
	})
	time.AfterFunc(200*time.Millisecond, func() { _ = other.Close() })
	if err := <-back; err != nil {
		t.Fatal(err)
	}
	if r := do(t, e, "GET", "/health", ""); r.status != 200 {
		t.Errorf("status %d", r.status)
	}
}

func TestRestartBreaksRequests(t *testing.T) {
	e := open(t, Options{Core: smallCore(), Speed: 1})
	broken := make(chan error)
	go func() {
		_, err := try(context.Background(), e, "POST", "/v1/completions", `{"prompt":"x","max_tokens":1000,"ignore_eos":true,"stream":true}`)
		broken <- err
	}()
	testkit.Await(t, "the request runs", func() bool { return e.Stats()[0].Engine.Running == 1 })
	if r := do(t, e, "POST", "/sim/restart", `{"down":"20ms"}`); r.status != 202 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if err := <-broken; err == nil {
		t.Error("the request survived the restart")
	}
	testkit.Await(t, "back", func() bool {
		r, err := try(context.Background(), e, "GET", "/health", "")
		return err == nil && r.status == 200
	})
}

func TestEventFaults(t *testing.T) {
	e := open(t, fast(Options{Core: smallCore(), Events: &EventOptions{}}))
	next := live(t, e)
	e.SetFaults(faults.Faults{Events: kvstream.Faults{DropNext: 1}})
	for i := range 3 {
		e.storeSomething(t, fmt.Sprint(i))
	}
	for want := uint64(1); want < 3; want++ {
		if got, err := next(); got != want || err != nil {
			t.Errorf("batch %d, %v, want %d", got, err, want)
		}
	}
}
