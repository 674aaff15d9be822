package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/pd/sidecar"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestSimRoles: the command's engines are both halves of a pair for a sidecar. Every kind of request has
// the text of the decode engine alone, and the prefill engine computes the prompt.
func TestSimRoles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cmd := newSim()
	cmd.SetOut(io.Discard)
	cmd.SetArgs([]string{"--engines", "2", "--prefill", "1", "--port", "0", "--speed", "1000", "--events=false", "--endpoints-file", file})
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	testkit.Await(t, "the endpoints file is there", func() bool { _, err := os.Stat(file); return err == nil })
	eps, problems := discovery.Load(file)
	if len(problems) > 0 || len(eps) != 2 || eps[0].Labels[endpoint.LabelRole] != "prefill" || eps[1].Labels[endpoint.LabelRole] != "decode" {
		t.Fatalf("endpoints %+v, problems %v; want a prefill and a decode engine", eps, problems)
	}
	s, err := sidecar.New(sidecar.Options{Engine: "http://" + eps[1].HostPort()})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(s)
	defer front.Close()
	ask := func(url, path, body string, split bool) (text, report string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if split {
			r.Header.Set(request.HeaderPrefiller, eps[0].HostPort())
		}
		resp, err := front.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		all, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: status %d, %s, %v", path, resp.StatusCode, all, err)
		}
		return contentOf(string(all)), resp.Header.Get(request.HeaderKVTransfer)
	}
	for i, c := range []struct{ path, body string }{
		{"/v1/completions", `"prompt":%q`},
		{"/v1/completions", `"stream":true,"prompt":%q`},
		{"/v1/chat/completions", `"messages":[{"role":"user","content":%q}]`},
		{"/v1/chat/completions", `"stream":true,"messages":[{"role":"user","content":%q}]`},
	} {
		prompt := strings.Repeat(fmt.Sprintf("prompt %d of two engines. ", i), 40)
		body := `{"max_tokens":8,"ignore_eos":true,` + fmt.Sprintf(c.body, prompt) + "}"
		got, report := ask(front.URL, c.path, body, true)
		want, _ := ask("http://"+eps[1].HostPort(), c.path, body, false)
		if got != want || got == "" || !strings.HasPrefix(report, "0;failed=0;") {
			t.Errorf("%s %s: %q, report %q, want %q by the prefill engine", c.path, c.body, got, report, want)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// contentOf joins the texts of an answer, streamed or not.
func contentOf(answer string) string {
	var b strings.Builder
	for _, key := range []string{`"text":"`, `"content":"`} {
		for rest := answer; ; {
			_, after, found := strings.Cut(rest, key)
			if !found {
				break
			}
			text, next, _ := strings.Cut(after, `"`)
			b.WriteString(text)
			rest = next
		}
	}
	return b.String()
}

// TestSimRolesAreChecked: impossible roles are refused.
func TestSimRolesAreChecked(t *testing.T) {
	for _, args := range [][]string{
		{"--prefill", "1"}, {"--engines", "2", "--prefill", "2"}, {"--engines", "2", "--prefill", "-1"}, {"--sidecar-port", "8000"},
		{"--engines", "2", "--prefill", "1", "--sidecar-port", "70000"}, {"--engines", "2", "--prefill", "1", "--gigabytes-per-second", "0"},
	} {
		cmd := newSim()
		cmd.SetArgs(args)
		cmd.SetErr(io.Discard)
		cmd.SetOut(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
