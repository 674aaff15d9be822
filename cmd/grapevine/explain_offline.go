package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/discovery/strict"
)

// offlineFlags describe a decision without a replica.
type offlineFlags struct {
	config string
	fleet  string
	tokens int
	model  string
	held   []string
	seed   uint64
}

func (f *offlineFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.fleet, "fleet", "", `file with the output of "grapevine status -o json"`)
	fl.StringVar(&f.config, "config", "", "with --fleet: EndpointPickerConfig file (default: the built-in profile)")
	fl.IntVar(&f.tokens, "input-tokens", 0, "with --fleet: prompt tokens, instead of an estimate from --body")
	fl.StringVar(&f.model, "model", "", "with --fleet and without --body: model name of the request")
	fl.StringArrayVar(&f.held, "held", nil, "with --fleet: ip:port=TOKENS, what an endpoint holds of the prompt (repeatable)")
	fl.Uint64Var(&f.seed, "seed", 1, "with --fleet: for ties and other random choices")
}

// used reports whether any flag but --fleet is given.
func (f *offlineFlags) used() bool {
	return f.config != "" || f.tokens != 0 || f.model != "" || len(f.held) > 0 || f.seed != 1
}

// Notes of decisions without a replica.
const (
	noteNoHits = "no hits are known: a saved fleet has no prefix index, so every candidate counts as holding nothing of the prompt (--held says what one holds)"
	noteHeld   = "what is held of the prompt is what --held says, all of it in GPU memory; candidates that it does not name count as holding nothing"
	noteGuess  = "the number of prompt tokens is estimated from the length of the body (--input-tokens sets it)"
	noteFacts  = "the fleet was saved without labels, loads in tokens and learned costs: those count as absent, empty and unknown"
	noteNew    = "sessions are not known: every session counts as new"
)

// explainOffline decides about the request in a pool made of the saved fleet.
func (f *explainFlags) explainOffline(cmd *cobra.Command) ([]explained, error) {
	o := &f.offline
	rules, notes, err := o.rules()
	if err != nil {
		return nil, err
	}
	status, err := readFleet(o.fleet)
	if err != nil {
		return nil, err
	}
	r, err := f.offlineRequest(cmd)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	pool, err := restore(status, now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.fleet, err)
	}
	held, err := o.holders(pool)
	if err != nil {
		return nil, usageError{err}
	}
	s, err := picker.New(picker.Options{
		Pool: pool, Rules: rules, Matcher: held, Prompt: o.fill, Records: -1, Seed: o.seed, Now: func() time.Time { return now },
	})
	if err != nil {
		return nil, err
	}
	out := explained{Notes: append(notes, f.offlineNotes(status, r)...)}
	out.Explanation, err = s.Explain(r)
	if err != nil {
		out.Refused = err.Error()
	}
	out.Prompt.Space = "unknown"
	return []explained{out}, nil
}

func (f *offlineFlags) rules() (*picker.Rules, []string, error) {
	if f.config == "" {
		return config.Default(config.Options{}).Rules, nil, nil
	}
	c, problems := config.Load(f.config, config.Options{})
	if len(problems) > 0 {
		return nil, nil, strict.Problems(problems)
	}
	var notes []string
	for _, n := range c.Notes {
		notes = append(notes, n.String())
	}
	return c.Rules, notes, nil
}

func readFleet(path string) (*server.Status, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var st server.Status
	if err := json.Unmarshal(b, &st); err != nil {
		return nil, fmt.Errorf("%s: not the output of grapevine status -o json: %w", path, err)
	}
	if len(st.Endpoints) == 0 {
		return nil, fmt.Errorf("%s: no endpoint in it", path)
	}
	return &st, nil
}

// restore makes a pool of the saved fleet, as if it were saved at now.
func restore(st *server.Status, now time.Time) (*picker.Pool, error) {
	p := picker.NewPool(picker.PoolOptions{Now: func() time.Time { return now }})
	var specs []picker.EndpointSpec
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

// offlineRequest is the request of --body, or a made-up one of --input-tokens.
func (f *explainFlags) offlineRequest(cmd *cobra.Command) (*picker.Request, error) {
	h, err := f.header()
	if err != nil {
		return nil, usageError{err}
	}
	r := &picker.Request{ID: h.Get("x-request-id"), Path: f.path, Headers: h}
	if cmd.Flags().Changed("subset") {
		r.HasSubset, r.Subset = true, f.subset
	}
	switch {
	case f.body != "":
		if r.Body, err = f.readBody(cmd.InOrStdin()); err != nil {
			return nil, err
		}
	case f.offline.tokens <= 0:
		return nil, usageError{errors.New("--fleet needs a request: --body or --input-tokens")}
	default:
		if r.Body, err = json.Marshal(map[string]any{"model": f.offline.modelName(), "messages": []any{}, "prompt": ""}); err != nil {
			return nil, err
		}
	}
	return r, picker.ParseRequest(r)
}

func (f *offlineFlags) modelName() string {
	if f.model == "" {
		return "any"
	}
	return f.model
}

// fill is the prompt producer: nothing is rendered.
func (f *offlineFlags) fill(r *picker.Request) {
	if f.tokens > 0 {
		r.InputTokens = f.tokens
	}
}

func (f *explainFlags) offlineNotes(st *server.Status, r *picker.Request) []string {
	notes := []string{noteNoHits}
	if len(f.offline.held) > 0 {
		notes[0] = noteHeld
	}
	if f.offline.tokens <= 0 && r.InputTokens > 0 {
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

// holders is the picker.Matcher of --held: tokens by endpoint.
type holders map[indexer.EndpointID]int

func (f *offlineFlags) holders(p *picker.Pool) (holders, error) {
	out := holders{}
	for _, s := range f.held {
		address, number, _ := strings.Cut(s, "=")
		n, err := strconv.Atoi(number)
		if _, bad := netip.ParseAddrPort(address); bad != nil || err != nil || n < 0 {
			return nil, fmt.Errorf("--held %q: want ip:port=TOKENS", s)
		}
		ep := p.Snapshot().Lookup(address)
		if ep == nil {
			return nil, fmt.Errorf("--held %q: the fleet has no such endpoint", s)
		}
		out[ep.ID] = n
	}
	return out, nil
}

// Match implements picker.Matcher.
func (h holders) Match(r *picker.Request, eps []*picker.Endpoint, runs []indexer.Run) {
	for i, ep := range eps {
		runs[i].Tokens[indexer.TierGPU] = int32(min(h[ep.ID], r.InputTokens))
	}
}

// Chosen implements picker.Matcher.
func (holders) Chosen(*picker.Request, *picker.Endpoint) {}

// Finished implements picker.Matcher.
func (holders) Finished(*picker.Request, *picker.Endpoint, indexer.Run, picker.Outcome) {}

var _ picker.Headers = http.Header{}
