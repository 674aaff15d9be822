package health

import (
	"sync"
	"sync/atomic"
	"time"
)

// Prompts remembers prompts whose requests failed, to tell a prompt that kills
// engines from an engine that fails. It is safe for concurrent use; its zero
// value is ready.
type Prompts struct {
	used atomic.Int32
	mu   sync.Mutex
	last [maxPrompts]failure
	next int
}

// failure is a prompt that failed and has not succeeded since.
type failure struct {
	prompt   uint64 // 0: free
	endpoint int    // of the first failure
	many     bool   // failed at others too
	at       time.Time
}

const (
	maxPrompts = 256
	promptLife = 2 * time.Minute
)

// Empty reports whether no prompt is remembered, so that none need be named.
func (p *Prompts) Empty() bool { return p.used.Load() == 0 }

// Failed notes that a prompt failed at an endpoint and reports whether the
// prompt, rather than the endpoint, is to blame: it failed elsewhere before, and
// has succeeded nowhere since. Prompt 0 is one that has no name.
func (p *Prompts) Failed(prompt uint64, endpoint int, now time.Time) (guilty bool) {
	if prompt == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.last {
		f := &p.last[i]
		if f.prompt != prompt {
			continue
		}
		if now.Sub(f.at) > promptLife {
			*f = failure{prompt: prompt, endpoint: endpoint, at: now}
			return false
		}
		f.at = now
		f.many = f.many || f.endpoint != endpoint
		return f.many
	}
	f := &p.last[p.next%maxPrompts]
	p.next++
	if f.prompt == 0 {
		p.used.Add(1)
	}
	*f = failure{prompt: prompt, endpoint: endpoint, at: now}
	return false
}

// Suspected reports whether a prompt has failed at more than one endpoint.
func (p *Prompts) Suspected(prompt uint64, now time.Time) bool {
	if prompt == 0 || p.Empty() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.last {
		if f := &p.last[i]; f.prompt == prompt {
			return f.many && now.Sub(f.at) <= promptLife
		}
	}
	return false
}

// Succeeded notes that a prompt was answered: it is innocent.
func (p *Prompts) Succeeded(prompt uint64) {
	if prompt == 0 || p.Empty() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.last {
		if p.last[i].prompt == prompt {
			p.last[i] = failure{}
			p.used.Add(-1)
			return
		}
	}
}
