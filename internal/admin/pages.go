package admin

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/problems"
)

//go:embed status.html
var statusHTML string

var statusPage = template.Must(template.New("status").Parse(statusHTML))

// maxDecisions is the maximum number of decisions in one response of /debug/decisions.
const maxDecisions = 1000

func writeJSON(w http.ResponseWriter, code int, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(cli.AppendPrintable(nil, b.Bytes()))
}

// unlessStalled answers 503 while loops of the process are stalled, without asking them
// anything: the page's own function might wait for the same mutex.
func unlessStalled(stalled func() []string, page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if stalled != nil {
			if names := stalled(); len(names) > 0 {
				http.Error(w, "stalled: "+strings.Join(names, ", "), http.StatusServiceUnavailable)
				return
			}
		}
		page(w, r)
	}
}

// readyz answers 200 if every check is ready, and 503 otherwise. With ?verbose it lists all checks,
// otherwise only those not ready.
func readyz(ready func() []Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		verbose := r.URL.Query().Has("verbose")
		code := http.StatusOK
		var b bytes.Buffer
		for _, c := range ready() {
			mark := "+"
			if !c.Ready {
				mark, code = "-", http.StatusServiceUnavailable
			}
			if !verbose && c.Ready {
				continue
			}
			fmt.Fprintf(&b, "[%s] %s", mark, c.Name)
			if c.Reason != "" {
				fmt.Fprintf(&b, ": %s", c.Reason)
			}
			b.WriteByte('\n')
		}
		if code == http.StatusOK {
			b.WriteString("ready\n")
		} else {
			b.WriteString("not ready\n")
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		_, _ = w.Write(cli.AppendPrintable(nil, b.Bytes()))
	}
}

// shown is the data for the status page.
type shown struct {
	Status  template.JS
	Nonce   string // for the page's own script and style
	Runbook string // address, without the anchor
}

type nonceKey struct{}

func withNonce(ctx context.Context, nonce string) context.Context {
	return context.WithValue(ctx, nonceKey{}, nonce)
}

func nonceOf(ctx context.Context) string {
	nonce, _ := ctx.Value(nonceKey{}).(string)
	return nonce
}

func page(status func() any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := json.MarshalIndent(status(), "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = statusPage.Execute(w, shown{Status: template.JS(cli.AppendPrintable(nil, v)), Nonce: nonceOf(r.Context()), Runbook: problems.Runbook})
	}
}

// history serves the last hour of the model in the query, or of all models.
func history(get func(model string) (any, bool)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		series, ok := get(r.URL.Query().Get("model"))
		if !ok {
			http.Error(w, "this model had no request within the last hour", http.StatusNotFound)
			return
		}
		writeJSON(w, http.StatusOK, series)
	}
}

// HeaderSilent lists the replicas of the group that did not answer, in a response of
// /debug/decisions.
const HeaderSilent = "X-Grapevine-Silent"

func decisions(get func(ctx context.Context, id string, n int, local bool) (any, []string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n := 20
		if s := r.URL.Query().Get("n"); s != "" {
			v, err := strconv.Atoi(s)
			if err != nil || v < 1 || v > maxDecisions {
				http.Error(w, fmt.Sprintf("n=%q: want 1 to %d", s, maxDecisions), http.StatusBadRequest)
				return
			}
			n = v
		}
		q := r.URL.Query()
		found, silent := get(r.Context(), cmp.Or(q.Get("request_id"), q.Get("id")), n, q.Has("local"))
		if len(silent) > 0 {
			w.Header().Set(HeaderSilent, strings.Join(silent, ", "))
		}
		writeJSON(w, http.StatusOK, found)
	}
}

func explain(f func(context.Context, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r.Context(), r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		writeJSON(w, http.StatusOK, v)
	}
}

func reload(f func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := f(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		fmt.Fprintln(w, "reloaded")
	}
}

// LogLevels are the levels of the process's log.
type LogLevels interface {
	Set(levels string) error
	String() string
}

// logLevels changes the levels to the body of a PUT, and answers with the levels in use.
func logLevels(l LogLevels) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			b, err := io.ReadAll(r.Body)
			if err == nil {
				err = l.Set(strings.TrimSpace(string(b)))
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		fmt.Fprintln(w, l.String())
	}
}
