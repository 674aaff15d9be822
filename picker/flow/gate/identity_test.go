package gate

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/request"
)

type headers map[string]string

func (h headers) Get(name string) string { return h[name] }

func TestIdentify(t *testing.T) {
	all := []Source{"header:x-agent", FromCertificate, FromSession, FromUser, FromModel}
	chain := `By=spiffe://a;Hash=1;URI=spiffe://old/client,By=spiffe://proxy;Hash=2;Subject="CN=a\"b;c,O=x";URI=spiffe://new/client`
	for _, tc := range []struct {
		name    string
		r       request.Request
		sources []Source
		want    string
	}{
		{"the fairness id is first", request.Request{FairnessID: "gold", Model: "m"}, all, "gold"},
		{"no source", request.Request{Session: "s"}, nil, "default-flow"},
		{"a header", request.Request{Headers: headers{"x-agent": "planner"}, Session: "s"}, all, "planner"},
		{"a session", request.Request{Session: "s", User: "u"}, all, "s"},
		{"a user", request.Request{User: "u", Model: "m"}, all, "u"},
		{"a model", request.Request{Model: "m"}, all, "m"},
		{"a certificate, as the nearest proxy saw it", request.Request{Headers: headers{certificates: chain}}, all, "spiffe://new/client"},
		{"its subject", request.Request{Headers: headers{certificates: `Hash=2;Subject="CN=a;O=b"`}}, all, "CN=a;O=b"},
		{"its hash", request.Request{Headers: headers{certificates: `By=spiffe://proxy;Hash=2`}}, all, "2"},
		{"a broken one", request.Request{Headers: headers{certificates: `Subject="CN=a`}, Model: "m"}, all, "CN=a"},
		{"what clients say does not count", request.Request{Unnamed: true, Headers: headers{"x-agent": "planner"}, Session: "s", User: "u", Model: "m"}, all, "m"},
		{"too long", request.Request{Headers: headers{"x-agent": string(make([]byte, 2000))}}, []Source{"header:x-agent"}, "default-flow"},
		{"a user who is long", request.Request{User: strings.Repeat("u", 1<<20)}, all, rules.Name(strings.Repeat("u", 1<<20))},
		{"a fairness id that is long", request.Request{FairnessID: strings.Repeat("f", 1000)}, all, rules.Name(strings.Repeat("f", 1000))},
	} {
		if got := identify(&tc.r, tc.sources); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func FuzzCertificate(f *testing.F) {
	f.Add(`By=spiffe://a;Hash=1;URI=spiffe://old/client,Subject="CN=a\"b;c,O=x"`)
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, v string) {
		if id := certificate(&request.Request{Headers: headers{certificates: v}}); len(id) > len(v) {
			t.Errorf("%q names %q", v, id)
		}
	})
}
