package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/explain"
)

// explainFlags are the flags of explain.
type explainFlags struct {
	plugins plugin.Table

	adminFlags
	requestID string
	local     bool
	last      int
	body      string
	path      string
	headers   []string
	subset    []string
	expect    string
	offline   offlineFlags
}

func newExplain(p Program) *cobra.Command {
	f := explainFlags{plugins: p.Plugins}
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Explain the choice of an endpoint for a request",
		Long: `Explains one decision: the state of every candidate, the verdict of each filter, every
score with its weight, the choice, the runner-up and the margin.

  --request-id           a past decision that any replica of the group still stores
  --last                 past decisions of the asked replica
  --request-id --config  the same decision under another configuration, with the load, gauges and
                         cached tokens of that moment
  --body                 the decision that a replica would make about a request; nothing is
                         sent to an engine, counted or stored
  --fleet                the same without a replica: a configuration applied to the saved
                         output of "grapevine status -o json". A saved fleet has no prefix
                         index: set the cached part of the prompt with --held

With --expect, the exit code is 1 if another endpoint was chosen, or none.`,
		Example: `  grapevine explain --request-id 7f0c2f6a-1111-4c3e-9d2e-0a1b2c3d4e5f
  grapevine explain --last 20
  grapevine explain --request-id 7f0c2f6a-1111-4c3e-9d2e-0a1b2c3d4e5f --config new-policy.yaml
  grapevine explain --body request.json --path /v1/chat/completions --header x-slo-ttft-ms=300
  grapevine explain --config epp.yaml --fleet status.json --input-tokens 6000 --held 10.0.0.1:8000=4096 --expect 10.0.0.1:8000`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.requestID, "request-id", "", "explain the decision about this x-request-id, or with this x-grapevine-decision, that any replica of the group stores")
	fl.BoolVar(&f.local, "local", false, "with --request-id: ask this replica only")
	fl.IntVar(&f.last, "last", 0, "list the last N decisions; 1 explains the latest one")
	fl.StringVar(&f.body, "body", "", "file with a request body; - for standard input")
	fl.StringVar(&f.path, "path", "/v1/chat/completions", "path of the request")
	fl.StringArrayVar(&f.headers, "header", nil, "NAME=VALUE: a header of the request (repeatable)")
	fl.StringSliceVar(&f.subset, "subset", nil, "ip:port of the endpoints that the proxy allows")
	fl.StringVar(&f.expect, "expect", "", "expected choice, as ip:port")
	f.offline.add(fl)
	return cmd
}

func (f *explainFlags) run(cmd *cobra.Command) error {
	if err := f.check(); err != nil {
		return cli.UsageError{Err: err}
	}
	var list []explain.Decision
	var err error
	switch {
	case f.offline.fleet != "":
		list, err = f.explainOffline(cmd)
	case f.body != "":
		list, err = f.explainLive(cmd)
	default:
		if list, err = f.kept(cmd); err == nil && f.offline.config != "" {
			list, err = f.repeat(cmd, &list[0])
		}
	}
	if err != nil {
		return err
	}
	if err := f.print(cmd.OutOrStdout(), list); err != nil {
		return err
	}
	return f.compare(cmd.ErrOrStderr(), &list[0])
}

func (f *explainFlags) check() error {
	if f.last < 0 || f.last > 1000 {
		return fmt.Errorf("--last %d: want 1 to 1000", f.last)
	}
	kept := f.requestID != "" || f.last > 0
	if f.local && f.requestID == "" {
		return errors.New("--local requires --request-id")
	}
	switch {
	case f.requestID != "" && f.last > 0:
		return errors.New("--request-id and --last cannot be used together")
	case kept && (f.body != "" || f.offline.fleet != ""):
		return errors.New("--request-id and --last cannot be used with --body or --fleet: they explain past decisions")
	case f.expect != "" && f.last > 1:
		return errors.New("--expect requires a single decision")
	case f.offline.fleet == "" && f.offline.used():
		return errors.New("--input-tokens, --model, --held and --seed require --fleet")
	case f.offline.config != "" && f.offline.fleet == "" && f.requestID == "" && f.last != 1:
		return errors.New("--config requires --fleet, --request-id or --last 1")
	}
	if f.expect != "" {
		if _, err := netip.ParseAddrPort(f.expect); err != nil {
			return fmt.Errorf("--expect %q: want ip:port", f.expect)
		}
	}
	_, err := f.header()
	return err
}

// header returns the request's headers.
func (f *explainFlags) header() (http.Header, error) {
	h := http.Header{}
	for _, s := range f.headers {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--header %q: want NAME=VALUE", s)
		}
		h.Set(name, value)
	}
	return h, nil
}

// readBody reads the request body.
func (f *explainFlags) readBody(in io.Reader) ([]byte, error) {
	if f.body == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(f.body)
}

// kept fetches decisions that replicas made. The default is the last one of the asked replica.
func (f *explainFlags) kept(cmd *cobra.Command) ([]explain.Decision, error) {
	query := url.Values{"n": {fmt.Sprint(max(f.last, 1))}}
	if f.requestID != "" {
		query.Set("id", f.requestID)
	}
	if f.local {
		query.Set("local", "")
	}
	var list []explain.Decision
	h, err := f.getWithHeader(cmd.Context(), "/debug/decisions?"+query.Encode(), &list)
	if err != nil {
		return nil, err
	}
	silent := h.Get(admin.HeaderSilent)
	switch {
	case len(list) > 0:
		if len(list) > 1 && f.requestID != "" {
			var names []string
			for i := range list {
				names = append(names, list[i].Replica)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "note: %d replicas decided about this request, and the latest decision is shown: %s\n", len(list), strings.Join(names, ", "))
		}
		return list, nil
	case silent != "":
		return nil, fmt.Errorf("no decision about request %q: these replicas did not answer: %s", f.requestID, silent)
	case f.requestID != "":
		return nil, fmt.Errorf("no replica has a decision about request %q: none was made or it has expired, and no such request is waiting (asked through %s)", f.requestID, f.admin)
	}
	return nil, fmt.Errorf("%s has made no decision yet", f.admin)
}

// explainLive asks a replica for the decision it would make.
func (f *explainFlags) explainLive(cmd *cobra.Command) ([]explain.Decision, error) {
	body, err := f.readBody(cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	query := url.Values{"path": {f.path}}
	if cmd.Flags().Changed("subset") {
		query.Set("subset", strings.Join(f.subset, ","))
	}
	h, err := f.header()
	if err != nil {
		return nil, cli.UsageError{Err: err}
	}
	resp, err := admin.Client(f.admin).Do(cmd.Context(), http.MethodPost, admin.PoolPath(f.pool)+"/debug/explain?"+query.Encode(), h, bytes.NewReader(body))
	if err != nil {
		return nil, cli.UsageIf(err, admin.ErrAddress)
	}
	defer resp.Body.Close()
	list := make([]explain.Decision, 1)
	return list, json.NewDecoder(resp.Body).Decode(&list[0])
}

func (f *explainFlags) print(w io.Writer, list []explain.Decision) error {
	if !f.output.IsText() {
		if f.last > 1 {
			return f.output.Write(w, list)
		}
		return f.output.Write(w, &list[0])
	}
	if f.last > 1 {
		return explain.WriteList(w, list)
	}
	return explain.WriteText(w, &list[0])
}

// compare checks the choice against --expect.
func (f *explainFlags) compare(w io.Writer, e *explain.Decision) error {
	if f.expect == "" {
		return nil
	}
	want, _ := netip.ParseAddrPort(f.expect)
	got, err := netip.ParseAddrPort(e.Choice)
	if err == nil && got == want && e.Refused == "" {
		return nil
	}
	choice := e.Choice
	if choice == "" || e.Refused != "" {
		choice = "none"
	}
	fmt.Fprintf(w, "expected %s, but the choice is %s\n", want, choice)
	return cli.ExitCode(1)
}
