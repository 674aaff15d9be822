package health

import (
	"sync"
	"sync/atomic"
	"time"
)

// Prompts records prompts whose requests failed, to distinguish a prompt that crashes engines from
// a faulty engine. It is safe for concurrent use. Its zero value is ready.
type Prompts struct {
	used      atomic.Int32
	onVerdict atomic.Pointer[func(Verdict)]
	mu        sync.Mutex
	last      [maxPrompts]failure
	next      int
}

// failure is a prompt that failed and has not succeeded since.
type failure struct {
	prompt   uint64 // 0: free
	endpoint int    // of the first failure
	many     bool   // failed at other endpoints too
	last     int    // endpoint of the last failure
	died     bool   // an engine died with the prompt in flight
	grave    int    // the first endpoint that died
	killer   bool   // engines of other endpoints died too
	at       time.Time
}

// Verdict is the result of a request with a prompt.
type Verdict struct {
	Prompt   uint64
	Endpoint int // of the failure; unused if Answered
	Answered bool
	Died     bool // the engine died with the prompt in flight
	At       time.Time
}

const (
	maxPrompts = 256
	promptLife = 2 * time.Minute
	// goneWithin is the maximum time between the failures of the requests in flight at an engine that
	// dies and the first refused connection.
	goneWithin = 5 * time.Second
)

// Empty reports whether no prompt is recorded, so that callers need not hash prompts.
func (p *Prompts) Empty() bool { return p.used.Load() == 0 }

// OnVerdict sets the callback for every failure, and for every success of a prompt that had failed
// before. It is used to inform other replicas. f must return quickly.
func (p *Prompts) OnVerdict(f func(Verdict)) { p.onVerdict.Store(&f) }

func (p *Prompts) notify(v Verdict) {
	if f := p.onVerdict.Load(); f != nil {
		(*f)(v)
	}
}

// Merge applies a verdict of another replica. A success clears only failures that preceded it.
func (p *Prompts) Merge(v Verdict) {
	switch {
	case v.Prompt == 0:
	case v.Answered:
		p.acquit(v.Prompt, v.At)
	default:
		p.fail(v)
	}
}

// Failed records that a prompt failed at an endpoint. It reports whether the prompt is at fault
// rather than the endpoint: it failed at another endpoint before and has not succeeded since.
// Prompt 0 is unidentified and ignored.
func (p *Prompts) Failed(prompt uint64, endpoint int, now time.Time) (guilty bool) {
	if prompt == 0 {
		return false
	}
	v := Verdict{Prompt: prompt, Endpoint: endpoint, At: now}
	guilty = p.fail(v)
	p.notify(v)
	return guilty
}

// Died records that the engine of an endpoint died with a prompt in flight.
func (p *Prompts) Died(prompt uint64, endpoint int, now time.Time) {
	if prompt == 0 {
		return
	}
	v := Verdict{Prompt: prompt, Endpoint: endpoint, Died: true, At: now}
	p.fail(v)
	p.notify(v)
}

// Gone records that the engine of an endpoint refuses connections: the prompts that failed there
// last were in flight when it died.
func (p *Prompts) Gone(endpoint int, now time.Time) {
	if p.Empty() {
		return
	}
	var list []Verdict
	p.mu.Lock()
	for i := range p.last {
		f := &p.last[i]
		if f.prompt == 0 || f.last != endpoint || now.Sub(f.at) > goneWithin || f.died && (f.killer || f.grave == endpoint) {
			continue
		}
		f.die(endpoint)
		list = append(list, Verdict{Prompt: f.prompt, Endpoint: endpoint, Died: true, At: f.at})
	}
	p.mu.Unlock()
	for _, v := range list {
		p.notify(v)
	}
}

// die records the death of an endpoint's engine.
func (f *failure) die(endpoint int) {
	if !f.died {
		f.died, f.grave = true, endpoint
	}
	f.killer = f.killer || f.grave != endpoint
}

func (p *Prompts) fail(v Verdict) (guilty bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.last {
		f := &p.last[i]
		if f.prompt != v.Prompt {
			continue
		}
		if v.At.Sub(f.at) > promptLife {
			*f = failure{prompt: v.Prompt, endpoint: v.Endpoint, last: v.Endpoint, at: v.At}
			if v.Died {
				f.die(v.Endpoint)
			}
			return false
		}
		if !v.At.Before(f.at) {
			f.at, f.last = v.At, v.Endpoint
		}
		if v.Died {
			f.die(v.Endpoint)
		}
		f.many = f.many || f.endpoint != v.Endpoint
		return f.many
	}
	f := &p.last[p.next%maxPrompts]
	p.next++
	if f.prompt == 0 {
		p.used.Add(1)
	}
	*f = failure{prompt: v.Prompt, endpoint: v.Endpoint, last: v.Endpoint, at: v.At}
	if v.Died {
		f.die(v.Endpoint)
	}
	return false
}

// Suspected reports whether a prompt has failed at more than one endpoint, or was in flight at an
// engine that died.
func (p *Prompts) Suspected(prompt uint64, now time.Time) bool {
	f, failed := p.failed(prompt, now)
	return failed && (f.many || f.died)
}

// Killer reports whether a prompt was in flight at two engines when they died, and has not been
// answered since.
func (p *Prompts) Killer(prompt uint64, now time.Time) bool {
	f, failed := p.failed(prompt, now)
	return failed && f.killer
}

// Failing reports whether the last request with a prompt failed, at any number of endpoints.
func (p *Prompts) Failing(prompt uint64, now time.Time) bool {
	_, failed := p.failed(prompt, now)
	return failed
}

// failed reports whether a prompt failed recently without a later success, and its record.
func (p *Prompts) failed(prompt uint64, now time.Time) (record failure, failed bool) {
	if prompt == 0 || p.Empty() {
		return failure{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.last {
		if f := &p.last[i]; f.prompt == prompt {
			return *f, now.Sub(f.at) <= promptLife
		}
	}
	return failure{}, false
}

// Succeeded records that a prompt was answered and clears its failures.
func (p *Prompts) Succeeded(prompt uint64, now time.Time) {
	if prompt == 0 || p.Empty() {
		return
	}
	if p.acquit(prompt, now) {
		p.notify(Verdict{Prompt: prompt, Answered: true, At: now})
	}
}

// acquit removes a prompt unless it failed after at. It reports whether a record was removed.
func (p *Prompts) acquit(prompt uint64, at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.last {
		if f := &p.last[i]; f.prompt == prompt && !f.at.After(at) {
			*f = failure{}
			p.used.Add(-1)
			return true
		}
	}
	return false
}
