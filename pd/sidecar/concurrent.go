package sidecar

import (
	"context"
	"net/http"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// legs are two legs of a request that are sent at the same time.
type legs struct {
	target         string
	prefill        kvtransfer.Pieces // body of the prefill leg
	set            []byte            // KV transfer fields of the decode leg
	prefillHeader  http.Header
	decodeHeader   http.Header
	needs          bool // decode would wait forever for a failed prefill, so it is cancelled
	waits          bool // decode's response waits until prefill has responded
	reportsCached  bool // prefill's cached tokens replace decode's
	afterPrefillOf func(*prefilled)
}

// lateAnswer is the maximum delay of prefill's response after decode's.
const lateAnswer = time.Second

// together sends both legs and returns their results.
func (x *exchange) together(l legs) (*prefilled, *fault) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.r.Context()))
	dropped, ended := make(chan struct{}), make(chan struct{})
	var p *prefilled
	go func() {
		defer close(ended)
		p = x.prefill(ctx, l.target, l.prefill, l.prefillHeader)
		if l.afterPrefillOf != nil {
			l.afterPrefillOf(p)
		}
		if !p.good() && l.needs {
			close(dropped)
		}
	}()
	d := leg{body: x.body.Pieces(kvtransfer.Edit{Key: keyKVTransfer, Value: l.set}), header: l.decodeHeader, cached: -1, again: true, dropped: dropped}
	if l.waits {
		d.gate = ended
	}
	if l.reportsCached {
		d.late = func() int {
			select {
			case <-ended:
				return x.api.Cached(p.text)
			case <-time.After(lateAnswer):
				return -1
			}
		}
	}
	f := x.decode(d)
	cancel() // decode is done, so prefill has nothing to wait for
	<-ended
	return p, f
}

// inTurn serves a request by simultaneous pairs of legs, trying one prefill endpoint after the
// other, and finally by the decode engine alone.
func (x *exchange) inTurn(pair func(target string) (legs, error)) {
	var last *prefilled
	for i := 0; i < min(maxAttempts, len(x.targets)); i++ {
		target := x.targets[i]
		if i > 0 && x.trials == 0 && !x.s.o.NoFallback && !x.s.budget.Take() { // the decode engine can serve it alone
			x.s.m.unbudgeted.Inc()
			break
		}
		x.report.Target, x.report.Failed = x.place(i), i
		l, err := pair(target)
		if err != nil {
			x.s.m.prefills.WithLabelValues(kvtransfer.Refused.String()).Inc()
			x.blame(i, &prefilled{fault: kvtransfer.Refused, ours: x.r.Context().Err() != nil})
			if x.r.Context().Err() == nil {
				x.s.complain(noRanks, target, err)
			}
			continue
		}
		p, f := x.together(l)
		if f == nil || !f.before || x.r.Context().Err() != nil {
			x.finish(f)
			return
		}
		if last = p; p.fault == kvtransfer.NoFault {
			break // the prefill did not fail
		}
		x.blame(i, p)
		if p.fault == kvtransfer.Died || x.suspected != nil {
			if x.retries(p) { // by a new pair of legs
				i--
				continue
			}
			break
		}
	}
	if last != nil && last.good() {
		x.s.m.retries.WithLabelValues("transfer").Inc()
		x.report.Local = kvtransfer.LocalTransfer
		x.local()
		return
	}
	if last != nil && x.s.o.NoFallback && !x.condemned && last.text != nil {
		x.w.Header().Set("Content-Type", last.header.Get("Content-Type"))
		x.w.WriteHeader(last.status)
		_, _ = x.w.Write(last.text) // the client may have disconnected
		return
	}
	x.fallBack()
}
