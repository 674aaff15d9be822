package health

import (
	"testing"
	"time"
)

// TestAvoidances: a model that fails at an endpoint where others succeed is avoided there. It is tried
// again after twenty seconds and then at growing intervals, and returns with a success.
func TestAvoidances(t *testing.T) {
	var tr Tracker
	now := time.Unix(1000, 0)
	const base, adapter = 1, 2
	ask := func(model uint64, c Cause) {
		w := Watch{Traits: Traits{model}}
		tr.Begin(&w, now, now.Add(time.Second))
		now = now.Add(100 * time.Millisecond)
		w.End(now, c)
	}
	for range 5 { // all models fail, so it is not the model
		ask(adapter, Failed)
		ask(base, Failed)
	}
	if tr.Avoids(adapter, now) || tr.Avoids(base, now) {
		t.Fatal("a model is passed over at an endpoint that fails all")
	}
	tr.ClearModels()
	for range 2 {
		ask(adapter, Failed)
		ask(base, None)
		ask(base, None)
	}
	if tr.Avoids(adapter, now) {
		t.Error("passed over after two failures")
	}
	ask(adapter, Failed)
	for _, wait := range []int{20, 40, 80, 160, 160} {
		wait := time.Duration(wait) * time.Second
		if !tr.Avoids(adapter, now.Add(wait-1)) || tr.Avoids(base, now) || tr.AvoidedCount() != 1 {
			t.Fatalf("not passed over for %v", wait)
		}
		now = now.Add(wait)
		if tr.Avoids(adapter, now) {
			t.Fatalf("still passed over after %v", wait)
		}
		w := Watch{Traits: Traits{adapter}}
		tr.Begin(&w, now, now.Add(time.Second))
		if !tr.Avoids(adapter, now.Add(4*time.Second)) || tr.Avoids(adapter, now.Add(6*time.Second)) {
			t.Error("a second request goes there before the first has ended, or none ever does")
		}
		w.End(now, Broken)
	}
	now = now.Add(160 * time.Second)
	ask(adapter, None)
	if tr.Avoids(adapter, now) || tr.AvoidedCount() != 0 {
		t.Error("still passed over after an answer")
	}
}

// TestAvoidsFew: of many failing models, some are avoided. Answered models and single failures take
// no slot.
func TestAvoidsFew(t *testing.T) {
	var tr Tracker
	now := time.Unix(1000, 0)
	end := func(model uint64, c Cause) {
		w := Watch{Traits: Traits{model}}
		tr.Begin(&w, now, now.Add(time.Second))
		w.End(now, c)
	}
	for round := range 5 {
		for m := range uint64(100) {
			end(100+m, Failed)
			end(0, None)
			end(1, None)
		}
		if round < 3 {
			continue
		}
		for range 4 {
			end(7, Failed)
			end(1, None)
		}
	}
	if n := tr.AvoidedCount(); n > maxAvoidances {
		t.Errorf("%d models are passed over", n)
	}
	if !tr.Avoids(7, now) {
		t.Error("one that fails again and again is not passed over, for others that failed once each")
	}
	if tr.Avoids(1, now) || tr.Avoids(0, now) {
		t.Error("one that is answered is passed over")
	}
}

// TestAvoidsNoneAlike: if requests of all models fail at the same rate, as at an overloaded engine,
// no model is avoided. A model that fails far more often than the others is.
func TestAvoidsNoneAlike(t *testing.T) {
	f := func(share [2]int, want bool) {
		t.Helper()
		var tr Tracker
		now, seen := time.Unix(1000, 0), false
		for i := range 600 {
			now = now.Add(100 * time.Millisecond)
			model, c := uint64(i%2), None
			if i*7919%100 < share[model] {
				c = Cut
			}
			w := Watch{Traits: Traits{model + 1}}
			tr.Begin(&w, now, now.Add(time.Second))
			w.End(now, c)
			seen = seen || tr.AvoidedCount() > 0
		}
		if seen != want {
			t.Errorf("of two models %v of a hundred fail: passed over: %v", share, seen)
		}
	}
	f([2]int{0, 90}, true)
	f([2]int{5, 70}, true)
	f([2]int{40, 40}, false)
	f([2]int{70, 70}, false)
	f([2]int{2, 2}, false)
}

// TestAvoidsClients: an endpoint that declines one client and serves others is avoided by this
// client after two failures. A client that is declined does not make the endpoint fail a kind of
// request.
func TestAvoidsClients(t *testing.T) {
	var k Tracker
	now := time.Unix(1000, 0)
	ask := func(client uint64, c Cause) {
		w := Watch{Traits: Traits{1, client, 99}}
		k.Begin(&w, now, now.Add(time.Second))
		w.End(now, c)
		now = now.Add(100 * time.Millisecond)
	}
	ask(7, Declined)
	for range 3 {
		ask(0, None) // unnamed
	}
	if k.Avoids(7, now) {
		t.Error("avoided after one failure")
	}
	ask(7, Declined)
	if !k.Avoids(7, now) {
		t.Error("not avoided after two failures in a row")
	}
	if k.Avoids(99, now) || k.Avoids(1, now) {
		t.Error("one client's failures count against all requests of its kind")
	}
	for i := range 4 {
		ask(uint64(20+i), Halted)
	}
	if k.Avoids(99, now) {
		t.Error("a kind is avoided though no other kind was answered")
	}
	now = now.Add(21 * time.Second)
	ask(7, None)
	if k.Avoids(7, now) {
		t.Error("still avoided after a good trial")
	}
}

// TestAvoidsKinds: an endpoint that fails one kind of request and serves others is avoided by
// requests of this kind.
func TestAvoidsKinds(t *testing.T) {
	var k Tracker
	now := time.Unix(1000, 0)
	for i := range 8 {
		c := None
		if i%2 == 0 {
			c = Halted
		}
		w := Watch{Traits: Traits{1, 0, uint64(50 + i%2)}}
		k.Begin(&w, now, now.Add(time.Second))
		w.End(now, c)
	}
	if !k.Avoids(50, now) || k.Avoids(51, now) || k.Avoids(1, now) {
		t.Errorf("kinds avoided: %v %v, model %v", k.Avoids(50, now), k.Avoids(51, now), k.Avoids(1, now))
	}
}
