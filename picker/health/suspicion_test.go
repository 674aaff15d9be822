package health

import (
	"testing"
	"time"
)

// TestSuspicionsAddUp: three replicas that have each seen one failure of a tenant avoid the endpoint for it,
// as one replica with three failures does. Failures of the tenant count no longer against the endpoint, and a
// success at one replica ends its part.
func TestSuspicionsAddUp(t *testing.T) {
	now := time.Unix(1000, 0)
	const tenant = 7
	fail := func(k *Tracker, c Cause) {
		w := Watch{Traits: Traits{TraitTenant: tenant}}
		k.Begin(&w, now, now.Add(time.Second))
		w.End(now, c)
		for range 2 {
			o := Watch{Traits: Traits{TraitTenant: 8}}
			k.Begin(&o, now, now.Add(time.Second))
			o.End(now, None)
		}
	}
	var replicas [3]Tracker
	share := func() {
		for i := range replicas {
			for j := range replicas {
				if i != j {
					replicas[j].ReceiveSuspicions(string(rune('a'+i)), replicas[i].Suspicions(nil, now), now)
				}
			}
		}
	}
	fail(&replicas[0], Failed)
	fail(&replicas[1], Failed)
	share()
	share() // a repeated report is no new evidence
	for i := range replicas {
		if replicas[i].Avoids(tenant, now) {
			t.Fatalf("replica %d avoids the endpoint after two failures", i)
		}
	}
	fail(&replicas[2], Failed)
	share()
	if !replicas[2].Avoids(tenant, now) {
		t.Fatal("three failures at three replicas: not avoided")
	}
	before := replicas[2].Evidence(now).Bad[Failed]
	fail(&replicas[2], Failed)
	if got := replicas[2].Evidence(now).Bad[Failed]; got != before {
		t.Errorf("%d failures count against the endpoint, want %d", got, before)
	}

	var alone Tracker
	fail(&alone, Failed)
	fail(&alone, Failed)
	alone.ReceiveSuspicions("a", []Suspicion{{Key: tenant, Score: 3.4, Others: 5}}, now)
	if !alone.Avoids(tenant, now) {
		t.Error("two failures here and one elsewhere: not avoided")
	}
	var noise Tracker
	fail(&noise, Failed)
	for i := range 20 { // many replicas with one failure each are chance
		noise.ReceiveSuspicions(string(rune('a'+i)), []Suspicion{{Key: tenant, Score: 1.2, Others: 50}}, now)
	}
	if noise.Avoids(tenant, now) {
		t.Error("avoided after single failures at many replicas")
	}
	var late Tracker
	fail(&late, Failed)
	fail(&late, Failed)
	late.ReceiveSuspicions("a", []Suspicion{{Key: tenant, Score: 3.4, Others: 5}}, now.Add(-2*avoidHalf))
	if late.Avoids(tenant, now) {
		t.Error("avoided by a report of long ago")
	}
}

// TestUnreadAnswers: an answer that was not read is no success where failures are found in the content.
func TestUnreadAnswers(t *testing.T) {
	var k Tracker
	now := time.Unix(1000, 0)
	ask := func(tenant uint64, c Cause, read bool) {
		w := Watch{Traits: Traits{TraitTenant: tenant}, Read: read}
		k.Begin(&w, now, now.Add(time.Second))
		w.End(now, c)
	}
	ask(7, Short, true)
	for range 5 {
		ask(8, None, false)
	}
	ask(7, Short, true)
	if k.Avoids(7, now) {
		t.Error("a tenant is avoided, and the content of no other answer is known")
	}
	for range 5 {
		ask(8, None, true)
	}
	ask(7, Short, true)
	if !k.Avoids(7, now) {
		t.Error("not avoided, though other tenants have whole answers")
	}
}

// TestRefuses: an engine that rejects request after request and has no work has no queue.
func TestRefuses(t *testing.T) {
	var k Tracker
	now := time.Unix(1000, 0)
	reject := func() {
		w := Watch{}
		k.Begin(&w, now, now.Add(time.Second))
		k.SetFull(now, time.Second)
		w.End(now, Void)
		now = now.Add(10 * time.Second)
	}
	for i := range refusals {
		if k.Refuses(now) {
			t.Errorf("after %d rejections: has no queue", i)
		}
		reject()
	}
	if !k.Refuses(now) {
		t.Error("a queue is still full, and the engine has answered nothing")
	}
	var busy [2]Watch
	for i := range busy {
		k.Begin(&busy[i], now, now.Add(time.Minute))
	}
	if k.Refuses(now) {
		t.Error("an engine with requests has no queue")
	}
	for i := range busy {
		busy[i].End(now, None)
	}
	if k.Refuses(now) {
		t.Error("an engine that answers has no queue")
	}
}
