package flow

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// meanWaiting runs the world and returns the mean number of a flow's waiting requests.
func (w *world) meanWaiting(id string, d int64) float64 {
	sum, looks := 0, 0
	for end := w.now + d; w.now < end; looks++ {
		w.until(w.now + 20*ms)
		for _, r := range w.replicas {
			for _, f := range r.queued {
				if f == id {
					sum++
				}
			}
		}
	}
	return float64(sum) / float64(looks)
}

// TestFleetIsStrict: requests of a higher band at one replica precede requests of lower bands at
// other replicas. With eviction they hardly wait, and few more requests are evicted than arrived.
func TestFleetIsStrict(t *testing.T) {
	s := int64(time.Second)
	chat, batch := rules.Request{Flow: "chat", Priority: 10}, rules.Request{Flow: "batch", Priority: -1, Endable: true}
	play := func(capacity int64, mean float64, evict bool) (waiting float64, offered, ended int) {
		o := tenants
		o.TTL, o.Evict = 20*time.Second, evict
		w := newWorld(5, 3, capacity, mean, o)
		w.streamOf(chat, float64(capacity)/mean/3, []float64{1, 0, 0}) // a third of the permits
		w.streamOf(batch, 3*float64(capacity)/mean, []float64{0, .5, .5})
		w.until(10 * s)
		offered, ended = w.flow("chat").offered, w.evicted
		waiting = w.meanWaiting("chat", 30*s)
		t.Logf("%d places, eviction %v: %.2f of chat wait in the mean; at most %d places are held", capacity, evict, waiting, w.most)
		w.check(t)
		return waiting, w.flow("chat").offered - offered, w.evicted - ended
	}
	if waiting, _, _ := play(120, 2, false); waiting > 2 {
		t.Errorf("on average %.2f requests of chat wait while batch runs", waiting)
	}
	patient, _, none := play(24, 20, false)
	served, offered, ended := play(24, 20, true)
	if served > .3*patient || none != 0 || ended > offered+offered/4 {
		t.Errorf("on average %.2f requests of chat wait with eviction, %.2f without; %d evicted for %d arrivals", served, patient, ended, offered)
	}
}

// TestEvictForOthers: a replica evicts for requests that wait at replicas without evictable
// requests if it holds most and there is no room. Its own requests of lower priority do not take
// the freed permits.
func TestEvictForOthers(t *testing.T) {
	held := func(t *testing.T) (*Core, []rules.Handle) {
		c := New(rules.Options{Evict: true})
		c.SetCapacity(1, rules.Capacity{Permits: 4, Endpoints: 1})
		var list []rules.Handle
		for i := range 4 {
			list = append(list, offer(t, c, int64(2+i), rules.Request{Priority: -1, Endable: true}, rules.Dispatched))
		}
		offer(t, c, 8, rules.Request{Priority: -1, Endable: true}, rules.Queued)
		return c, list
	}
	for what, tc := range map[string]struct {
		told map[string][]rules.Gauge
		want int
	}{
		"one waits":              {map[string][]rules.Gauge{"b": {{Priority: 2, Requests: 1, Waiting: 1}}}, 1},
		"two at a time":          {map[string][]rules.Gauge{"b": {{Priority: 0, Requests: 9, Waiting: 9}}}, 2},
		"it has its own":         {map[string][]rules.Gauge{"b": {{Priority: 2, Requests: 1, Waiting: 1}, {Priority: -2, InFlight: 1}}}, 0},
		"another holds more":     {map[string][]rules.Gauge{"b": {{Priority: 2, Requests: 1, Waiting: 1}}, "c": {{Priority: -3, InFlight: 5}}}, 0},
		"another holds less":     {map[string][]rules.Gauge{"b": {{Priority: 2, Requests: 1, Waiting: 1}}, "c": {{Priority: -3, InFlight: 3}}}, 1},
		"of the same priority":   {map[string][]rules.Gauge{"b": {{Priority: -1, Requests: 1, Waiting: 1}}}, 0},
		"of higher, but batch":   {map[string][]rules.Gauge{"b": {{Priority: 0, Requests: 1, Waiting: 1}}}, 1},
		"nobody waits elsewhere": {map[string][]rules.Gauge{"b": {{Priority: 2, InFlight: 1}}}, 0},
	} {
		t.Run(what, func(t *testing.T) {
			c, list := held(t)
			for origin, g := range tc.told {
				c.ReceiveShares(10, origin, g)
			}
			if c.Advance(11); len(c.Events(nil)) > 0 {
				t.Error("a request was evicted before the peers' demand had lasted")
			}
			for origin, g := range tc.told {
				c.ReceiveShares(80*ms, origin, g)
			}
			c.Advance(80 * ms)
			var want []rules.Event
			for i := range tc.want {
				want = append(want, rules.Event{Handle: list[3-i], Outcome: rules.Evicted})
			}
			if diff := cmp.Diff(want, c.Events(nil)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			for i := range tc.want {
				c.Release(81*ms, list[3-i], -1)
			}
			if got := dispatched(c); len(got) > 0 {
				t.Error("permits freed for a peer were taken by a request of lower priority")
			}
		})
	}
}
