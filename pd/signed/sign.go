package signed

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// signatureLife is the validity of a signature. It bounds a request's time between the picker and
// the proxy next to the decode engine.
const signatureLife = 2 * time.Minute

// signatureSkew is the largest clock difference between picker and proxy.
const signatureSkew = 10 * time.Minute

// ErrSignature means that targets are not signed by a picker, or the signature has expired.
var ErrSignature = errors.New("targets are not signed by a picker")

// Signer signs targets with a picker's private key. Safe for concurrent use.
type Signer struct {
	key ed25519.PrivateKey
	now func() time.Time
}

// NewSigner returns a signer for a 32-byte seed.
func NewSigner(seed []byte, now func() time.Time) (*Signer, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("signed: signing key has %d bytes, want %d", len(seed), ed25519.SeedSize)
	}
	return &Signer{ed25519.NewKeyFromSeed(seed), now}, nil
}

// Public returns the public key for verifiers.
func (s *Signer) Public() ed25519.PublicKey { return s.key.Public().(ed25519.PublicKey) }

// Append adds signatures for the headers with prefill and encode endpoints, and with endpoints of
// continuations, if there are any. A nil Signer adds nothing.
func (s *Signer) Append(headers []request.HeaderSet) []request.HeaderSet {
	if s == nil {
		return headers
	}
	var prefill, encode string
	for _, h := range headers {
		switch h.Name {
		case request.HeaderPrefiller:
			prefill = h.Value
		case request.HeaderEncoders:
			encode = h.Value
		}
	}
	headers = s.appendContinuation(headers)
	if prefill == "" && encode == "" {
		return headers
	}
	return append(headers, request.HeaderSet{Name: request.HeaderSignature, Value: s.Sign(prefill, encode)})
}

// Sign returns the value of request.HeaderSignature for the two headers' values, "" for an absent
// one.
func (s *Signer) Sign(prefill, encode string) string {
	return s.sign(func(until int64) []byte { return signed(until, prefill, encode) })
}

func (s *Signer) sign(message func(until int64) []byte) string {
	until := s.now().Add(signatureLife).Unix()
	sig := ed25519.Sign(s.key, message(until))
	return "v1." + strconv.FormatInt(until, 10) + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// Verifier checks signatures with one or more public keys, to allow rotation. Safe for concurrent
// use.
type Verifier struct {
	keys []ed25519.PublicKey
	now  func() time.Time
}

// NewVerifier returns a verifier for 32-byte keys.
func NewVerifier(now func() time.Time, keys ...[]byte) (*Verifier, error) {
	v := &Verifier{now: now}
	for _, k := range keys {
		if len(k) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("signed: verification key has %d bytes, want %d", len(k), ed25519.PublicKeySize)
		}
		v.keys = append(v.keys, k)
	}
	return v, nil
}

// Verify returns nil if signature is valid for the headers' values with any of the keys, and
// ErrSignature otherwise.
func (v *Verifier) Verify(signature, prefill, encode string) error {
	return v.verify(signature, func(until int64) []byte { return signed(until, prefill, encode) })
}

func (v *Verifier) verify(signature string, signed func(until int64) []byte) error {
	rest, ok := strings.CutPrefix(signature, "v1.")
	at, text, found := strings.Cut(rest, ".")
	until, err := strconv.ParseInt(at, 10, 64)
	sig, err2 := base64.RawURLEncoding.DecodeString(text)
	if !ok || !found || err != nil || err2 != nil {
		return ErrSignature
	}
	if left := until - v.now().Unix(); left < -int64(signatureSkew/time.Second) || left > int64((signatureSkew+signatureLife)/time.Second) {
		return fmt.Errorf("%w: the signature has expired", ErrSignature)
	}
	message := signed(until)
	for _, k := range v.keys {
		if ed25519.Verify(k, message, sig) {
			return nil
		}
	}
	return ErrSignature
}

// signed returns the signed text. Lengths separate its parts.
func signed(until int64, prefill, encode string) []byte {
	return fmt.Appendf(nil, "grapevine targets 1\n%d\n%d %s\n%d %s\n", until, len(prefill), prefill, len(encode), encode)
}
