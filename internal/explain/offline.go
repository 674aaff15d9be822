package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/endpoint/saved"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// ErrNoEndpoint is wrapped when Held names an endpoint that is not in the fleet.
var ErrNoEndpoint = errors.New("no such endpoint in the fleet")

// Offline configures a decision without a replica.
type Offline struct {
	Config string // EndpointPickerConfig file; "": the built-in profile
	// Plugins are the types that the configuration may name; nil: Grapevine's types.
	Plugins plugin.Table
	Fleet   string         // file with the output of grapevine status -o json
	Tokens  int            // prompt tokens, instead of an estimate from the body
	Model   string         // for a request without a body; "": any
	Held    map[string]int // prompt tokens cached at endpoints (ip:port)
	Seed    uint64         // for ties and other random choices
	Now     time.Time      // time of the decision and of the saved fleet

	// Past is a stored decision to repeat, with the load, gauges and cached tokens that it stores. Status
	// is then the replica's status page, and Now the time of the decision. Fleet, Tokens, Model and Held
	// are unused.
	Past   *Decision
	Status []byte
}

// Notes of offline decisions.
const (
	noteNoHits = "cache hits are unknown: a saved fleet has no prefix index, so the prompt counts as uncached at every candidate (set --held to change that)"
	noteHeld   = "cached prompt tokens come from --held, all in GPU memory; the prompt counts as uncached at other candidates"
	noteGuess  = "the number of prompt tokens is estimated from the length of the body (--input-tokens sets it)"
	noteFacts  = "the saved fleet has no labels, token loads or learned costs; they count as absent, empty and unknown"
	noteNew    = "sessions are unknown: every session counts as new"
)

// Decide decides about a request with a pool made from the saved fleet. It parses r; a request
// without a body gets one and needs Tokens. Configuration errors are strict.Problems. A refused
// request is a Decision.
func (o *Offline) Decide(r *request.Request) (*Decision, error) {
	rules, notes, err := o.rules()
	if err != nil {
		return nil, err
	}
	status, err := o.fleet()
	if err != nil {
		return nil, err
	}
	if err := o.parse(r); err != nil {
		return nil, err
	}
	pool, err := restore(status, o.Now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Fleet, err)
	}
	held, err := o.holders(pool)
	if err != nil {
		return nil, err
	}
	s, err := picker.New(picker.Options{
		Pool: pool, Rules: rules, Matcher: held, Prompts: o, Records: picker.Retention{Bytes: -1}, Seed: o.Seed, Now: func() time.Time { return o.Now },
	})
	if err != nil {
		return nil, err
	}
	out := &Decision{Notes: append(notes, o.notes(status, r)...)}
	if out.Explanation, err = s.Explain(context.Background(), r); err != nil {
		out.Refused = err.Error()
	}
	out.Prompt.Space = "unknown"
	if o.Past != nil {
		o.compare(out)
	}
	return out, nil
}

// table returns the plugin types that the configuration may name.
func (o *Offline) table() plugin.Table {
	if o.Plugins == nil {
		return pd.Table()
	}
	return o.Plugins
}

func (o *Offline) rules() (*picker.Rules, []string, error) {
	if o.Config == "" {
		return config.Default(config.Options{Table: o.table()}).Rules, nil, nil
	}
	c, problems := config.Load(o.Config, config.Options{Table: o.table()})
	if len(problems) > 0 {
		return nil, nil, strict.Problems(problems)
	}
	var notes []string
	for _, n := range c.Notes {
		notes = append(notes, n.String())
	}
	return c.Rules, notes, nil
}

// parse parses the request, with a generated body if it has none.
func (o *Offline) parse(r *request.Request) (err error) {
	if r.Body == nil {
		model := o.Model
		if o.Past != nil {
			model = cmp.Or(o.Past.Target, o.Past.Model)
		}
		if model == "" {
			model = "any"
		}
		if r.Body, err = json.Marshal(map[string]any{"model": model, "messages": []any{}, "prompt": ""}); err != nil {
			return err
		}
	}
	return request.Parse(r)
}

// fleet is the part of a replica's status that a decision needs.
type fleet struct {
	Endpoints []saved.Endpoint `json:"endpoints"`
}

// fleet returns the endpoints of the decision.
func (o *Offline) fleet() (*fleet, error) {
	if o.Past != nil {
		st, err := parseFleet(o.Status, "the replica's status")
		if err != nil {
			return nil, err
		}
		return o.past(st)
	}
	b, err := os.ReadFile(o.Fleet)
	if err != nil {
		return nil, err
	}
	return parseFleet(b, o.Fleet)
}

// parseFleet decodes a status page. path names it in errors.
func parseFleet(b []byte, path string) (*fleet, error) {
	var st fleet
	if err := json.Unmarshal(b, &st); err != nil {
		return nil, fmt.Errorf("%s: not the output of grapevine status -o json: %w", path, err)
	}
	if len(st.Endpoints) == 0 {
		return nil, fmt.Errorf("%s contains no endpoint", path)
	}
	return &st, nil
}

// restore makes a pool from the saved fleet, as if saved at now.
func restore(st *fleet, now time.Time) (*endpoint.Pool, error) {
	p := endpoint.NewPool(endpoint.PoolOptions{Now: func() time.Time { return now }})
	var specs []endpoint.Spec
	for i := range st.Endpoints {
		spec, ok := st.Endpoints[i].Spec()
		if !ok {
			return nil, fmt.Errorf("endpoints[%d].address: %q is not ip:port", i, st.Endpoints[i].Address)
		}
		specs = append(specs, spec)
	}
	p.Set(specs)
	for i := range st.Endpoints {
		if ep := p.Snapshot().Lookup(st.Endpoints[i].Address); ep != nil {
			st.Endpoints[i].Restore(p, ep, now)
		}
	}
	return p, nil
}

// Release implements picker.Prompts. There is nothing to release.
func (o *Offline) Release(*request.Request) {}

// Fill implements picker.Prompts. Nothing is rendered.
func (o *Offline) Fill(_ context.Context, r *request.Request) {
	switch {
	case o.Past != nil:
		r.InputTokens = o.Past.InputTokens
	case o.Tokens > 0:
		r.InputTokens = o.Tokens
	}
}

func (o *Offline) notes(st *fleet, r *request.Request) []string {
	if o.Past != nil {
		return o.pastNotes(st)
	}
	notes := []string{noteNoHits}
	if len(o.Held) > 0 {
		notes[0] = noteHeld
	}
	if o.Tokens <= 0 && r.InputTokens > 0 {
		notes = append(notes, noteGuess)
	}
	for i := range st.Endpoints {
		if st.Endpoints[i].Facts == nil {
			notes = append(notes, noteFacts)
			break
		}
	}
	if r.Session != "" {
		notes = append(notes, noteNew)
	}
	return notes
}

// holders is a picker.Matcher: cached tokens by endpoint and tier.
type holders map[block.EndpointID][block.NumTiers]int32

func (o *Offline) holders(p *endpoint.Pool) (holders, error) {
	out := holders{}
	if o.Past != nil {
		o.pastHolders(p, out)
		return out, nil
	}
	for address, n := range o.Held {
		ep := p.Snapshot().Lookup(address)
		if ep == nil {
			return nil, fmt.Errorf("%s: %w", address, ErrNoEndpoint)
		}
		out[ep.ID] = [block.NumTiers]int32{block.TierGPU: int32(n)}
	}
	return out, nil
}

// Match implements picker.Matcher.
func (h holders) Match(_ context.Context, r *request.Request, eps []*endpoint.Endpoint, held []cycle.PrefixMatch) {
	for i, ep := range eps {
		left := int32(r.InputTokens)
		for tier, n := range h[ep.ID] {
			held[i].Run.Tokens[tier] = min(n, left)
			left -= held[i].Run.Tokens[tier]
		}
	}
}

// Chosen implements picker.Matcher.
func (holders) Chosen(*request.Request, *endpoint.Endpoint) {}

// Finished implements picker.Matcher.
func (holders) Finished(*request.Request, *endpoint.Endpoint, cycle.PrefixMatch, request.Outcome) {}
