package picker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestPromptsThatKillEnginesAreRefused: a prompt whose engine answers 500 and then closes its port is suspected.
// It is refused once a second engine has died with it in flight.
func TestPromptsThatKillEnginesAreRefused(t *testing.T) {
	s := newScheduler(t, Options{Pool: newPool(6), RefuseKillers: true})
	die := func() *endpoint.Endpoint {
		ep := course(t, s, "killer", []request.Event{{Kind: request.EventHeaders, Status: 500}}, request.Outcome{Status: 500, Complete: true})
		s.prompts.Gone(int(ep.ID), t0.Add(2*time.Second)) // its metrics page is refused
		return ep
	}
	first := die()
	r := chatRequest("killer", 100)
	r.Body = []byte("killer")
	d, err := s.Choose(context.Background(), r)
	if err != nil || len(d.Endpoints) != 1 || d.Tries != request.TriesNone {
		t.Fatalf("after one death: %+v, %v; want one endpoint and no retry", d, err)
	}
	d.Done(request.Outcome{At: t0})
	s.opts.Pool.Set(slices.DeleteFunc(specs(6), func(s endpoint.Spec) bool { return s.Addr.String() == first.Address }))
	die()
	if _, err := s.Choose(context.Background(), r); request.ReasonOf(err) != request.ReasonBadRequest {
		t.Errorf("after two deaths: %v, want a refusal", err)
	}
	course(t, s, "bystander", []request.Event{{Kind: request.EventHeaders, Status: 500}}, request.Outcome{Status: 500, Complete: true})
	other := chatRequest("bystander", 100)
	other.Body = []byte("bystander")
	if s.isSuspect(other, t0) {
		t.Error("a prompt that failed once, at an engine that lives, is suspected")
	}
}

// TestSidecarsReportDeaths: the death of a prefill engine makes the prompt a suspect; its other
// failures do not.
func TestSidecarsReportDeaths(t *testing.T) {
	for fault, want := range map[kvtransfer.Fault]bool{kvtransfer.Died: true, kvtransfer.Failed: false, kvtransfer.Broken: false} {
		pool := newPool(2)
		s := newScheduler(t, Options{Pool: pool})
		r := chatRequest("x", 100)
		r.Body = []byte("x")
		f := &flight{s: s, request: r}
		f.evidence.prompt = r.PromptKey()
		f.SetHeaders = []request.HeaderSet{{Name: request.HeaderPrefiller, Value: pool.Snapshot().Endpoints[1].Address}}
		f.helperFailed(kvtransfer.Leg{Target: 0, Fault: fault}, t0)
		if got := s.isSuspect(r, t0); got != want {
			t.Errorf("fault %v: suspected %v, want %v", fault, got, want)
		}
	}
}

// TestWarmUpWaits: a warm-up is sent once its request has been answered, and never if it failed.
func TestWarmUpWaits(t *testing.T) {
	for status, want := range map[int]bool{200: true, 500: false} {
		f := &flight{warmUpStart: make(chan bool, 1)}
		started := f.warmUpStart
		f.startWarmUp(status/100 == 2)
		f.startWarmUp(true)
		if got := <-started; got != want || len(started) > 0 {
			t.Errorf("status %d: sent %v, want %v", status, got, want)
		}
	}
}

// TestPairsLearnFromReports: a prompt that decode computed although the prefill endpoint answered counts
// against the pair; a fault of the prefill endpoint does not.
func TestPairsLearnFromReports(t *testing.T) {
	for _, c := range []struct {
		report kvtransfer.Report
		status int
		fault  endpoint.PairFault
	}{
		{kvtransfer.Report{Known: true, Target: -1}, 200, endpoint.PairNothing},
		{kvtransfer.Report{Known: true, Target: -1, Local: kvtransfer.LocalTransfer}, 200, endpoint.PairTransfer},
		{kvtransfer.Report{Known: true, Target: -1, Local: kvtransfer.LocalLate}, 200, endpoint.PairLate},
		{kvtransfer.Report{Known: true, Target: 0}, 200, endpoint.PairWorks},
		{kvtransfer.Report{Known: true, Target: -1, Failed: 1, Faults: kvtransfer.Faults{{Target: 0, Fault: kvtransfer.Refused}}}, 200, endpoint.PairWorks},
		{kvtransfer.Report{Known: true, Target: -1}, 503, endpoint.PairWorks},
		{kvtransfer.Report{}, 200, endpoint.PairWorks},
	} {
		pool := newPool(2)
		s := newScheduler(t, Options{Pool: pool})
		eps := pool.Snapshot().Endpoints
		for range 5 {
			f := &flight{s: s, request: chatRequest("x", 100), ep: eps[0], helpers: make([]helper, 1)}
			f.helpers[0].Leads = true
			f.SetHeaders = []request.HeaderSet{{Name: request.HeaderPrefiller, Value: eps[1].Address}}
			f.readTransferReport(&request.Event{Status: c.status, At: t0, KVTransfer: c.report})
		}
		got := endpoint.PairWorks
		for _, r := range pool.Splits().Records() {
			got = r.Fault
		}
		if off := !pool.Splits().Works(eps[1], eps[0]); got != c.fault || off != (c.fault != endpoint.PairWorks) {
			t.Errorf("report %+v, status %d: fault %v, off %v, want %v", c.report, c.status, got, off, c.fault)
		}
	}
}
