package picker

import (
	"github.com/grapevine-epp/grapevine/picker/request"
)

// resolved is a request whose priority, session and rewritten model are set.
type resolved struct {
	request *request.Request
	rules   *Rules // of all its stages
	seed    uint64 // of its random choices
}

// nextSeed returns a new seed for the random choices of one request.
func (s *Scheduler) nextSeed() uint64 {
	return s.opts.Seed + s.requests.Add(1)*0xd1342543de82ef95
}

// resolve sets the fields of r that depend on the configuration. Untrusted clients cannot raise
// their priority above their limit.
func (s *Scheduler) resolve(r *request.Request, rules *Rules, seed uint64) resolved {
	r.Priority = rules.Names.Objectives[r.Objective]
	if r.Capped {
		r.Priority = min(r.Priority, r.MaxPriority)
	}
	r.UseSession(rules.Sessions)
	rewrite(r, rules, seed)
	return resolved{request: r, rules: rules, seed: seed}
}

// rewrite sets the model name for the engine. The rewrite header takes precedence.
func rewrite(r *request.Request, rules *Rules, seed uint64) {
	if r.Target != r.Model || r.Fixed {
		return
	}
	if target := rules.Names.Target(r.Model, seed>>7); target != "" {
		r.Target = target
	}
}
