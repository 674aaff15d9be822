package sidecar

import (
	"crypto/ed25519"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/pd/signed"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestWhoIsCalled sends the pool's addresses in every header that names targets. A leg is sent only
// to targets of its role, by host and port, and with keys only to targets that a picker has signed
// for the leg. Other targets are dropped one by one. The request is refused only if no prefill
// endpoint and no fallback is left.
func TestWhoIsCalled(t *testing.T) {
	const prefill, decode, encoder, unknown = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.1:22"
	list := Listed{prefill: endpoint.RolePrefill, decode: endpoint.RoleDecode, encoder: endpoint.RoleEncode}
	signer, err := signed.NewSigner(make([]byte, ed25519.SeedSize), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	v, err := signed.NewVerifier(time.Now, signer.Public())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name            string
		targets         Targets
		prefill, encode string
		signed          [2]string // signed texts; empty: no signature
		legs            string    // hosts that are called: p, d, e, u and the decode engine itself as .
	}{
		{"listed", list, prefill, "", [2]string{}, "p."},
		{"listed, both legs", list, prefill, encoder, [2]string{}, "ep."},
		{"a decode engine", list, decode, "", [2]string{}, "."},
		{"an encoder that is to compute", list, encoder, "", [2]string{}, "."},
		{"a prefill engine that is to encode", list, prefill, prefill, [2]string{}, "p."},
		{"another port of a prefill engine's", list, unknown, "", [2]string{}, "."},
		{"one of two", list, decode + "," + prefill, "", [2]string{}, "p."},
		{"a user in front", list, "x@" + prefill, "", [2]string{}, "."},
		{"a path behind", list, prefill + "/admin", "", [2]string{}, "."},
		{"a name in another case", Listed{"engine:80": AnyRole}, "ENGINE:80", "", [2]string{}, "."},
		{"signed", Signed{v, nil}, unknown, "", [2]string{unknown, ""}, "u."},
		{"not signed", Signed{v, nil}, prefill, "", [2]string{}, "."},
		{"signed for the other leg", Signed{v, nil}, "", prefill, [2]string{prefill, ""}, "."},
		{"one more than was signed", Signed{v, nil}, prefill + "," + unknown, "", [2]string{prefill, ""}, "."},
		{"an encoder beside what was signed", Signed{v, nil}, prefill, encoder, [2]string{prefill, ""}, "."},
		{"signed and listed", Signed{v, list}, prefill, "", [2]string{prefill, ""}, "p."},
		{"signed, not listed", Signed{v, list}, unknown, "", [2]string{unknown, ""}, "."},
		{"listed, not signed", Signed{v, list}, prefill, "", [2]string{}, "."},
	} {
		for _, strict := range []bool{false, true} {
			called := &hosts{names: map[string]string{prefill: "p", decode: "d", encoder: "e", unknown: "u", "127.0.0.1:8200": "."}}
			s, err := New(Options{Engine: "http://127.0.0.1:8200", Encoder: EncodeNIXL, Targets: c.targets, Transport: called, NoFallback: strict})
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[{"content":[{"type":"image_url"}]}]}`))
			r.Header.Set(headerPrefiller, c.prefill)
			r.Header.Set(headerEncoders, c.encode)
			if c.signed != [2]string{} {
				r.Header.Set(request.HeaderSignature, signer.Sign(c.signed[0], c.signed[1]))
			}
			status, legs := http.StatusOK, c.legs
			if strict && c.prefill != "" && !strings.ContainsAny(legs, "pu") { // nothing allowed is left
				status, legs = http.StatusForbidden, ""
			}
			w := httptest.NewRecorder()
			if s.ServeHTTP(w, r); w.Code != status || called.legs != legs {
				t.Errorf("%s, no fallback %v: status %d, legs %q, want %d, %q", c.name, strict, w.Code, called.legs, status, legs)
			}
		}
	}
	if !list.Source(decode) || list.Source(unknown) || !(Signed{v, list}).Source(decode) || (Signed{v, nil}).Source(decode) {
		t.Error("engines fetch from those that are listed, and from no others")
	}
}

// hosts records the engines that are called, and answers all legs alike.
type hosts struct {
	names map[string]string
	legs  string
}

// RoundTrip implements http.RoundTripper.
func (h *hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	h.legs += h.names[r.URL.Host]
	return said(`{"choices":[],"kv_transfer_params":{"remote_block_ids":[[1]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}}`, "application/json"), nil
}
