package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/explain"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// offlineFlags describe a decision that needs no replica.
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
	fl.StringVar(&f.config, "config", "", "with --fleet, --request-id or --last 1: EndpointPickerConfig file that decides (with --fleet, default: the built-in profile)")
	fl.IntVar(&f.tokens, "input-tokens", 0, "with --fleet: prompt tokens, instead of an estimate from --body")
	fl.StringVar(&f.model, "model", "", "with --fleet and without --body: model name of the request")
	fl.StringArrayVar(&f.held, "held", nil, "with --fleet: ip:port=TOKENS, prompt tokens cached at an endpoint (repeatable)")
	fl.Uint64Var(&f.seed, "seed", 1, "with --fleet: seed of ties and other random choices")
}

// used reports whether a flag is given that only --fleet has.
func (f *offlineFlags) used() bool {
	return f.tokens != 0 || f.model != "" || len(f.held) > 0 || f.seed != 1
}

// explainOffline decides about the request in a pool built from the saved fleet.
func (f *explainFlags) explainOffline(cmd *cobra.Command) ([]explain.Decision, error) {
	held, err := f.offline.holders()
	if err != nil {
		return nil, cli.UsageError{Err: err}
	}
	r, err := f.request(cmd)
	if err != nil {
		return nil, err
	}
	o := explain.Offline{
		Config: f.offline.config, Fleet: f.offline.fleet, Tokens: f.offline.tokens, Model: f.offline.model,
		Held: held, Seed: f.offline.seed, Now: time.Now(), Plugins: f.plugins,
	}
	d, err := o.Decide(r)
	if errors.Is(err, explain.ErrNoEndpoint) {
		return nil, cli.UsageError{Err: fmt.Errorf("--held: %w", err)}
	}
	if err != nil {
		return nil, err
	}
	return []explain.Decision{*d}, nil
}

// repeat decides again about a stored decision's request, with the configuration of --config.
func (f *explainFlags) repeat(cmd *cobra.Command, past *explain.Decision) ([]explain.Decision, error) {
	var status json.RawMessage
	if err := f.get(cmd.Context(), "/status", &status); err != nil {
		return nil, err
	}
	o := explain.Offline{Config: f.offline.config, Plugins: f.plugins, Past: past, Status: status, Seed: f.offline.seed, Now: past.At}
	d, err := o.Decide(&request.Request{ID: past.RequestID, Path: f.path, Headers: http.Header{}})
	if err != nil {
		return nil, err
	}
	return []explain.Decision{*d}, nil
}

// request is the request of --body, or one without a body.
func (f *explainFlags) request(cmd *cobra.Command) (*request.Request, error) {
	h, err := f.header()
	if err != nil {
		return nil, cli.UsageError{Err: err}
	}
	r := &request.Request{ID: h.Get("x-request-id"), Path: f.path, Headers: h}
	if cmd.Flags().Changed("subset") {
		r.HasSubset, r.Subset = true, f.subset
	}
	if f.body != "" {
		r.Body, err = f.readBody(cmd.InOrStdin())
	} else if f.offline.tokens <= 0 {
		err = cli.UsageError{Err: errors.New("--fleet requires a request: --body or --input-tokens")}
	}
	return r, err
}

// holders reads --held: tokens by endpoint.
func (f *offlineFlags) holders() (map[string]int, error) {
	out := map[string]int{}
	for _, s := range f.held {
		address, number, _ := strings.Cut(s, "=")
		n, err := strconv.Atoi(number)
		if _, bad := netip.ParseAddrPort(address); bad != nil || err != nil || n < 0 {
			return nil, fmt.Errorf("--held %q: want ip:port=TOKENS", s)
		}
		out[address] = n
	}
	return out, nil
}
