package sidecar

import (
	"crypto/ed25519"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/pd/signed"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestWhoIsCalled names addresses of the pool in every header that names some: a leg goes to
// those of the leg's role alone, host and port, and where keys are given too, to those that a
// picker has signed for it.
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
		signed          [2]string // what the signature is of; nothing: there is none
		status          int
	}{
		{"listed", list, prefill, "", [2]string{}, 200},
		{"listed, both legs", list, prefill, encoder, [2]string{}, 200},
		{"a decode engine", list, decode, "", [2]string{}, 403},
		{"an encoder that is to compute", list, encoder, "", [2]string{}, 403},
		{"a prefill engine that is to encode", list, prefill, prefill, [2]string{}, 403},
		{"another port of a prefill engine's", list, unknown, "", [2]string{}, 403},
		{"one of two", list, prefill + "," + decode, "", [2]string{}, 403},
		{"a user in front", list, "x@" + prefill, "", [2]string{}, 403},
		{"a path behind", list, prefill + "/admin", "", [2]string{}, 403},
		{"a name in another case", Listed{"engine:80": AnyRole}, "ENGINE:80", "", [2]string{}, 403},
		{"signed", Signed{v, nil}, unknown, "", [2]string{unknown, ""}, 200},
		{"not signed", Signed{v, nil}, prefill, "", [2]string{}, 403},
		{"signed for the other leg", Signed{v, nil}, "", prefill, [2]string{prefill, ""}, 403},
		{"one more than was signed", Signed{v, nil}, prefill + "," + unknown, "", [2]string{prefill, ""}, 403},
		{"an encoder beside what was signed", Signed{v, nil}, prefill, encoder, [2]string{prefill, ""}, 403},
		{"signed and listed", Signed{v, list}, prefill, "", [2]string{prefill, ""}, 200},
		{"signed, not listed", Signed{v, list}, unknown, "", [2]string{unknown, ""}, 403},
		{"listed, not signed", Signed{v, list}, prefill, "", [2]string{}, 403},
	} {
		var legs atomic.Int64
		s, err := New(Options{Engine: "http://127.0.0.1:8200", Encoder: EncodeNIXL, Targets: c.targets, Transport: counting{&legs}})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[{"content":[{"type":"image_url"}]}]}`))
		r.Header.Set(headerPrefiller, c.prefill)
		r.Header.Set(headerEncoders, c.encode)
		if c.signed != [2]string{} {
			r.Header.Set(request.HeaderSignature, signer.Sign(c.signed[0], c.signed[1]))
		}
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != c.status || c.status == 403 && legs.Load() != 0 {
			t.Errorf("%s: %d after %d legs, want %d", c.name, w.Code, legs.Load(), c.status)
		}
	}
	if !list.Source(decode) || list.Source(unknown) || !(Signed{v, list}).Source(decode) || (Signed{v, nil}).Source(decode) {
		t.Error("engines fetch from those that are listed, and from no others")
	}
}

// counting counts legs, and answers all of them alike.
type counting struct{ n *atomic.Int64 }

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(*http.Request) (*http.Response, error) {
	c.n.Add(1)
	return said(`{"choices":[]}`, "application/json"), nil
}
