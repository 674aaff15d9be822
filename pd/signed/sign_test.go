package signed

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/request"
)

func TestSign(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	clock := func() time.Time { return now }
	signer := func(b byte) *Signer {
		s, err := NewSigner(bytes.Repeat([]byte{b}, 32), clock)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b, stranger := signer(1), signer(2), signer(3)
	v, err := NewVerifier(clock, a.Public(), b.Public())
	if err != nil {
		t.Fatal(err)
	}
	const prefill, encode = "10.0.0.1:8000,10.0.0.2:8000", "10.0.0.9:8000"
	for name, s := range map[string]*Signer{"first key": a, "second key": b} {
		if err := v.Verify(s.Sign(prefill, encode), prefill, encode); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	sig := a.Sign(prefill, encode)
	for name, err := range map[string]error{
		"a stranger":        v.Verify(stranger.Sign(prefill, encode), prefill, encode),
		"another target":    v.Verify(sig, "169.254.169.254:80", encode),
		"swapped headers":   v.Verify(sig, encode, prefill),
		"moved boundary":    v.Verify(sig, prefill+encode, ""),
		"nothing":           v.Verify("", prefill, encode),
		"another version":   v.Verify("v2"+sig[2:], prefill, encode),
		"a lengthened life": v.Verify("v1.9"+sig[3:], prefill, encode),
		"no version":        v.Verify(sig[3:], prefill, encode),
		"a damaged end":     v.Verify(sig+"!", prefill, encode),
		"a padded end":      v.Verify(sig+"=", prefill, encode),
		"no signature":      v.Verify(sig[:strings.LastIndexByte(sig, '.')], prefill, encode),
		"no time":           v.Verify("v1."+sig[strings.LastIndexByte(sig, '.'):], prefill, encode),
	} {
		if !errors.Is(err, ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	now = now.Add(-signatureSkew)
	if err := v.Verify(sig, prefill, encode); err != nil {
		t.Errorf("made by a clock that is ahead by the skew: %v", err)
	}
	now = now.Add(-time.Second)
	if err := v.Verify(sig, prefill, encode); !errors.Is(err, ErrSignature) {
		t.Errorf("made in the future: %v", err)
	}
	now = now.Add(time.Second + signatureSkew)
	now = now.Add(signatureLife + signatureSkew)
	if err := v.Verify(sig, prefill, encode); err != nil {
		t.Errorf("within the clock skew: %v", err)
	}
	now = now.Add(time.Second)
	if err := v.Verify(sig, prefill, encode); !errors.Is(err, ErrSignature) {
		t.Errorf("replayed signature: %v", err)
	}
	if _, err := NewSigner([]byte("short"), clock); err == nil {
		t.Error("short signing key was accepted")
	}
	if _, err := NewVerifier(clock, []byte("short")); err == nil {
		t.Error("short verification key was accepted")
	}
}

func TestAppend(t *testing.T) {
	s, err := NewSigner(make([]byte, 32), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewVerifier(time.Now, s.Public())
	if err != nil {
		t.Fatal(err)
	}
	plain := []request.HeaderSet{{Name: request.HeaderDataParallel, Value: "10.0.0.1:8001"}}
	if got := s.Append(plain); len(got) != 1 {
		t.Errorf("nothing to sign, but %v", got)
	}
	split := append(plain, request.HeaderSet{Name: request.HeaderPrefiller, Value: "10.0.0.2:8000"})
	got := s.Append(split)
	last := got[len(got)-1]
	if last.Name != request.HeaderSignature || v.Verify(last.Value, "10.0.0.2:8000", "") != nil {
		t.Errorf("%v", got)
	}
	if got := (*Signer)(nil).Append(split); len(got) != 2 {
		t.Errorf("no key, but %v", got)
	}
}

// TestAppendContinuation: endpoints of continuations have a signature of their own, which does not cover
// other targets and is not valid for them.
func TestAppendContinuation(t *testing.T) {
	s, err := NewSigner(make([]byte, 32), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewVerifier(time.Now, s.Public())
	if err != nil {
		t.Fatal(err)
	}
	const there = "10.0.0.3:8000"
	got := s.Append([]request.HeaderSet{{Name: request.HeaderContinuation, Value: there}})
	if len(got) != 2 || got[1].Name != request.HeaderContinuationSignature {
		t.Fatalf("headers %v, want one more with the signature", got)
	}
	if err := v.VerifyContinuation(got[1].Value, there); err != nil {
		t.Errorf("the signature of the continuation: %v", err)
	}
	if err := v.VerifyContinuation(got[1].Value, "10.0.0.4:8000"); !errors.Is(err, ErrSignature) {
		t.Errorf("the signature for another endpoint: %v", err)
	}
	if err := v.Verify(got[1].Value, there, ""); !errors.Is(err, ErrSignature) {
		t.Errorf("the signature for a prefill endpoint: %v", err)
	}
	got = s.Append([]request.HeaderSet{{Name: request.HeaderContinuation, Value: there}, {Name: request.HeaderPrefiller, Value: there}})
	if len(got) != 4 || got[3].Name != request.HeaderSignature || v.Verify(got[3].Value, there, "") != nil {
		t.Errorf("headers %v, want both signatures", got)
	}
}
